package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"secbox/api/content"
	"secbox/api/problem"
	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/fault"
)

// ListAdminEvents lists administrative events.
func (s *Server) ListAdminEvents(ctx context.Context, in wire.ListAdminEventsRequestObject) (wire.ListAdminEventsResponseObject, error) {
	var bad fault.Fields
	limit, err := pageLimit(in.Params.Limit)
	bad.Merge(err)
	query, err := visible.ParseEvents(callFrom(ctx).request.URL.Query().Get, s.cfg.Now(), &bad)
	if err != nil {
		return nil, err
	}
	events, err := s.cfg.AdminEvents.List(ctx, query.Filter, query.After, limit)
	if err != nil {
		return nil, err
	}
	size := 0
	for _, e := range events {
		size += e.Size()
	}
	if err := callFrom(ctx).reserve(2 * int64(size)); err != nil {
		return nil, err
	}
	out := wire.ListAdminEvents200JSONResponse{Items: make([]wire.AdminEvent, len(events))}
	for i, e := range events {
		out.Items[i] = wire.AdminEvent{
			ID: e.Seq, At: visible.Timestamp(e.At), NodeID: e.NodeID,
			Actor: wire.AdminActor{Type: string(e.Actor.Type), ID: e.Actor.ID, Name: e.Actor.Name},
			Kind:  string(e.Kind), Subject: e.Subject, Data: json.RawMessage(e.Data),
		}
		if len(e.Unreadable) > 0 {
			out.Items[i].Unreadable = &e.Unreadable
		}
	}
	if n := len(events); n == limit {
		out.NextCursor = new(query.Cursor(events[n-1]))
	}
	return out, nil
}

// GetAdminEventProof sends the proof of an administrative event.
func (s *Server) GetAdminEventProof(ctx context.Context, in wire.GetAdminEventProofRequestObject) (wire.GetAdminEventProofResponseObject,
	error,
) {
	id, err := strconv.ParseInt(in.EventID, 10, 64)
	if err != nil || strconv.FormatInt(id, 10) != in.EventID {
		return nil, fault.New(fault.UnknownEvent, "there is no event %s", problem.Clip(in.EventID))
	}
	if err := callFrom(ctx).reserve(proofPrice * admin.MaxData); err != nil {
		return nil, err
	}
	proof, err := s.cfg.TransparencyLog.ProveAdmin(ctx, id)
	return nil, callFrom(ctx).answerPage(content.NewPage("application/json", proof, problem.CSP), err)
}

// recordDownload records that the caller gets a file of another client's exec. If it fails, nothing
// may be sent. Execs of the caller itself need no event, so that workers never wait for one.
func (s *Server) recordDownload(ctx context.Context, rec audit.Record, what, path string) error {
	call := callFrom(ctx)
	if call.request.Method == http.MethodHead {
		return nil
	}
	return s.execs.RecordDownload(ctx, call.caller, rec, what, path)
}
