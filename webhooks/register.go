package webhooks

import (
	"context"

	"secbox/fault"
)

// Registry registers callbacks of execs, and tells how they went. It is safe for concurrent use.
type Registry struct {
	Policy  Policy
	Store   Store
	Secrets Secrets
	Limits  Limits
}

// Check returns why a request of a token may not have a callback_url.
func (r Registry) Check(ctx context.Context, requestedBy, url string) error {
	if _, err := r.Policy.Check(url); err != nil {
		return err
	}
	has, err := r.Secrets.exist(ctx, requestedBy)
	if err == nil && !has {
		err = fault.BadField("callback_url", "needs a secret that signs the webhook; make one with POST /webhooks/secret")
	}
	return err
}

// NewSecret makes a secret for a token and returns it. It is not shown again. fault.InvalidRequest while webhooks are off.
func (r Registry) NewSecret(ctx context.Context, requestedBy string) (string, error) {
	if !r.Policy.On() {
		return "", fault.New(fault.InvalidRequest, "webhooks are off; the setting webhooks.allow names the hosts that they may call")
	}
	return r.Secrets.create(ctx, requestedBy)
}

// Register stores the callback of an exec, before its row.
func (r Registry) Register(ctx context.Context, execID, requestedBy, url string) error {
	host, err := r.Policy.Check(url)
	if err != nil {
		return err
	}
	return r.Store.Register(ctx, Delivery{ExecID: execID, RequestedBy: requestedBy, Host: host, URL: url, State: Open}, r.Limits)
}

// Forget removes the callback of an exec that got no row.
func (r Registry) Forget(ctx context.Context, execID string) error {
	return r.Store.Forget(ctx, execID)
}

// Delivery returns the delivery of an exec; nil if it has none.
func (r Registry) Delivery(ctx context.Context, execID string) (*Delivery, error) {
	return r.Store.Delivery(ctx, execID)
}
