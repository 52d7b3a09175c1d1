package row

import "sync/atomic"

// Watch lets tests see which statements run.
type Watch struct {
	see atomic.Pointer[func(statement string, args []any)]
}

// Begin calls see with each statement from now on, until end is called. Calls may be concurrent.
func (w *Watch) Begin(see func(statement string, args []any)) (end func()) {
	w.see.Store(&see)
	return func() { w.see.Store(nil) }
}

// Saw tells that a statement runs.
func (w *Watch) Saw(statement string, args []any) {
	if see := w.see.Load(); see != nil {
		(*see)(statement, args)
	}
}
