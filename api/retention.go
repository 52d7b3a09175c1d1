package api

import (
	"context"

	"github.com/google/uuid"

	"secbox/api/visible"
	"secbox/audit"
	"secbox/retention"
)

// ListHolds sends a page of holds.
func (s *Server) ListHolds(ctx context.Context, in ListHoldsRequestObject) (ListHoldsResponseObject, error) {
	limit, err := pageLimit(in.Params.Limit)
	if err != nil {
		return nil, err
	}
	var after retention.HoldCursor
	if text := value(in.Params.Cursor); text != "" {
		at, err := visible.DecodeCursor(text, "")
		if err != nil {
			return nil, err
		}
		after = retention.HoldCursor{AddedAt: at.CreatedAt, ID: at.ExecID}
	}
	holds, err := s.cfg.Retention.Holds(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	out := ListHolds200JSONResponse{Items: make([]Hold, len(holds))}
	for i, h := range holds {
		out.Items[i] = hold(h)
	}
	if n := len(holds); n == limit {
		out.NextCursor = new(visible.EncodeCursor(audit.Cursor{CreatedAt: holds[n-1].AddedAt, ExecID: holds[n-1].ID}, ""))
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
