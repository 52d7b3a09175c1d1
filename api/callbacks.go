package api

import (
	"context"
	"encoding/json"
	"time"

	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
	"secbox/runner/webhooks"
)

// GetWebhookDefault sends the default address of the caller's token.
func (s *Server) GetWebhookDefault(ctx context.Context, _ wire.GetWebhookDefaultRequestObject) (wire.GetWebhookDefaultResponseObject,
	error,
) {
	url, err := s.cfg.Webhooks.Default(ctx, callFrom(ctx).caller.ID)
	return wire.GetWebhookDefault200JSONResponse{CallbackURL: new(webhooks.WithoutQuery(url))}, err
}

// SetWebhookDefault sets the default address of the caller's token.
func (s *Server) SetWebhookDefault(ctx context.Context, in wire.SetWebhookDefaultRequestObject) (wire.SetWebhookDefaultResponseObject,
	error,
) {
	if in.Body.CallbackURL == nil {
		return nil, fault.BadField("callback_url", "is missing; an empty one ends the default address")
	}
	url := *in.Body.CallbackURL
	err := s.cfg.Webhooks.SetDefault(ctx, callFrom(ctx).caller.ID, url)
	return wire.SetWebhookDefault200JSONResponse{CallbackURL: new(webhooks.WithoutQuery(url))}, err
}

// NewWebhookSecret makes a secret for the caller's token.
func (s *Server) NewWebhookSecret(ctx context.Context, _ wire.NewWebhookSecretRequestObject) (wire.NewWebhookSecretResponseObject, error) {
	if callFrom(ctx).request.ContentLength != 0 {
		return nil, fault.New(fault.InvalidRequest, "this route takes no body")
	}
	secret, replaced, err := s.cfg.Webhooks.NewSecret(ctx, callFrom(ctx).caller.ID)
	out := wire.NewWebhookSecret200JSONResponse{Secret: secret}
	if replaced {
		out.PreviousValidUntil = new(visible.Timestamp(s.cfg.Now().Add(webhooks.KeepSecret)))
	}
	return out, err
}

// GetCallback sends the delivery of an exec.
func (s *Server) GetCallback(ctx context.Context, in wire.GetCallbackRequestObject) (wire.GetCallbackResponseObject, error) {
	rec, err := s.record(ctx, in.ExecID)
	if err != nil {
		return nil, err
	}
	d, err := s.cfg.Webhooks.Delivery(ctx, rec.ExecID)
	if err != nil {
		return nil, err
	}
	out := wire.GetCallback200JSONResponse{ExecID: rec.ExecID, State: wire.CallbackStateNone, Tries: []wire.CallbackTry{}}
	if d == nil {
		return out, nil
	}
	out.URL = webhooks.WithoutQuery(d.URL)
	out.State, out.Attempts, out.NextAt = wire.CallbackState(d.Now()), int64(d.Attempts), timestamp(d.NextAt)
	for _, try := range d.Tries {
		out.Tries = append(out.Tries, wire.CallbackTry{
			At: visible.Timestamp(try.At), StatusCode: int64(try.Status), Error: try.Error,
			DurationMS: try.MS,
		})
	}
	return out, nil
}

// CallbackBody is the body of a webhook: an event with the state of an exec.
func CallbackBody(rec audit.Record) []byte {
	text, err := json.Marshal(struct {
		Type      string         `json:"type"`
		Timestamp time.Time      `json:"timestamp"`
		Data      wire.ExecState `json:"data"`
	}{"exec.ended", rec.EndedAt, execState(rec)})
	if err != nil {
		panic(err) // strings, numbers and times
	}
	return text
}
