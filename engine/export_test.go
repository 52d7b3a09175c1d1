package engine

// Tick is how often what waits is looked over, and how soon a project that could not be prepared is tried again.
const Tick = tick

// Tend looks over what waits, as the refiller does every few seconds.
func (p *Pool) Tend() { p.tend() }
