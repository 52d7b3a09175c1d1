package engine

// Tend looks over what waits, as the refiller does every few seconds.
func (p *Pool) Tend() { p.tend() }
