package runner

import (
	"context"

	"secbox/fault"
)

// register stores the callback of a request, before the row of its exec: then the transaction that
// ends the row finds it.
func (r *Runner) register(ctx context.Context, req Request, execID string) error {
	if req.CallbackURL == "" {
		return nil
	}
	return r.cfg.Callbacks.Register(ctx, execID, req.RequestedBy, req.CallbackURL)
}

// forget removes the callback of an exec that got no row, because another has its key or for an
// error. While it is unknown whether there is a row, the callback stays; package webhooks removes
// it later if there is none.
func (r *Runner) forget(ctx context.Context, req Request, execID string, err error) {
	if req.CallbackURL == "" || fault.Is(err, fault.DatabaseUnavailable) {
		return
	}
	if err := r.cfg.Callbacks.Forget(ctx, execID); err != nil {
		r.cfg.Logger.Warn("cannot remove the callback of a request that was refused; it is removed later", "exec_id", execID, "error", err)
	}
}
