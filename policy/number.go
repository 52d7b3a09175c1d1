package policy

import (
	"fmt"
	"math"

	"secbox/fault"
)

// number is a field that a later layer replaces, up to the ceiling.
type number[T int64 | float64] struct {
	common[T, T]
	asked    func(*Limits) **T
	def      T
	follows  func(Values) T // the default by the values of other fields, up to the ceiling; nil: def
	was      T              // in force before the field was added, if it was added later
	ceiling  T              // where the settings set none
	floor    T              // below it a container cannot work
	largest  T              // the highest ceiling that settings may set
	zero     bool           // it may be zero
	floorWhy string
	host     func(Host) T // nil: the host does not bound it
	hostWhy  string       // with a verb for the bound
}

// numeric is number without its type parameter.
type numeric interface {
	field
	defaultCeiling() any
	checkSettings(r *Resolver) []fault.Field
	detach(l *Limits)
	settle(s *Snapshot)       // sets a default that follows other fields, which are final
	before(s *Snapshot)       // sets the value from before the field was added
	askedValue(l *Limits) any // nil: not asked for
	lowerCeiling(s *Snapshot) // to the value
}

func (n number[T]) defaultCeiling() any { return n.ceiling }

func (n number[T]) askedValue(l *Limits) any {
	if p := *n.asked(l); p != nil {
		return *p
	}
	return nil
}

// detach copies the layer's value, so that its caller cannot change it any more.
func (n number[T]) detach(l *Limits) {
	if p := n.asked(l); *p != nil {
		v := **p
		*p = &v
	}
}

func (n number[T]) ask(v *Values, l *Layer) { *n.asked(&l.Limits) = new(*n.value(v)) }

func (number[T]) replaces() bool { return true }

func (n number[T]) check(l *Layer) string {
	p := *n.asked(&l.Limits)
	if p == nil {
		return ""
	}
	f := float64(*p)
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return "must be a number; leave it out for the default"
	case *p < 0 && n.zero:
		return fmt.Sprintf("must not be negative, as %v is; leave it out for the default", *p)
	case *p < 0 || *p == 0 && !n.zero:
		return fmt.Sprintf("must be greater than zero, not %v; leave it out for the default", *p)
	case *p < n.floor && n.floorWhy != "":
		return fmt.Sprintf("must be at least %v, not %v: %s", n.floor, *p, n.floorWhy)
	case *p < n.floor:
		return fmt.Sprintf("must be at least %v, not %v", n.floor, *p)
	}
	return ""
}

// bound is the ceiling under the settings and the host, and which of them set it.
func (n number[T]) bound(r *Resolver, host Host) (T, string) {
	ceiling, from := n.ceiling, LayerDefault
	if p := *n.asked(&r.ceilings); p != nil {
		ceiling, from = *p, LayerSettings
	}
	if n.host != nil {
		if h := n.host(host); h > 0 && h < ceiling {
			ceiling, from = h, CeilingHost
		}
	}
	return ceiling, from
}

func (n number[T]) base(r *Resolver, host Host, s *Snapshot) {
	value, layer := n.def, LayerDefault
	if p := *n.asked(&r.settings.Limits); p != nil {
		value, layer = *p, LayerSettings
	}
	ceiling, from := n.bound(r, host)
	f := Field{Layer: layer, Ceiling: ceiling, CeilingFrom: from}
	if value > ceiling {
		f.ClampedFrom = value
		value = ceiling
	}
	n.set(s, value, f)
}

func (n number[T]) apply(l *Layer, layer string, s *Snapshot) *fault.Field {
	p := *n.asked(&l.Limits)
	if p == nil {
		return nil
	}
	f := s.Fields[n.public]
	ceiling := f.Ceiling.(T)
	if *p > ceiling {
		why := fmt.Sprintf("%v is above the ceiling of %v; %s at most that, or have the operator raise %s%s",
			*p, ceiling, askInstead(layer), ceilingPrefix, n.public)
		if f.CeilingFrom == CeilingHost {
			why = fmt.Sprintf("%v is more than there is: "+n.hostWhy+"; %s at most that", *p, ceiling, askInstead(layer))
		}
		return &fault.Field{Field: n.public, Reason: why, Asked: *p, Ceiling: ceiling, Layer: layer}
	}
	f.Layer, f.ClampedFrom = layer, nil
	n.set(s, *p, f)
	return nil
}

func (n number[T]) settle(s *Snapshot) {
	if f := s.Fields[n.public]; n.follows != nil && f.Layer == LayerDefault {
		n.set(s, min(n.follows(s.Values), f.Ceiling.(T)), f)
	}
}

func (n number[T]) lowerCeiling(s *Snapshot) {
	f := s.Fields[n.public]
	f.Ceiling, f.CeilingFrom = *n.value(&s.Values), CeilingSession
	s.Fields[n.public] = f
}

func (n number[T]) before(s *Snapshot) { n.set(s, n.was, s.Fields[n.public]) }

// checkSettings compares the settings' value and the default with the ceiling.
func (n number[T]) checkSettings(r *Resolver) []fault.Field {
	ceiling, from := n.bound(r, Host{})
	value := *n.asked(&r.settings.Limits)
	bad := func(prefix, format string, args ...any) []fault.Field {
		return []fault.Field{{Field: prefix + n.public, Reason: fmt.Sprintf(format, args...)}}
	}
	switch {
	case ceiling > n.largest:
		return bad(ceilingPrefix, "%v is more than can be enforced; use at most %v", ceiling, n.largest)
	case value != nil && *value > ceiling && from == LayerSettings:
		return bad(settingsPrefix, "%v is above %s%s, which is %v; lower the one or raise the other", *value, ceilingPrefix, n.public,
			ceiling)
	case value != nil && *value > ceiling:
		return bad(settingsPrefix, "%v is above the default ceiling of %v; lower it or set %s%s as well", *value, ceiling, ceilingPrefix,
			n.public)
	case value == nil && n.def > ceiling:
		return bad(ceilingPrefix, "%v is below the default of %v; raise it, or set %s%s to at most %v as well", ceiling, n.def,
			settingsPrefix, n.public, ceiling)
	}
	return nil
}
