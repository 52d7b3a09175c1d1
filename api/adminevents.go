package api

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"secbox/admin"
	"secbox/api/content"
	"secbox/api/decode"
	"secbox/api/problem"
	"secbox/api/visible"
	"secbox/audit"
	"secbox/fault"
)

// ListAdminEvents lists administrative events.
func (s *Server) ListAdminEvents(ctx context.Context, in ListAdminEventsRequestObject) (ListAdminEventsResponseObject, error) {
	filter, after, limit, err := eventQuery(in.Params, s.cfg.Now())
	if err != nil {
		return nil, err
	}
	events, err := s.cfg.AdminEvents.List(ctx, filter, after, limit)
	if err != nil {
		return nil, err
	}
	size := 0
	for _, e := range events {
		size += len(e.Data) + len(e.Subject) + len(e.Actor.Name) + len(e.NodeID) + 256
	}
	if err := callFrom(ctx).reserve(2 * int64(size)); err != nil {
		return nil, err
	}
	out := ListAdminEvents200JSONResponse{Items: make([]AdminEvent, len(events))}
	for i, e := range events {
		out.Items[i] = AdminEvent{
			ID: e.Seq, At: Timestamp(e.At), NodeID: e.NodeID, Actor: AdminActor{Type: string(e.Actor.Type), ID: e.Actor.ID, Name: e.Actor.Name},
			Kind: string(e.Kind), Subject: e.Subject, Data: json.RawMessage(e.Data),
		}
	}
	if n := len(events); n == limit {
		out.NextCursor = new(encodeEventCursor(admin.Cursor{At: events[n-1].At, Seq: events[n-1].Seq}, in.Params))
	}
	return out, nil
}

func eventQuery(p ListAdminEventsParams, now time.Time) (f admin.Filter, after *admin.Cursor, limit int, err error) {
	var bad fault.Fields
	text := func(field string, p *string) string {
		s := value(p)
		if len(s) > admin.MaxText || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
			bad.Add(field, "must be at most %d bytes of UTF-8 without control characters", admin.MaxText)
		}
		return s
	}
	f = admin.Filter{
		Kind: admin.Kind(value(p.Kind)), Actor: text("actor", p.Actor), Subject: text("subject", p.Subject),
		Since: audit.ParseTime("since", value(p.Since), now, &bad), Until: audit.ParseTime("until", value(p.Until), now, &bad),
	}
	if f.Kind != "" && !f.Kind.Valid() {
		bad.Add("kind", "must be one of %v", admin.Kinds())
	}
	limit, err = pageLimit(p.Limit)
	bad.Merge(err)
	if err := bad.Err(); err != nil {
		return admin.Filter{}, nil, 0, err
	}
	if s := value(p.Cursor); s != "" {
		after, err = decodeEventCursor(s, p)
	}
	return f, after, limit, err
}

// eventCursor is a cursor as base64url-encoded JSON. Filter identifies the parameters of the list that it is a place in.
type eventCursor struct {
	At     string `json:"at"`
	ID     int64  `json:"id"`
	Filter string `json:"filter"`
}

// filterOf identifies the filters of a list. A relative time is the same filter on each page, although its meaning moves.
func filterOf(p ListAdminEventsParams) string {
	text, _ := json.Marshal([]string{value(p.Kind), value(p.Actor), value(p.Subject), value(p.Since), value(p.Until)})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

func encodeEventCursor(c admin.Cursor, p ListAdminEventsParams) string {
	text, _ := json.Marshal(eventCursor{c.At.UTC().Format(visible.Micros), c.Seq, filterOf(p)})
	return base64.RawURLEncoding.EncodeToString(text)
}

// decodeEventCursor accepts only output of encodeEventCursor for the same filters.
func decodeEventCursor(s string, p ListAdminEventsParams) (*admin.Cursor, error) {
	refuse := func(reason string) error {
		return &fault.Error{
			Code: fault.InvalidCursor, Message: "cursor: " + reason + "; pass next_cursor of the page before, unchanged, with the same parameters",
			Fields: []fault.Field{{Field: "cursor", Reason: reason}},
		}
	}
	var c eventCursor
	text, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if len(s) > 512 || err != nil || decode.Strict(text, &c) != nil {
		return nil, refuse("was not made by this server")
	}
	at, err := time.Parse(visible.Micros, c.At)
	if err != nil || at.Format(visible.Micros) != c.At || c.ID < 1 {
		return nil, refuse("was not made by this server")
	}
	if c.Filter != filterOf(p) {
		return nil, refuse("is of a list with other parameters")
	}
	return &admin.Cursor{At: at, Seq: c.ID}, nil
}

// GetAdminEventProof sends the proof of an administrative event.
func (s *Server) GetAdminEventProof(ctx context.Context, in GetAdminEventProofRequestObject) (GetAdminEventProofResponseObject, error) {
	id, err := strconv.ParseInt(in.EventID, 10, 64)
	if err != nil || strconv.FormatInt(id, 10) != in.EventID {
		return nil, fault.New(fault.UnknownEvent, "there is no event %s", problem.Clip(in.EventID))
	}
	if err := callFrom(ctx).reserve(proofPrice * admin.MaxData); err != nil {
		return nil, err
	}
	proof, err := s.cfg.TransparencyLog.ProveAdmin(ctx, id)
	return pageAnswer(callFrom(ctx).request, content.NewPage("application/json", proof, problem.CSP), err)
}

// recordDownload records that the caller gets a file of another client's exec. If it fails, nothing may be sent. Execs of the caller itself need no
// event, so that workers never wait for one.
func (s *Server) recordDownload(ctx context.Context, rec audit.Record, what, path string) error {
	call := callFrom(ctx)
	if call.request.Method == http.MethodHead {
		return nil
	}
	return s.execs.RecordDownload(ctx, call.caller, rec, what, path)
}
