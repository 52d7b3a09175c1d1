package lifecycle

// Awaited is how many commands are awaited.
func (c *Commands) Awaited() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.awaited)
}
