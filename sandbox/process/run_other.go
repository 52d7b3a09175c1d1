//go:build !linux

package process

import (
	"context"

	"secbox/sandbox/search"
)

// Main searches and does not return, if this process was started to do that. It keeps inherited
// file descriptors from commands. A program with Processes must call it first.
func Main() {
	closeOnExec()
	search.Main()
}

// system is the part of Processes that only Linux has.
type system struct{}

func (system) close() {}

func (p *Processes) runHere(ctx context.Context, spec Spec) (*Result, error) {
	return p.runTree(ctx, spec)
}
