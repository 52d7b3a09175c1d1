//go:build linux

package process

import "time"

// NewGroups makes Processes that run commands without workers.
func NewGroups() *Processes {
	p := New()
	p.run = p.runTree
	return p
}

// SetKillTimeout sets how long Processes wait for the death of a killed command.
func SetKillTimeout(p *Processes, killTimeout time.Duration) { p.killTimeout = killTimeout }

// Idle returns the number of idle workers.
func Idle(p *Processes) int {
	p.system.mu.Lock()
	defer p.system.mu.Unlock()
	return len(p.system.idle)
}

// Age makes the idle workers older by d, and dismisses those that are too old.
func Age(p *Processes, d time.Duration) {
	p.system.mu.Lock()
	for _, w := range p.system.idle {
		w.since = w.since.Add(-d)
	}
	p.system.mu.Unlock()
	p.system.dismissOld()
}

// KillIdle kills the idle workers, and returns when they are dead.
func KillIdle(p *Processes) {
	p.system.mu.Lock()
	defer p.system.mu.Unlock()
	for _, w := range p.system.idle {
		_ = w.process.Kill()
		<-w.died
	}
}
