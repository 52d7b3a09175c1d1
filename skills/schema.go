package skills

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// Bounds of a schema and of one validation by it. A schema is written by somebody who wants a skill to work, but a few lines of it can ask
// for more work than there are atoms, and the library neither bounds that nor can be interrupted.
const (
	maxSubschemas = 2000             // compiling takes the square of it
	maxPattern    = 1000             // bytes of one regular expression; they are RE2's, so linear in the text
	maxSteps      = 1_000_000        // schemas applied to values in one validation
	maxPatience   = 10 * time.Second // of one validation, since a step deep in a value takes the library longer; 4 MiB of plain data take far less, also on a busy machine
)

// schemaURL is the address that the library needs for a schema to refer to itself. Nothing is ever fetched from it.
const schemaURL = "mem:schema"

// dialect is the only one: that of MCP and of this repository.
const dialect = "https://json-schema.org/draft/2020-12/schema"

// validator validates by one schema. It is safe for concurrent use.
type validator struct {
	doc  any // the schema
	pool sync.Pool
}

// counted is a compiled schema that counts its steps, so that only one validation may use it at a time.
type counted struct {
	schema *jsonschema.Schema
	steps  int
	until  time.Time
}

// newValidator compiles a schema that has been read by parse. The findings' paths are relative to it.
func newValidator(doc any, raw []byte) (*validator, []finding) {
	if bad := inspectSchema(doc); len(bad) > 0 {
		return nil, bad
	}
	first, err := compile(raw)
	if err != nil {
		return nil, schemaFindings(err)
	}
	v := &validator{doc: doc}
	v.pool.New = func() any {
		again, err := compile(raw)
		if err != nil {
			return nil // cannot be: it did compile
		}
		return again
	}
	v.pool.Put(first)
	return v, nil
}

// errFetch is for a reference that leads out of the schema and that inspectSchema has not seen.
var errFetch = errors.New("a schema can refer to its own parts only (#/$defs/…): nothing is fetched")

// errLibrary is a panic of the library: it expects schemas that its own check has let through, and would take the process with it.
var errLibrary = errors.New("the schema cannot be compiled")

func compile(raw []byte) (c *counted, err error) {
	defer func() {
		if p := recover(); p != nil {
			c, err = nil, fmt.Errorf("%w: %v", errLibrary, p)
		}
	}()
	c = &counted{}
	compiler := jsonschema.NewCompiler()
	compiler.Draft = jsonschema.Draft2020
	compiler.LoadURL = func(string) (io.ReadCloser, error) { return nil, errFetch }
	compiler.RegisterExtension("steps", nil, stepCompiler{c})
	if err := compiler.AddResource(schemaURL, bytes.NewReader(raw)); err != nil {
		return nil, err
	}
	if c.schema, err = compiler.Compile(schemaURL); err != nil {
		return nil, err
	}
	return c, nil
}

// stepCompiler hangs a counter to every part of a schema.
type stepCompiler struct{ counted *counted }

func (s stepCompiler) Compile(_ jsonschema.CompilerContext, m map[string]any) (jsonschema.ExtSchema, error) {
	weight := 1
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		if list, ok := m[keyword].([]any); ok {
			weight += len(list)
		}
	}
	return step{s.counted, weight}, nil
}

type step struct {
	counted *counted
	weight  int
}

// Validate counts; the panic is one that the library turns into an error.
func (s step) Validate(jsonschema.ValidationContext, any) error {
	s.counted.steps += s.weight
	if s.counted.steps > maxSteps || s.counted.steps%16 < s.weight && time.Now().After(s.counted.until) {
		panic(jsonschema.InfiniteLoopError("too much work"))
	}
	return nil
}

// validate returns what is wrong with a value that has been read by parse, in order; nil when nothing is.
func (v *validator) validate(value any) (bad []finding) {
	defer func() {
		if p := recover(); p != nil {
			bad = []finding{{nil, "cannot be validated: the skill's schema asks for what the validator cannot do"}}
		}
	}()
	c, _ := v.pool.Get().(*counted)
	c.steps, c.until = 0, time.Now().Add(maxPatience)
	err := c.schema.Validate(value)
	v.pool.Put(c)
	if err == nil {
		return nil
	}
	var wrong *jsonschema.ValidationError
	if !errors.As(err, &wrong) {
		return []finding{{nil, "cannot be validated: the skill's schema asks for too much work with it"}}
	}
	return explain(wrong, v.doc, value)
}
