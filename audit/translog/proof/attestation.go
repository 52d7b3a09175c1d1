package proof

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"golang.org/x/mod/sumdb/note"

	"secbox/audit"
	"secbox/internal/whole"
)

// Types of an attestation. The statement is written by the specification of in-toto v1: the library
// of in-toto needs Protocol Buffers for it.
const (
	payloadType   = "application/vnd.in-toto+json"
	statementType = "https://in-toto.io/Statement/v1"

	// PredicateType names the predicate: the record, as its events have it.
	PredicateType = "urn:secbox:exec-record:v1"
)

// manifestFile is the subject that stands for the files of core-api: their digests are in it, and
// its own is in the record.
const manifestFile = "manifest.json"

// Subject is a file that an exec left.
type Subject struct {
	Name   string `json:"name"`
	Digest struct {
		SHA256 string `json:"sha256"`
	} `json:"digest"`
}

// NewSubject returns the subject of a file with this SHA-256, in hexadecimal.
func NewSubject(name, sha256 string) Subject {
	s := Subject{Name: name}
	s.Digest.SHA256 = sha256
	return s
}

// manifestSubject returns the subject of the manifest. in-toto's digests have no prefix, and
// records' digests have one.
func manifestSubject(r audit.Record) Subject {
	return NewSubject(manifestFile, strings.TrimPrefix(r.ManifestDigest, "sha256:"))
}

// statement is an in-toto statement.
type statement struct {
	Type          string         `json:"_type"`
	Subject       []Subject      `json:"subject"`
	PredicateType string         `json:"predicateType"`
	Predicate     jsontext.Value `json:"predicate"`
}

// Attest returns a DSSE envelope with an in-toto statement about an exec that has a manifest. Its
// subjects are the manifest and the artifacts, its predicate is the record. The caller has checked
// that the record is what the log says.
//
// The envelope is signed with the log's key. What DSSE signs begins with DSSEv1, and a checkpoint
// with the name of a log, so that neither passes for the other.
func Attest(signer note.Signer, r audit.Record, artifacts []Subject) ([]byte, error) {
	record, err := json.Marshal(inUTC(r))
	if err != nil {
		return nil, err
	}
	body, err := jsonv2.Marshal(statement{statementType, append([]Subject{manifestSubject(r)}, artifacts...), PredicateType, record})
	if err != nil {
		return nil, err
	}
	return SignEnvelope(signer, payloadType, body)
}

// SignEnvelope returns a line with a DSSE envelope of a payload, signed with the log's key.
func SignEnvelope(signer note.Signer, payloadType string, body []byte) ([]byte, error) {
	envelopes, err := dsse.NewEnvelopeSigner(logSigner{signer})
	if err != nil {
		return nil, err
	}
	envelope, err := envelopes.SignPayload(context.Background(), payloadType, body)
	if err != nil {
		return nil, err
	}
	file, err := json.Marshal(envelope)
	return append(file, '\n'), err
}

// IsAttestation reports whether a file looks like an attestation rather than a proof.
func IsAttestation(file []byte) bool {
	var e struct {
		PayloadType *string `json:"payloadType"`
	}
	return json.Unmarshal(file, &e) == nil && e.PayloadType != nil
}

// Attestation is what an attestation says.
type Attestation struct {
	Origin   string // of the log whose key has signed it
	Record   audit.Record
	Subjects []Subject
}

// CheckAttestation verifies an attestation with the log's public key, as Check does a proof. It
// fails with fault.InvalidProof, and with fault.InvalidRequest for a key that is none.
func CheckAttestation(file []byte, key string) (Attestation, error) {
	verifier, err := NewVerifier(key)
	if err != nil {
		return Attestation{}, err
	}
	body, err := OpenEnvelope(file, payloadType, verifier)
	if err != nil {
		return Attestation{}, refuse(err, "the file is no attestation that the key %s has signed: %v", verifier.Name(), err)
	}
	a := Attestation{Origin: verifier.Name()}
	var s statement
	if err := jsonv2.Unmarshal(body, &s); err != nil {
		return Attestation{}, refuse(err, "the statement cannot be read: %v", err)
	}
	if s.Type != statementType || s.PredicateType != PredicateType {
		return Attestation{}, refuse(nil, "the statement is a %q with a %q, and this program knows only %q with %q", whole.Shorten(s.Type),
			whole.Shorten(s.PredicateType), statementType, PredicateType)
	}
	if err := jsonv2.Unmarshal(s.Predicate, &a.Record); err != nil {
		return Attestation{}, refuse(err, "the record cannot be read: %v", err)
	}
	a.Record, a.Subjects = inUTC(a.Record), s.Subject
	if len(s.Subject) == 0 || s.Subject[0] != manifestSubject(a.Record) {
		return Attestation{}, refuse(nil, "the first subject is not the manifest of the record")
	}
	return a, nil
}

// OpenEnvelope returns the payload of a DSSE envelope that the key has signed.
func OpenEnvelope(file []byte, payloadType string, verifier note.Verifier) ([]byte, error) {
	if len(file) > MaxBytes {
		return nil, fmt.Errorf("it is larger than %d bytes", MaxBytes)
	}
	var envelope dsse.Envelope
	if err := jsonv2.Unmarshal(file, &envelope); err != nil {
		return nil, err
	}
	if envelope.PayloadType != payloadType {
		return nil, fmt.Errorf("its payload is %q, not %q", whole.Shorten(envelope.PayloadType), payloadType)
	}
	envelopes, err := dsse.NewEnvelopeVerifier(logVerifier{verifier})
	if err != nil {
		return nil, err
	}
	_, body, err := envelopes.VerifyAndDecode(context.Background(), &envelope)
	return body, err
}

// logSigner is the log's key as DSSE uses it.
type logSigner struct{ note.Signer }

func (s logSigner) Sign(_ context.Context, data []byte) ([]byte, error) { return s.Signer.Sign(data) }

func (s logSigner) KeyID() (string, error) { return keyID(s.Name(), s.KeyHash()), nil }

// logVerifier is the log's public key as DSSE uses it.
type logVerifier struct{ note.Verifier }

func (v logVerifier) Verify(_ context.Context, data, sig []byte) error {
	if !v.Verifier.Verify(data, sig) {
		return errors.New("the signature is not of this key")
	}
	return nil
}
func (v logVerifier) KeyID() (string, error) { return keyID(v.Name(), v.KeyHash()), nil }
func (logVerifier) Public() crypto.PublicKey { return nil }

// keyID is the beginning of a key in the format of package note.
func keyID(name string, hash uint32) string { return fmt.Sprintf("%s+%08x", name, hash) }
