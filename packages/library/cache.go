package library

import "sync"

// digestCache remembers values by two strings, such as skill id and digest, up to a total weight.
type digestCache[V any] struct {
	most  int
	weigh func(V) int

	mu     sync.Mutex
	known  map[[2]string]V
	weight int
}

func newDigestCache[V any](most int, weigh func(V) int) *digestCache[V] {
	return &digestCache[V]{most: most, weigh: weigh, known: map[[2]string]V{}}
}

func (c *digestCache[V]) get(skillID, digest string) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.known[[2]string{skillID, digest}]
	return v, ok
}

// put adds a value, unless the digest is empty, and drops others at random while the cache is too
// heavy.
func (c *digestCache[V]) put(skillID, digest string, v V) {
	if digest == "" {
		return
	}
	key := [2]string{skillID, digest}
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, ok := c.known[key]; ok {
		c.weight -= c.weigh(before)
	}
	c.known[key] = v
	c.weight += c.weigh(v)
	for other, one := range c.known {
		if c.weight <= c.most {
			return
		}
		if other != key {
			c.weight -= c.weigh(one)
			delete(c.known, other)
		}
	}
}
