package webhooks

import (
	"maps"
	"slices"
	"sync"
)

// Bounds of the tries that a node makes at once. No token has all of them, nor all of a host, so
// that one whose services do not answer delays no other.
const (
	atOnce       = 128
	perToken     = 64
	perHost      = 4
	perTokenHost = 3
)

// turns decides whose delivery is tried next. The token with the fewest tries in progress comes
// first, and of several the one whose turn was longest ago. Of its hosts, those that it does not
// call now come first. It is safe for concurrent use.
type turns struct {
	mu     sync.Mutex
	due    map[string][]string // tokens with due deliveries, each with the only hosts that these may have; nil: any
	tokens map[string]load
	hosts  map[string]map[string]int // tries in progress by host and token
	tries  int                       // all of them
	turn   uint64                    // the last one
}

func newTurns() *turns {
	return &turns{tokens: map[string]load{}, hosts: map[string]map[string]int{}}
}

// load is how many tries of a token are in progress, and when it had its last turn.
type load struct {
	tries int
	turn  uint64
}

func (l load) before(other load) bool {
	return l.tries < other.tries || l.tries == other.tries && l.turn < other.turn
}

// setDue sets which tokens have due deliveries.
func (t *turns) setDue(tokens []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.due = map[string][]string{}
	for _, token := range tokens {
		t.due[token] = nil
	}
	maps.DeleteFunc(t.tokens, func(token string, l load) bool {
		_, due := t.due[token]
		return !due && l.tries == 0
	})
}

// next returns the token whose turn it is, and the hosts that are not to be called for it now;
// false: no try may begin.
func (t *turns) next() (token string, except []string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tries >= atOnce {
		return "", nil, false
	}
	for other, within := range t.due {
		l := t.tokens[other]
		if l.tries >= perToken || ok && !l.before(t.tokens[token]) {
			continue
		}
		full, busy := t.occupied(other)
		beyond := func(hosts []string) bool {
			return slices.ContainsFunc(within, func(host string) bool { return !slices.Contains(hosts, host) })
		}
		if called := append(busy, full...); within == nil || beyond(called) {
			token, except, ok = other, called, true
		} else if beyond(full) {
			token, except, ok = other, full, true
		}
	}
	return token, except, ok
}

// occupied returns the hosts that have no place for a token, and the hosts that it calls already,
// in all spellings of stored deliveries.
func (t *turns) occupied(token string) (full, busy []string) {
	for host, tokens := range t.hosts {
		all := 0
		for _, n := range tokens {
			all += n
		}
		switch mine := tokens[token]; {
		case all >= perHost || mine >= perTokenHost:
			full = append(full, host)
		case mine > 0:
			busy = append(busy, host)
		}
	}
	return storedHosts(full), storedHosts(busy)
}

// none notes that a token has no due delivery but to these hosts. This holds until the next look.
func (t *turns) none(token string, but []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(but) == 0 {
		delete(t.due, token)
		return
	}
	t.due[token] = but
}

// begin counts a try; the caller must call end.
func (t *turns) begin(token, host string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hosts[host] == nil {
		t.hosts[host] = map[string]int{}
	}
	t.turn++
	t.tries++
	t.tokens[token] = load{t.tokens[token].tries + 1, t.turn}
	t.hosts[host][token]++
}

func (t *turns) end(token, host string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tries--
	t.tokens[token] = load{t.tokens[token].tries - 1, t.tokens[token].turn}
	if t.hosts[host][token]--; t.hosts[host][token] == 0 {
		delete(t.hosts[host], token)
	}
	if len(t.hosts[host]) == 0 {
		delete(t.hosts, host)
	}
}
