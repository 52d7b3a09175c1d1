//go:build linux

package process

import "time"

// NewGroups makes Processes that run commands as systems without workers do.
func NewGroups() *Processes {
	p := New()
	p.run = p.runTree
	return p
}

// HurriedBy makes Processes give up sooner what cannot be killed.
func HurriedBy(p *Processes, patience time.Duration) { p.patience = patience }

// Idle is how many workers wait for a command.
func Idle(p *Processes) int {
	p.system.mu.Lock()
	defer p.system.mu.Unlock()
	return len(p.system.idle)
}

// Later makes the workers that wait be ones that have waited for d, and has those go that have waited too long.
func Later(p *Processes, d time.Duration) {
	p.system.mu.Lock()
	for _, w := range p.system.idle {
		w.since = w.since.Add(-d)
	}
	p.system.mu.Unlock()
	p.system.dismissOld()
}

// KillIdle kills the workers that wait, as somebody else may, and returns when they are dead.
func KillIdle(p *Processes) {
	p.system.mu.Lock()
	defer p.system.mu.Unlock()
	for _, w := range p.system.idle {
		_ = w.process.Kill()
		<-w.died
	}
}
