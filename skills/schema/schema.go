// Package schema validates JSON by JSON Schema 2020-12 within fixed bounds of time and memory, although both the schema and the value come
// from untrusted users. It explains in short sentences what is wrong, never repeats the value and never fetches anything. It knows nothing
// of skills or of the API that the values arrive by.
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

// Bounds of a schema and of one validation by it. Users upload schemas, and a few lines of one can ask for any amount of work and memory.
const (
	maxSubschemas = 2000    // compiling takes the square of it
	maxLocations  = 1 << 20 // bytes of the JSON pointers of all subschemas
	maxPattern    = 1000    // bytes of one regular expression
	maxProgram    = 10_000  // instructions of one compiled regular expression
	maxPrograms   = 50_000  // instructions of all of them: some 10 MB

	maxSchemaFindings = 50 // reported about one schema

	// maxWork is the budget of one validation, in units of a few nanoseconds. A pattern costs its instructions times the bytes of the text.
	maxWork     = 1_000_000_000
	maxPatience = 10 * time.Second // of one validation, in case the budget lasts longer
)

// schemaURL is the address that the library needs for a schema to refer to itself. Nothing is ever fetched from it.
const schemaURL = "mem:schema"

// dialect is the only one: that of MCP and of this repository.
const dialect = "https://json-schema.org/draft/2020-12/schema"

// Schema validates by one schema. It is safe for concurrent use.
//
// The library checks and compiles schemas. It does not validate by them, since it can be neither bounded nor interrupted, and keeps an error
// text for each value that is wrong; see evaluation.
type Schema struct {
	raw   []byte // the schema
	work  int64  // the budget of one validation
	turns *turns // of validations that take long; nil: they take none

	mu   sync.Mutex
	kept weak.Pointer[compiled] // made again when it is needed: a compiled schema can be much larger than its text, and there are many
}

// compiled is a schema that is ready for use.
type compiled struct {
	schema   *jsonschema.Schema
	programs map[string]int // sizes of the patterns' programs
}

// Compile checks a schema. The findings' paths are relative to it.
func Compile(raw []byte) (*Schema, []Finding) {
	c, bad := compile(raw)
	if bad != nil {
		return nil, bad
	}
	return &Schema{raw: raw, work: maxWork, turns: processors, kept: weak.Make(c)}, nil
}

// CompileOwn is Compile for a schema that is part of the program: its validations never queue, as they need little work and must not fail
// because the server is busy.
func CompileOwn(raw []byte) (*Schema, []Finding) {
	s, bad := Compile(raw)
	if s != nil {
		s.turns = nil
	}
	return s, bad
}

// compiled compiles the schema unless it still is.
func (v *Schema) compiled() *compiled {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := v.kept.Value()
	if c == nil {
		c, _ = compile(v.raw) // it compiled before
		v.kept = weak.Make(c)
	}
	return c
}

// Doc is the schema as it was written.
func (v *Schema) Doc() any {
	doc, _ := Parse(v.raw)
	return doc
}

// errFetch is for a reference that leads out of the schema and that inspectSchema has not seen.
var errFetch = errors.New("a schema can refer to its own parts only (#/$defs/…): nothing is fetched")

// errLibrary is a panic of the library: it expects schemas that its own check has let through, and would take the process with it.
var errLibrary = errors.New("the schema cannot be compiled")

func compile(raw []byte) (*compiled, []Finding) {
	doc, unread := Parse(raw)
	if unread != nil {
		return nil, []Finding{*unread}
	}
	programs, bad := inspectSchema(doc)
	if len(bad) > 0 {
		return nil, bad
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
			schema, err = nil, fmt.Errorf("%w: %v", errLibrary, p)
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

// Validate returns what is wrong with a value that has been read by parse, in order; nil when nothing is. The error is the cause of ctx's
// end, which ends the validation, or fault.ServerBusy when too many take long.
func (v *Schema) Validate(ctx context.Context, value any) ([]Finding, error) {
	limited, cancel := context.WithTimeout(ctx, maxPatience)
	defer cancel()
	c := v.compiled()
	e := &evaluation{ctx: limited, programs: c.programs, work: v.work, turns: v.turns}
	defer e.leave()
	fits, done := e.run(c.schema, value, nil)
	if done && fits {
		return nil, nil
	}
	var found []Finding
	if done { // it does not fit: once more, to say why
		r := &report{doc: v.Doc(), most: maxFindings}
		if _, done = e.run(c.schema, value, r); done || len(r.found) > 0 {
			found = sortFindings(r.found)
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if len(found) == 0 && e.crowded {
		return nil, errCrowded()
	}
	if len(found) == 0 {
		found = []Finding{{nil, "cannot be validated: the schema asks for too much work with it"}}
	}
	return found, nil
}
