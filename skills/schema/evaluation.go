package schema

import (
	"context"
	"errors"
	"io"
	"regexp"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// evaluation is one validation of a value by a compiled schema. Each step is paid in advance from
// its budget, and it ends when its context does. It needs little memory: it keeps nothing of values
// that fit, and explains no more than a report holds.
type evaluation struct {
	ctx      context.Context
	programs map[string]int // instructions, by pattern

	work      int64 // the budget of a run
	left      int64 // of it
	unchecked int64 // spent since ctx was checked
	depth     int   // of schemas being applied

	scheduler         *scheduler // nil: it never queues
	slices            int        // up to freeSlices
	admitted, running bool       // its places in the scheduler
	refused           bool       // it must end: too many validations are long
}

// The costs of steps, in units of maxWork.
const (
	costOfSchema = 500     // applying a schema, empty ones included
	costOfName   = 16      // looking up a name in an object
	checkEvery   = 1 << 20 // a slice, after which ctx is checked
	matchEvery   = 1 << 17 // a slice of a long match, whose units are slower
	maxApplied   = 5_000   // schemas within schemas
)

// errStopped is the panic that ends an evaluation early.
var errStopped = errors.New("too much work")

// run applies the schema with a new budget; done reports whether the budget sufficed. r collects
// the findings; nil: only the verdict is wanted.
func (e *evaluation) run(s *jsonschema.Schema, value any, r *report) (fits, done bool) {
	defer func() {
		if p := recover(); p != nil {
			if p != any(errStopped) {
				panic(p)
			}
			fits, done = false, false
		}
	}()
	e.left, e.depth = e.work, 0
	e.check()
	return e.apply(s, value, nil, r, nil), true
}

func (e *evaluation) spend(units int) {
	e.left -= int64(units)
	e.unchecked += int64(units)
	if e.left < 0 {
		panic(errStopped)
	}
	if e.unchecked > checkEvery {
		e.check()
	}
}

func (e *evaluation) check() {
	e.unchecked = 0
	if !e.nextSlice() {
		panic(errStopped)
	}
}

// application is a schema and the value that it is applied to.
type application struct {
	*evaluation
	s         *jsonschema.Schema
	v         any
	evaluated *partSet // the parts of v that some schema has evaluated; nil: not tracked
	r         *report  // nil: only the verdict is wanted
	path      []string // of v, for the report
}

// apply reports whether the value fits the schema, and if so adds the parts that the schema
// evaluated to the set.
func (e *evaluation) apply(s *jsonschema.Schema, v any, to *partSet, r *report, path []string) bool {
	if r.full() {
		return false
	}
	if e.depth++; e.depth > maxApplied {
		panic(errStopped)
	}
	e.spend(costOfSchema)
	a := application{e, s, v, to, r, path}
	fits := a.fits(to)
	e.depth--
	return fits
}

func (a *application) fits(to *partSet) bool {
	s := a.s
	switch {
	case s.Always != nil && *s.Always:
		return true
	case s.Always != nil:
		return a.fail()
	case !a.hasType():
		return a.fail("type")
	}
	fresh := s.UnevaluatedProperties != nil || s.UnevaluatedItems != nil // parts evaluated by outer schemas do not count here
	if fresh {
		a.evaluated = a.newPartSet(a.v)
	}
	fits := true
	for group := range keywordGroups {
		if !a.keywords(group) {
			if fits = false; a.r == nil {
				return false
			}
		}
	}
	if fits && fresh {
		to.merge(a.evaluated)
	}
	return fits
}

// keywordGroups are evaluated in this order: unevaluated needs the results of the others.
const keywordGroups = 9

// keywords is a switch, not a list of functions: indirect calls would move every application to the
// heap.
func (a *application) keywords(group int) bool {
	switch group {
	case 0:
		return a.values()
	case 1:
		return a.text()
	case 2:
		return a.number()
	case 3:
		return a.object()
	case 4:
		return a.array()
	case 5:
		return a.refs()
	case 6:
		return a.combined()
	case 7:
		return a.conditional()
	}
	return a.unevaluated()
}

// applyPart applies a schema to a part of the value.
func (a *application) applyPart(s *jsonschema.Schema, part any, token string) bool {
	return a.apply(s, part, nil, a.r, a.r.below(a.path, token))
}

// applyHere applies a schema that must fit to the same value; nil fits.
func (a *application) applyHere(s *jsonschema.Schema) bool {
	return s == nil || a.apply(s, a.v, a.evaluated, a.r, a.path)
}

// matches reports whether a schema that need not fit does so.
func (a *application) matches(s *jsonschema.Schema) bool {
	tried := a.evaluated.empty()
	a.spend(tried.words())
	fits := a.apply(s, a.v, tried, nil, nil)
	if fits {
		a.evaluated.merge(tried)
	}
	return fits
}

// fail reports a keyword of the schema, or without one that the schema is false.
func (a *application) fail(keyword ...string) bool {
	if a.r != nil {
		a.r.keyword(a, keyword)
	}
	return false
}

// match costs the instructions of the program times the bytes of the text. A long match ends with
// the context.
func (e *evaluation) match(re *regexp.Regexp, text string) bool {
	const long = 1 << 22
	program := e.programs[re.String()]
	cost := program * len(text)
	e.spend(costOfName + cost)
	if cost < long {
		return re.MatchString(text)
	}
	matched := re.MatchReader(&interruptible{e: e, rest: text, every: matchEvery/program + 1})
	e.check()
	return matched
}

// interruptible is a text that seems to end when the evaluation must.
type interruptible struct {
	e     *evaluation
	rest  string
	read  int // runes
	every int // runes per slice
}

// ReadRune implements io.RuneReader.
func (t *interruptible) ReadRune() (rune, int, error) {
	if t.read++; t.read%t.every == 0 && !t.e.nextSlice() {
		t.rest = ""
	}
	if t.rest == "" {
		return 0, 0, io.EOF
	}
	c, size := utf8.DecodeRuneInString(t.rest)
	t.rest = t.rest[size:]
	return c, size, nil
}
