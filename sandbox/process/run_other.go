//go:build !linux

package process

import "context"

// Main keeps from commands what this program was given. It is the first thing that a program with Processes does.
func Main() { closeOnExec() }

// system is what Processes hold besides; nothing here.
type system struct{}

func (system) close() {}

func (p *Processes) runHere(ctx context.Context, spec Spec) (*Result, error) {
	return p.runTree(ctx, spec)
}
