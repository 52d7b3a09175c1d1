// Package schema validates JSON by JSON Schema 2020-12 within fixed bounds of time and memory: both
// the schema and the value come from untrusted users. It explains errors in short sentences, never
// repeats the value and never fetches anything. It must not know skills, or the API that the values
// come from.
package schema

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
	"weak"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// Bounds of a schema and of one validation. Without them, a few lines of a schema could ask for any
// amount of work and memory.
const (
	maxSubschemas = 2000    // compiling takes quadratic time
	maxLocations  = 1 << 20 // bytes of the JSON pointers of all subschemas
	maxPattern    = 1000    // bytes of one regular expression
	maxProgram    = 10_000  // instructions of one compiled regular expression
	maxPrograms   = 50_000  // instructions of all of them: about 10 MB

	maxSchemaFindings = 50

	// maxWork is the budget of one validation, in units of a few nanoseconds. Matching a pattern
	// costs its instructions times the bytes of the text.
	maxWork = 1_000_000_000
	timeout = 10 * time.Second // of one validation, in case the budget lasts longer
)

// schemaURL is the base address that the library needs to resolve references within a schema. It is
// never fetched.
const schemaURL = "mem:schema"

// dialect is the only supported one. MCP uses the same.
const dialect = "https://json-schema.org/draft/2020-12/schema"

// Schema is a checked schema. It is safe for concurrent use.
//
// The jsonschema library checks and compiles the schema, but an evaluation does the validation: the
// library can be neither bounded nor interrupted, and allocates an error text for each wrong value.
type Schema struct {
	raw       []byte
	work      int64      // the budget of one validation
	scheduler *scheduler // nil: validations never queue

	mu sync.Mutex
	// cached is weak, and compiled again when needed: there are many schemas, and a compiled one
	// can be much larger than its text.
	cached weak.Pointer[compiled]
}

// compiled is a schema that is ready for use.
type compiled struct {
	schema   *jsonschema.Schema
	programs map[string]int // instructions, by pattern
}

// Compile checks a schema. The paths of the findings are relative to it.
func Compile(raw []byte) (*Schema, []Finding) {
	c, found := compile(raw)
	if found != nil {
		return nil, found
	}
	return &Schema{raw: raw, work: maxWork, scheduler: processScheduler, cached: weak.Make(c)}, nil
}

// CompileOwn is Compile for a schema that is part of the program. Its validations need little work,
// never queue, and so never fail because the server is busy.
func CompileOwn(raw []byte) (*Schema, []Finding) {
	s, found := Compile(raw)
	if s != nil {
		s.scheduler = nil
	}
	return s, found
}

func (s *Schema) compiled() *compiled {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cached.Value()
	if c == nil {
		c, _ = compile(s.raw) // it compiled before
		s.cached = weak.Make(c)
	}
	return c
}

// Doc returns the schema as it was written.
func (s *Schema) Doc() any {
	doc, _ := Parse(s.raw)
	return doc
}

// errFetch is for a reference that leaves the schema and that inspect has overlooked.
var errFetch = errors.New("a schema can refer to its own parts only (#/$defs/…): nothing is fetched")

// errPanic is a panic of the library, which can panic on schemas that its own check would refuse.
var errPanic = errors.New("the schema cannot be compiled")

func compile(raw []byte) (*compiled, []Finding) {
	doc, unread := Parse(raw)
	if unread != nil {
		return nil, []Finding{*unread}
	}
	programs, found := inspect(doc)
	if len(found) > 0 {
		return nil, found
	}
	schema, err := compileInspected(doc)
	if err != nil {
		return nil, schemaFindings(err)
	}
	return &compiled{schema, programs}, nil
}

func compileInspected(doc any) (schema *jsonschema.Schema, err error) {
	defer func() {
		if p := recover(); p != nil {
			schema, err = nil, fmt.Errorf("%w: %v", errPanic, p)
		}
	}()
	raw, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.Draft = jsonschema.Draft2020
	compiler.LoadURL = func(string) (io.ReadCloser, error) { return nil, errFetch }
	if err := compiler.AddResource(schemaURL, bytes.NewReader(raw)); err != nil {
		return nil, err
	}
	return compiler.Compile(schemaURL)
}

// Validate returns the findings about a value from Parse, in order; nil when it is valid. The error
// is the cause of ctx's end, which ends the validation, or fault.ServerBusy when too many long
// validations are in progress.
func (s *Schema) Validate(ctx context.Context, value any) ([]Finding, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c := s.compiled()
	e := &evaluation{ctx: limited, programs: c.programs, work: s.work, scheduler: s.scheduler}
	defer e.leave()
	fits, done := e.run(c.schema, value, nil)
	if done && fits {
		return nil, nil
	}
	var found []Finding
	if done { // a second run explains why it does not fit
		r := &report{doc: s.Doc(), most: maxFindings}
		if _, done = e.run(c.schema, value, r); done || len(r.found) > 0 {
			found = sortFindings(r.found)
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case len(found) == 0 && e.refused:
		return nil, errBusy()
	case len(found) == 0:
		found = []Finding{{Reason: "cannot be validated: the schema asks for too much work with it"}}
	}
	return found, nil
}
