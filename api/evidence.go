package api

import (
	"context"
	"time"

	"secbox/api/content"
	"secbox/api/problem"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/audit/translog/proof"
	"secbox/audit/translog/verify"
	"secbox/fault"
)

// GetLogCheckpoint sends the newest checkpoint of the transparency log.
func (s *Server) GetLogCheckpoint(ctx context.Context, _ wire.GetLogCheckpointRequestObject) (wire.GetLogCheckpointResponseObject, error) {
	checkpoint, err := s.cfg.TransparencyLog.Checkpoint(ctx)
	return nil, callFrom(ctx).answerPage(content.NewPage("text/plain; charset=utf-8", []byte(checkpoint), problem.CSP), err)
}

// GetLogTile sends a tile of the transparency log, or a bundle of its entries.
func (s *Server) GetLogTile(ctx context.Context, in wire.GetLogTileRequestObject) (wire.GetLogTileResponseObject, error) {
	tile, err := s.cfg.TransparencyLog.Tile(ctx, in.Path)
	return nil, callFrom(ctx).answerPage(content.NewPage("application/octet-stream", tile, problem.CSP), err)
}

// proofPrice is the memory that one byte of a record takes in its proof: at most four events, whose
// text is encoded twice.
const proofPrice = 16

// GetExecProof sends the proof of an exec.
func (s *Server) GetExecProof(ctx context.Context, in wire.GetExecProofRequestObject) (wire.GetExecProofResponseObject, error) {
	rec, err := s.record(ctx, in.ExecID)
	if err != nil {
		return nil, err
	}
	if err := callFrom(ctx).reserve(proofPrice * int64(rec.Size())); err != nil {
		return nil, err
	}
	if err := s.notLogged(rec); err != nil {
		return nil, err
	}
	proof, err := s.cfg.TransparencyLog.Prove(ctx, rec)
	if fault.Is(err, fault.NotLogged) { // perhaps its events were removed meanwhile
		if gone := s.execs.Removed(ctx, callFrom(ctx).caller, rec.ExecID); gone != nil {
			err = gone
		}
	}
	if err == nil {
		err = s.recordDownload(ctx, rec, "proof", "")
	}
	return nil, callFrom(ctx).answerPage(content.NewPage("application/json", proof, problem.CSP), err)
}

// notLogged returns fault.NotLogged for an exec whose end the database does not have: its record is
// newer than its events.
func (s *Server) notLogged(rec audit.Record) error {
	if !s.cfg.History.Spooled(rec.ExecID) {
		return nil
	}
	e := fault.New(fault.NotLogged, "the database does not have the end of exec %s yet, and so neither has the transparency log; its "+
		"node keeps the result and tries again", rec.ExecID)
	e.RetryAfter = 30 * time.Second
	return e
}

// subjectPrice is the memory that an artifact takes in an attestation.
const subjectPrice = 1 << 10

// GetExecAttestation sends the attestation of an exec.
func (s *Server) GetExecAttestation(ctx context.Context, in wire.GetExecAttestationRequestObject) (wire.GetExecAttestationResponseObject,
	error,
) {
	rec, err := s.record(ctx, in.ExecID)
	if err != nil {
		return nil, err
	}
	if err := s.notLogged(rec); err != nil {
		return nil, err
	}
	files, err := s.cfg.Runner.Artifacts(ctx, rec)
	if err != nil {
		return nil, s.execs.UnlessRemoved(ctx, rec, err)
	}
	defer files.Close()
	if rec.ManifestDigest == "" {
		return nil, fault.New(fault.UnknownArtifact,
			"exec %s has no manifest, and so nothing to attest; its proof tells what is known of it", rec.ExecID)
	}
	list := files.List().Items
	if err := callFrom(ctx).reserve(proofPrice*int64(rec.Size()) + subjectPrice*int64(len(list))); err != nil {
		return nil, err
	}
	subjects := make([]proof.Subject, len(list))
	for i, file := range list {
		subjects[i] = proof.NewSubject(file.Path, file.SHA256)
	}
	attestation, err := s.cfg.TransparencyLog.Attest(ctx, rec, subjects)
	if err == nil {
		err = s.recordDownload(ctx, rec, "attestation", "")
	}
	return nil, callFrom(ctx).answerPage(content.NewPage("application/vnd.dsse.envelope.v1+json", attestation, problem.CSP), err)
}

// pagePrice is the memory that is counted for a page of documents before it is read: rows and
// events of 4 MiB each, twice while they are encoded.
const pagePrice = 20 << 20

// GetLogDocuments sends a page of the evidence that a verification compares.
func (s *Server) GetLogDocuments(ctx context.Context, in wire.GetLogDocumentsRequestObject) (wire.GetLogDocumentsResponseObject, error) {
	if err := callFrom(ctx).reserve(pagePrice); err != nil {
		return nil, err
	}
	var lines []byte
	next, err := s.cfg.TransparencyLog.Subjects(ctx, value(in.Params.At), func(subject verify.Subject) (err error) {
		lines, err = verify.AppendSubject(lines, subject)
		return err
	})
	return nil, callFrom(ctx).answerPage(content.NewPage("application/jsonl", verify.AppendEnd(lines, next), problem.CSP), err)
}
