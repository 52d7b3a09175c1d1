package tools

import "context"

// Caller is what a tool asks of its caller while it works. All fields may be nil.
type Caller struct {
	// Progress is called now and then, by one goroutine, with the latest output of a command that
	// runs.
	Progress func(output string)

	// Reserve counts bytes of memory before they are used, until the result is sent. Its error ends
	// the call.
	Reserve func(bytes int64) error

	// Request ends when the caller has gone, and reading and computing with it. Commands go on, and
	// a change that has begun is made.
	Request context.Context
}

type callerKey struct{}

// WithCaller attaches the caller to the context of a call.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

func callerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// present returns a context that also ends when the caller has gone. The caller must call release.
func (c Caller) present(ctx context.Context) (_ context.Context, release func()) {
	if c.Request == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.Request, func() { cancel(context.Cause(c.Request)) })
	return ctx, func() { stop(); cancel(nil) }
}

func (c Caller) reserve(bytes int64) error {
	if c.Reserve == nil {
		return nil
	}
	return c.Reserve(bytes)
}
