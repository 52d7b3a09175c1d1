package api

import (
	"context"
	"encoding/json"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/webhooks"
)

// GetWebhookDefault sends the default address of the caller's token.
func (s *Server) GetWebhookDefault(ctx context.Context, _ GetWebhookDefaultRequestObject) (GetWebhookDefaultResponseObject, error) {
	url, err := s.cfg.Webhooks.Default(ctx, callFrom(ctx).caller.ID)
	return GetWebhookDefault200JSONResponse{CallbackURL: new(webhooks.WithoutQuery(url))}, err
}

// SetWebhookDefault sets the default address of the caller's token.
func (s *Server) SetWebhookDefault(ctx context.Context, in SetWebhookDefaultRequestObject) (SetWebhookDefaultResponseObject, error) {
	if in.Body.CallbackURL == nil {
		return nil, fault.BadField("callback_url", "is missing; an empty one ends the default address")
	}
	token, url := callFrom(ctx).caller.ID, *in.Body.CallbackURL
	before, err := s.cfg.Webhooks.Default(ctx, token)
	if err == nil && before != url { // the same address leaves no event
		err = s.checkWebhookChange(token)
	}
	if err == nil {
		err = s.cfg.Webhooks.SetDefault(ctx, token, url)
	}
	return SetWebhookDefault200JSONResponse{CallbackURL: new(webhooks.WithoutQuery(url))}, err
}

// NewWebhookSecret makes a secret for the caller's token.
func (s *Server) NewWebhookSecret(ctx context.Context, _ NewWebhookSecretRequestObject) (NewWebhookSecretResponseObject, error) {
	if callFrom(ctx).request.ContentLength != 0 {
		return nil, fault.New(fault.InvalidRequest, "this route takes no body")
	}
	token := callFrom(ctx).caller.ID
	if err := s.checkWebhookChange(token); err != nil {
		return nil, err
	}
	secret, err := s.cfg.Webhooks.NewSecret(ctx, token)
	return NewWebhookSecret200JSONResponse{Secret: secret, PreviousValidUntil: Timestamp(s.cfg.Now().Add(webhooks.KeepSecret))}, err
}

// checkWebhookChange refuses a change of the webhooks of a token that has made too many: their events stay for ever, and would hide others.
func (s *Server) checkWebhookChange(token string) error {
	now := s.cfg.Now()
	s.webhookChanges.Counts(now) // drops the buckets of tokens that have made none lately
	if s.webhookChanges.Take(token, now) {
		return nil
	}
	e := fault.New(fault.TooManyChanges, "this token may make %d secrets and changes of its default address at once, and then %.0f a minute, because each leaves an event; try again later",
		s.webhookChanges.Rate.Burst, s.webhookChanges.Rate.PerMinute)
	e.RetryAfter = time.Duration(float64(time.Minute) / s.webhookChanges.Rate.PerMinute)
	return e
}

// GetCallback sends the delivery of an exec.
func (s *Server) GetCallback(ctx context.Context, in GetCallbackRequestObject) (GetCallbackResponseObject, error) {
	rec, err := s.record(ctx, in.ExecID)
	if err != nil {
		return nil, err
	}
	d, err := s.cfg.Webhooks.Delivery(ctx, rec.ExecID)
	if err != nil {
		return nil, err
	}
	out := GetCallback200JSONResponse{ExecID: rec.ExecID, State: CallbackStateNone, Tries: []CallbackTry{}}
	if d == nil {
		return out, nil
	}
	out.URL = webhooks.WithoutQuery(d.URL)
	out.State, out.Attempts, out.NextAt = CallbackState(d.State), int64(d.Attempts), timestamp(d.NextAt)
	for _, try := range d.Tries {
		out.Tries = append(out.Tries, CallbackTry{At: Timestamp(try.At), StatusCode: int64(try.Status), Error: try.Error, DurationMS: try.MS})
	}
	return out, nil
}

// CallbackBody is the body of a webhook: an event with the state of an exec.
func CallbackBody(rec audit.Record) []byte {
	text, err := json.Marshal(struct {
		Type      string    `json:"type"`
		Timestamp time.Time `json:"timestamp"`
		Data      ExecState `json:"data"`
	}{"exec.ended", rec.EndedAt, execState(rec)})
	if err != nil {
		panic(err) // strings, numbers and times
	}
	return text
}
