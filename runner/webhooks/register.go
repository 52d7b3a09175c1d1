package webhooks

import (
	"context"
	"strings"

	"secbox/fault"
)

// Registry registers callbacks of execs, and tells how they went. It is safe for concurrent use.
type Registry struct {
	Policy  Policy
	Store   Store
	Secrets Secrets
	Limits  Limits
}

// NoCallback is the callback_url of a request without a webhook, although its token has a default
// address.
const NoCallback = "none"

// Resolve returns the address for the webhook of a request's exec: the callback_url of the request,
// else the default address of its token, else "". It fails if the address is not allowed.
func (r Registry) Resolve(ctx context.Context, requestedBy, url string) (string, error) {
	switch {
	case url == NoCallback, url == "" && !r.Policy.On():
		return "", nil
	case url != "":
		return url, r.check(ctx, requestedBy, url)
	}
	stored, err := r.Store.Default(ctx, requestedBy)
	if err != nil || stored == "" {
		return "", err
	}
	url, err = r.Secrets.openQuery(requestedBy, stored)
	if err == nil {
		_, err = r.Policy.Check(url)
	}
	if err != nil {
		return "", fault.BadField("callback_url", "is missing, and the token's default address is refused now: %s; set another one with "+
			"PUT /webhooks/default, or send %q", fault.From(err).Message, NoCallback)
	}
	return url, nil
}

// check returns why a token may not use an address.
func (r Registry) check(ctx context.Context, requestedBy, url string) error {
	if _, err := r.Policy.Check(url); err != nil {
		return err
	}
	has, err := r.Secrets.exist(ctx, requestedBy)
	if err == nil && !has {
		err = fault.BadField("callback_url", "needs a secret that signs the webhook; make one with POST /webhooks/secret")
	}
	return err
}

// SetDefault sets the default address of a token, or removes it if it is empty.
func (r Registry) SetDefault(ctx context.Context, requestedBy, url string) error {
	if url == "" {
		stored, err := r.Store.Default(ctx, requestedBy)
		if err != nil || stored == "" {
			return err
		}
		return r.Store.SetDefault(ctx, requestedBy, "", "")
	}
	if err := r.check(ctx, requestedBy, url); err != nil {
		return err
	}
	host, err := r.Policy.Check(url)
	if err != nil {
		return err
	}
	stored, err := r.Store.Default(ctx, requestedBy)
	if err != nil {
		return err
	}
	if now, err := r.Secrets.openQuery(requestedBy, stored); err == nil && now == url && (now != stored || !strings.Contains(url, "?")) {
		return nil // sealed again, it would be another text; an older version has stored its query in clear text
	}
	return r.Store.SetDefault(ctx, requestedBy, r.Secrets.sealQuery(requestedBy, url), host)
}

// Default returns the default address of a token, to be shown without its query; empty if it has
// none.
func (r Registry) Default(ctx context.Context, requestedBy string) (string, error) {
	return r.Store.Default(ctx, requestedBy)
}

// NewSecret makes a secret for a token and returns it; replaced is set if it had one. It is not
// shown again. fault.InvalidRequest while webhooks are off.
func (r Registry) NewSecret(ctx context.Context, requestedBy string) (secret string, replaced bool, err error) {
	if !r.Policy.On() {
		return "", false, fault.New(fault.InvalidRequest, "webhooks are off; the setting webhooks.allow names the hosts that they may call")
	}
	if replaced, err = r.Secrets.exist(ctx, requestedBy); err == nil {
		secret, err = r.Secrets.create(ctx, requestedBy)
	}
	return secret, replaced, err
}

// Register stores the callback of an exec, before its row.
func (r Registry) Register(ctx context.Context, execID, requestedBy, url string) error {
	host, err := r.Policy.Check(url)
	if err != nil {
		return err
	}
	return r.Store.Register(ctx, Delivery{
		ExecID: execID, RequestedBy: requestedBy, Host: host, URL: r.Secrets.sealQuery(execID, url),
		State: Open,
	}, r.Limits)
}

// Forget removes the callback of an exec that got no row.
func (r Registry) Forget(ctx context.Context, execID string) error {
	return r.Store.Forget(ctx, execID)
}

// Delivery returns the delivery of an exec; nil if it has none.
func (r Registry) Delivery(ctx context.Context, execID string) (*Delivery, error) {
	return r.Store.Delivery(ctx, execID)
}
