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
			if !a.evaluated.hasName(name) {
				fits = a.applyPart(s.UnevaluatedProperties, v[name], name) && fits
			}
		}
		a.evaluated.markAll()
	case []any:
		if s.UnevaluatedItems == nil {
			return true
		}
		for n, item := range v {
			if !a.evaluated.hasItem(n) {
				fits = a.applyPart(s.UnevaluatedItems, item, strconv.Itoa(n)) && fits
			}
		}
		a.evaluated.markAll()
	}
	return fits
}

// partSet is a set of properties of one object, or of items of one list: those that some schema has
// evaluated. All methods but the has methods may be called on nil.
type partSet struct {
	indexes map[string]int // of an object's properties
	bits    []uint64
}

func (e *evaluation) newPartSet(v any) *partSet {
	s := &partSet{}
	n := 0
	switch v := v.(type) {
	case map[string]any:
		n = len(v)
		e.spend(10 * costOfName * n)
		s.indexes = make(map[string]int, n)
		for name := range v {
			s.indexes[name] = len(s.indexes)
		}
	case []any:
		n = len(v)
	}
	e.spend(n / 64)
	s.bits = make([]uint64, (n+63)/64)
	return s
}

// empty returns an empty set for the same value.
func (s *partSet) empty() *partSet {
	if s == nil {
		return nil
	}
	return &partSet{s.indexes, make([]uint64, len(s.bits))}
}

func (s *partSet) words() int {
	if s == nil {
		return 0
	}
	return len(s.bits)
}

func (s *partSet) markItem(n int) {
	if s != nil {
		s.bits[n/64] |= 1 << (n % 64)
	}
}

func (s *partSet) markName(name string) {
	if s != nil {
		s.markItem(s.indexes[name])
	}
}

func (s *partSet) markAll() {
	if s != nil {
		for n := range s.bits {
			s.bits[n] = math.MaxUint64
		}
	}
}

func (s *partSet) hasItem(n int) bool { return s.bits[n/64]&(1<<(n%64)) != 0 }

func (s *partSet) hasName(name string) bool { return s.hasItem(s.indexes[name]) }

// merge adds the parts of other.
func (s *partSet) merge(other *partSet) {
	if s != nil {
		for n := range s.bits {
			s.bits[n] |= other.bits[n]
		}
	}
}
