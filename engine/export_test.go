package engine

// Tick is how often what waits is looked over, and how soon a project that could not be prepared is tried again.
const Tick = tick

// Evict looks over what waits, as the refiller does every few seconds.
func (p *Pool) Evict() { p.evict() }

// Answered reports whether a container that waits has shown that its init answers.
func (p *Pool) Answered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.buckets {
		for _, slot := range s.slots {
			if len(slot.answers) > 0 {
				return true
			}
		}
	}
	return false
}
