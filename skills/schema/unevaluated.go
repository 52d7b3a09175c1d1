package schema

import (
	"math"
	"strconv"
)

func (a *application) unevaluated() bool {
	s, fits := a.s, true
	switch v := a.v.(type) {
	case map[string]any:
		if s.UnevaluatedProperties == nil {
			return true
		}
		for name := range names(a, v) {
			if !a.seen.hasName(name) {
				fits = a.below(s.UnevaluatedProperties, v[name], name) && fits
			}
		}
		a.seen.all()
	case []any:
		if s.UnevaluatedItems == nil {
			return true
		}
		for n, item := range v {
			if !a.seen.hasItem(n) {
				fits = a.below(s.UnevaluatedItems, item, strconv.Itoa(n)) && fits
			}
		}
		a.seen.all()
	}
	return fits
}

// seen says which properties of an object or items of a list some schema has looked at. All methods may be called on nil.
type seen struct {
	places map[string]int // of an object's properties
	bits   []uint64
}

func (e *evaluation) newSeen(v any) *seen {
	s := &seen{}
	n := 0
	switch v := v.(type) {
	case map[string]any:
		n = len(v)
		e.spend(10 * costOfName * n)
		s.places = make(map[string]int, n)
		for name := range v {
			s.places[name] = len(s.places)
		}
	case []any:
		n = len(v)
	}
	e.spend(n / 64)
	s.bits = make([]uint64, (n+63)/64)
	return s
}

// empty is for the same value, with nothing looked at.
func (s *seen) empty() *seen {
	if s == nil {
		return nil
	}
	return &seen{s.places, make([]uint64, len(s.bits))}
}

func (s *seen) len() int {
	if s == nil {
		return 0
	}
	return 64 * len(s.bits)
}

func (s *seen) item(n int) {
	if s != nil {
		s.bits[n/64] |= 1 << (n % 64)
	}
}

func (s *seen) name(name string) {
	if s != nil {
		s.item(s.places[name])
	}
}

func (s *seen) hasItem(n int) bool { return s.bits[n/64]&(1<<(n%64)) != 0 }

func (s *seen) hasName(name string) bool { return s.hasItem(s.places[name]) }

func (s *seen) all() {
	if s != nil {
		for n := range s.bits {
			s.bits[n] = math.MaxUint64
		}
	}
}

// merge adds what other has.
func (s *seen) merge(other *seen) {
	if s != nil {
		for n := range s.bits {
			s.bits[n] |= other.bits[n]
		}
	}
}
