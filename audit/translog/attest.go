package translog

import (
	"context"

	"secbox/audit"
	"secbox/audit/translog/proof"
	"secbox/fault"
)

// Attest returns an attestation of an exec, signed with the log's key: see proof.Attest. It fails
// with fault.NotLogged like Prove, and with fault.InvalidProof if the record is not what the log
// says, so that nothing is signed that was altered in the database.
func (l Log) Attest(ctx context.Context, r audit.Record, artifacts []proof.Subject) ([]byte, error) {
	file, err := l.Prove(ctx, r)
	if err != nil {
		return nil, err
	}
	key, err := l.Key()
	if err != nil {
		return nil, err
	}
	if _, err := proof.Check(file, key.Verifier); err != nil {
		return nil, fault.Wrap(fault.InvalidProof, err, "the record is not what the transparency log says, and was not attested: %s",
			fault.From(err).Message)
	}
	return proof.Attest(key.Signer, r, artifacts)
}
