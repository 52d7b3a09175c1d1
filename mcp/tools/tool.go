package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/skills/schema"
)

// Tool is one tool. It is safe for concurrent use.
type Tool struct {
	Name        string // files.read
	Title       string
	Description string          // for the model
	Schema      json.RawMessage // of the arguments, JSON Schema 2020-12
	ReadOnly    bool            // it changes neither files nor the machine
	OpenWorld   bool            // it uses services beyond this one and the user's sandbox

	arguments
	call func(ctx context.Context, s *Session, arguments []byte) (*Result, error)
}

// Result is what a tool answers with. The model reads Text, and sees Image.
type Result struct {
	Text   string
	Image  []byte
	MIME   string         // of Image
	File   *File          // for the caller; may be nil
	Failed bool           // the tool did what it should, and the command that it ran did not
	Meta   map[string]any // for programs: sha256, exec_id, …; values have a JSON form
}

// The names of the tools that are on record under them.
const (
	writeTool  = "files.write"
	editTool   = "files.edit"
	uploadTool = "files.upload"
)

// All are the tools, in the order in which they are listed.
var All = []*Tool{
	define("files.read", "Read a file", readDescription, true, (*Session).Read),
	define(writeTool, "Write a file", writeDescription, false, (*Session).Write),
	define(editTool, "Edit a file", editDescription, false, (*Session).Edit),
	define("files.download", "Download a file", downloadDescription, true, (*Session).Download),
	define(uploadTool, "Upload a file", uploadDescription, false, (*Session).Upload),
	define("files.glob", "Find files by name", globDescription, true, (*Session).Glob),
	define("files.grep", "Find files by content", grepDescription, true, (*Session).Grep),
	define("files.cd", "Change the directory", cdDescription, true, (*Session).Cd),
	define("shell", "Run a command", shellDescription, false, (*Session).Shell),
	define("skills.read", "Read a skill", skillDescription, true, (*Session).Skill),
	define("registry.search", "Search published skills and agents", registrySearchDescription, true, (*Session).RegistrySearch),
	define("registry.list", "List usable skills and agents", registryListDescription, true, (*Session).RegistryList),
	define("registry.install", "Install a skill or agent", registryInstallDescription, false, (*Session).RegistryInstall),
	define("registry.publish", "Publish a skill or agent", registryPublishDescription, false, (*Session).RegistryPublish),
	define("registry.uninstall", "Remove an installed skill or agent", registryUninstallDescription, false, (*Session).RegistryUninstall),
}

// define makes a Tool of a function. It panics if P has no schema, which a test of any tool finds.
func define[P any](name, title, description string, readOnly bool, f func(*Session, context.Context, P) (*Result, error)) *Tool {
	params := ParamsOf[P](name)
	return &Tool{
		Name: name, Title: title, Description: description, Schema: params.Schema, ReadOnly: readOnly, arguments: params.arguments,
		call: func(ctx context.Context, s *Session, arguments []byte) (*Result, error) {
			p, err := decode[P](arguments)
			if err != nil {
				return nil, err
			}
			return f(s, ctx, p)
		},
	}
}

// Params are the parameters of a tool, which are the fields of P.
type Params[P any] struct {
	Schema json.RawMessage // of the arguments, JSON Schema 2020-12
	arguments
}

// ParamsOf derives the schema of a tool's parameters. It panics if P has none.
func ParamsOf[P any](tool string) Params[P] {
	derived, err := jsonschema.For[P](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[catalog.Kind](): {Type: "string", Enum: []any{catalog.Skill, catalog.Agent}},
	}})
	if err != nil {
		panic(err)
	}
	singleTypes(derived)
	derived.Description = schema.MeantRule
	text, err := json.Marshal(derived)
	if err != nil {
		panic(err)
	}
	check, found := schema.CompileOwn(text)
	if found != nil {
		panic(fmt.Sprint(tool, found))
	}
	return Params[P]{text, arguments{check, check.Doc()}}
}

// Read returns the arguments of a call, taken and checked as Tool.Call does.
func (p Params[P]) Read(ctx context.Context, sent json.RawMessage) (P, error) {
	checked, err := p.read(ctx, sent)
	if err != nil {
		var none P
		return none, err
	}
	return decode[P](checked)
}

func decode[P any](arguments []byte) (p P, err error) {
	if err := json.Unmarshal(arguments, &p); err != nil { // such as 1e30 for an int, which the schema accepts
		return p, fault.Wrap(fault.InvalidInputs, err, "an argument has a number that is too large for the tool; use one of up to 64 bits")
	}
	return p, nil
}

// arguments checks the arguments of calls.
type arguments struct {
	check *schema.Schema // nil: the other program checks the arguments
	doc   any            // of check
}

// read takes arguments as schema.MeantText does, and checks them.
func (a arguments) read(ctx context.Context, sent json.RawMessage) (json.RawMessage, error) {
	if len(bytes.TrimSpace(sent)) == 0 || string(bytes.TrimSpace(sent)) == "null" {
		sent = json.RawMessage("{}")
	}
	taken, value, wrong := schema.MeantText(sent, a.doc)
	if wrong != nil {
		return nil, invalid(nil, *wrong)
	}
	if a.check != nil {
		found, err := a.check.Validate(ctx, value)
		if err != nil {
			return nil, err
		}
		if found != nil {
			return nil, invalid(value, found...)
		}
	}
	return taken, nil
}

// singleTypes makes the types of a derived schema single ones: many hosts accept no lists of types.
// A Go pointer or slice has a list of types, because it may be nil. A null argument is left out
// before the check.
func singleTypes(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if i := slices.Index(s.Types, "null"); i >= 0 && len(s.Types) == 2 {
		s.Type, s.Types = s.Types[1-i], nil
	}
	singleTypes(s.Items)
	for _, property := range s.Properties {
		singleTypes(property)
	}
}

// Call takes the arguments as schema.MeantText does, checks them and runs the tool. Wrong or
// unknown arguments are fault.InvalidInputs, whose Fields say what to do. Every error carries a
// fault code or wraps ctx's error. After an error, nothing was changed, unless it is
// fault.OutcomeUnknown.
func (t *Tool) Call(ctx context.Context, s *Session, arguments json.RawMessage) (*Result, error) {
	checked, err := t.read(ctx, arguments)
	if err != nil {
		return nil, err
	}
	result, err := t.call(ctx, s, checked)
	if err == nil {
		s.keep(t.Name, result)
	}
	return result, err
}

// invalid is the error for arguments that do not fit the schema.
func invalid(value any, found ...schema.Finding) error {
	e := fault.New(fault.InvalidInputs, "the arguments do not match the tool's schema; nothing was done")
	for _, f := range found {
		e.Fields = append(e.Fields, fault.Field{Field: schema.FieldName("", value, f.Path), Reason: f.Reason})
	}
	return e
}

// badArgument is the error for an argument that fits the schema and is wrong nevertheless.
func badArgument(name, format string, args ...any) error {
	return fault.New(fault.InvalidInputs, "%s: %s", name, fmt.Sprintf(format, args...))
}
