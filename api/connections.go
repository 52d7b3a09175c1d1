package api

import (
	"context"
	"strconv"

	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/fault"
)

// ListConnections returns a page of an exec's connections.
func (s *Server) ListConnections(ctx context.Context, in wire.ListConnectionsRequestObject) (wire.ListConnectionsResponseObject, error) {
	limit, err := pageLimit(in.Params.Limit)
	if err != nil {
		return nil, err
	}
	after := int64(0)
	if text := value(in.Params.After); text != "" {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return nil, fault.BadField("after", "must be the seq of a connection")
		}
		after = int64(n)
	}
	if _, err := s.record(ctx, in.ExecID); err != nil {
		return nil, err
	}
	rows, err := s.cfg.Connections.Connections(ctx, in.ExecID, after, limit+1)
	if err != nil {
		return nil, err
	}
	out := wire.ListConnections200JSONResponse{Items: make([]wire.Connection, 0, limit)}
	if len(rows) > limit {
		rows = rows[:limit]
		out.NextAfter = &rows[limit-1].Seq
	}
	for _, c := range rows {
		out.Items = append(out.Items, wire.Connection{
			ExecID: c.ExecID, Seq: c.Seq, Protocol: wire.ConnectionProtocol(c.Protocol), Host: c.Host, Port: c.Port, Address: c.Address,
			Allowed: c.Allowed, Rule: c.Rule, Secrets: notNil(c.Secrets), BytesOut: c.BytesOut, BytesIn: c.BytesIn,
			StartedAt: visible.Timestamp(c.StartedAt), EndedAt: timestamp(c.EndedAt), End: c.End, Detail: c.Detail,
		})
	}
	return out, nil
}
