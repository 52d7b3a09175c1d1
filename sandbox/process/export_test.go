//go:build linux

package process

// NewGroups makes Processes that run commands as systems without workers do.
func NewGroups() *Processes {
	p := New()
	p.run = p.runTree
	return p
}

// Idle is how many workers wait for a command.
func Idle(p *Processes) int {
	p.system.mu.Lock()
	defer p.system.mu.Unlock()
	return len(p.system.idle)
}
