//go:build !linux

package process

import "context"

// Main keeps inherited file descriptors from commands. A program with Processes must call it first.
func Main() { closeOnExec() }

// system is the part of Processes that only Linux has.
type system struct{}

func (system) close() {}

func (p *Processes) runHere(ctx context.Context, spec Spec) (*Result, error) {
	return p.runTree(ctx, spec)
}
