package api

import (
	"context"

	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/audit/retention"
)

func (s *Server) holds() visible.Holds { return visible.Holds{Store: s.cfg.Retention} }

// ListHolds sends a page of holds.
func (s *Server) ListHolds(ctx context.Context, in wire.ListHoldsRequestObject) (wire.ListHoldsResponseObject, error) {
	limit, err := pageLimit(in.Params.Limit)
	if err != nil {
		return nil, err
	}
	holds, next, err := s.holds().List(ctx, value(in.Params.Cursor), limit)
	if err != nil {
		return nil, err
	}
	out := wire.ListHolds200JSONResponse{Items: make([]wire.Hold, len(holds))}
	for i, h := range holds {
		out.Items[i] = hold(h)
	}
	if next != "" {
		out.NextCursor = &next
	}
	return out, nil
}

// AddHold adds a hold.
func (s *Server) AddHold(ctx context.Context, in wire.AddHoldRequestObject) (wire.AddHoldResponseObject, error) {
	added, err := s.holds().Add(ctx, callFrom(ctx).caller,
		retention.Hold{Kind: retention.HoldKind(in.Body.Kind), Value: in.Body.Value, Reason: in.Body.Reason})
	return wire.AddHold201JSONResponse(hold(added)), err
}

// RemoveHold ends a hold.
func (s *Server) RemoveHold(ctx context.Context, in wire.RemoveHoldRequestObject) (wire.RemoveHoldResponseObject, error) {
	_, err := s.holds().Remove(ctx, callFrom(ctx).caller, in.HoldID)
	return wire.RemoveHold204Response{}, err
}

func hold(h retention.Hold) wire.Hold {
	return wire.Hold{
		ID: h.ID, Kind: string(h.Kind), Value: h.Value, Reason: h.Reason, AddedAt: visible.Timestamp(h.AddedAt.UTC()),
		AddedBy: h.AddedBy,
	}
}
