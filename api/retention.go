package api

import (
	"context"

	"github.com/google/uuid"

	"secbox/audit"
	"secbox/fault"
	"secbox/retention"
	"secbox/tokens"
)

// ListHolds sends the holds.
func (s *Server) ListHolds(ctx context.Context, _ ListHoldsRequestObject) (ListHoldsResponseObject, error) {
	holds, err := s.cfg.Retention.Holds(ctx)
	if err != nil {
		return nil, err
	}
	out := ListHolds200JSONResponse{Items: make([]Hold, len(holds))}
	for i, h := range holds {
		out.Items[i] = hold(h)
	}
	return out, nil
}

// AddHold adds a hold.
func (s *Server) AddHold(ctx context.Context, in AddHoldRequestObject) (AddHoldResponseObject, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	wanted := retention.Hold{ID: id.String(), Kind: retention.HoldKind(in.Body.Kind), Value: in.Body.Value, Reason: in.Body.Reason, AddedBy: callFrom(ctx).caller.ID}
	if err := wanted.Check(); err != nil {
		return nil, err
	}
	added, err := s.cfg.Retention.AddHold(ctx, wanted)
	return AddHold201JSONResponse(hold(added)), err
}

// RemoveHold ends a hold.
func (s *Server) RemoveHold(ctx context.Context, in RemoveHoldRequestObject) (RemoveHoldResponseObject, error) {
	_, err := s.cfg.Retention.RemoveHold(ctx, in.HoldID, callFrom(ctx).caller.ID)
	return RemoveHold204Response{}, err
}

func hold(h retention.Hold) Hold {
	return Hold{ID: h.ID, Kind: string(h.Kind), Value: h.Value, Reason: h.Reason, AddedAt: Timestamp(h.AddedAt.UTC()), AddedBy: h.AddedBy}
}

// removed returns fault.RemovedByRetention if the exec was removed and the caller might have seen it; nil if not.
func (s *Server) removed(ctx context.Context, execID string) error {
	tombs, err := s.cfg.Retention.Tombstones(ctx, []string{execID})
	if err != nil {
		return err
	}
	caller := callFrom(ctx).caller
	for _, t := range tombs {
		if t.Part == retention.Records && (caller.Role != tokens.Worker || t.RequestedBy == caller.ID) {
			return t.Removed()
		}
	}
	return nil
}

// unlessRemoved returns an error about files of an exec, or fault.RemovedByRetention if they were removed.
func (s *Server) unlessRemoved(ctx context.Context, rec audit.Record, err error) error {
	if err == nil || fault.Is(err, fault.ArtifactsPending) {
		return err
	}
	tombs, tombErr := s.cfg.Retention.Tombstones(ctx, []string{rec.ExecID})
	if tombErr != nil || len(tombs) == 0 {
		return err
	}
	return tombs[len(tombs)-1].Removed() // the record's, if both are gone
}

// artifactsRemoved returns when the artifacts of execs were removed, by exec.
func (s *Server) artifactsRemoved(ctx context.Context, execIDs ...string) (map[string]*Timestamp, error) {
	if len(execIDs) == 0 {
		return nil, nil
	}
	tombs, err := s.cfg.Retention.Tombstones(ctx, execIDs)
	at := map[string]*Timestamp{}
	for _, t := range tombs {
		if t.Part == retention.Artifacts {
			at[t.ExecID] = new(Timestamp(t.RemovedAt.UTC()))
		}
	}
	return at, err
}
