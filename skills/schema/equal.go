package schema

import (
	"encoding/binary"
	"encoding/json"
	"hash/maphash"
	"maps"
	"slices"
)

// equal compares two JSON values as JSON Schema does: numbers by value.
func (e *evaluation) equal(a, b any) bool {
	e.spend(4)
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		e.spend(min(len(a), len(b)) / 8)
		return ok && a == b
	case json.Number:
		b, ok := b.(json.Number)
		return ok && (a == b || e.rat(a).Cmp(e.rat(b)) == 0)
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for n := range a {
			if !e.equal(a[n], b[n]) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, one := range a {
			e.spend(costOfName)
			if other, ok := b[name]; !ok || !e.equal(one, other) {
				return false
			}
		}
		return true
	}
	return a == b // nil or a boolean
}

// unique reports whether no two items are equal. The seed of the hash is random, so that a client
// cannot construct collisions.
func (e *evaluation) unique(list []any) bool {
	var h maphash.Hash
	known := make(map[uint64][]int, len(list))
	for n, item := range list {
		h.Reset()
		e.hash(&h, item)
		sum := h.Sum64()
		for _, other := range known[sum] {
			if e.equal(item, list[other]) {
				return false
			}
		}
		known[sum] = append(known[sum], n)
	}
	return true
}

// hash writes a value unambiguously: each part with its kind and length.
func (e *evaluation) hash(h *maphash.Hash, v any) {
	frame := func(kind byte, length int) {
		_ = h.WriteByte(kind)
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(length)))
	}
	text := func(kind byte, s string) {
		e.spend(len(s) / 4)
		frame(kind, len(s))
		_, _ = h.WriteString(s)
	}
	e.spend(32)
	switch v := v.(type) {
	case nil:
		frame('n', 0)
	case bool:
		if frame('b', 0); v {
			frame('t', 0)
		}
	case json.Number:
		text('0', e.rat(v).RatString())
	case string:
		text('s', v)
	case []any:
		frame('[', len(v))
		for _, item := range v {
			e.hash(h, item)
		}
	case map[string]any:
		frame('{', len(v))
		e.spend(10 * costOfName * len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			text('s', name)
			e.hash(h, v[name])
		}
	}
}
