package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	strictjson "github.com/go-json-experiment/json"

	"secbox/api/problem"
	"secbox/fault"
	"secbox/internal/suggest"
)

// emptyBody is the error of an empty body. It is an io.EOF, too: the generated code checks for that where openapi.yaml makes the body optional.
type emptyBody struct{ error }

var errEmpty = emptyBody{fault.New(fault.InvalidJSON, "the body is empty; JSON is needed")}

func (emptyBody) Is(target error) bool { return target == io.EOF }

func (n emptyBody) Unwrap() error { return n.error }

// JSON implements echo.JSONSerializer. Decoding refuses everything that openapi.yaml does not declare.
type JSON struct{ options strictjson.Options }

// NewJSON makes a JSON.
func NewJSON() JSON {
	return JSON{strictjson.JoinOptions(
		strictjson.RejectUnknownMembers(true),
		// By default null means "leave as it is". No field of a request may be null.
		strictjson.WithUnmarshalers(strictjson.UnmarshalFromFunc(func(dec *jsontext.Decoder, _ any) error {
			if dec.PeekKind() == jsontext.KindNull {
				return errNull
			}
			return errors.ErrUnsupported // decode as usual
		})),
	)}
}

var errNull = errors.New("must not be null; leave it out instead")

// Serialize writes v as JSON.
func (JSON) Serialize(c echo.Context, v any, indent string) error {
	enc := json.NewEncoder(c.Response())
	enc.SetIndent("", indent)
	return enc.Encode(v)
}

// Deserialize reads the whole body as one JSON value into target.
func (s JSON) Deserialize(c echo.Context, target any) error {
	return s.Decode(c.Request().Body, target)
}

// Decode reads all of body as one JSON value into target. It returns fault.InvalidJSON, fault.InvalidRequest, or an error that wraps the
// reader's.
func (s JSON) Decode(body io.Reader, target any) error {
	err := strictjson.UnmarshalRead(body, target, s.options)
	var wrong *strictjson.SemanticError
	var broken *jsontext.SyntacticError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		field := dotted(wrong.JSONPointer, reflect.TypeOf(target))
		if field == "" {
			return fault.New(fault.InvalidRequest, "the body: %s", describe(wrong))
		}
		return fault.BadField(field, "%s", describe(wrong))
	case errors.As(err, &broken) && errors.Is(broken.Err, jsontext.ErrDuplicateName):
		return fault.BadField(dotted(broken.JSONPointer, reflect.TypeOf(target)), "is given more than once")
	case errors.As(err, &broken):
		return fault.New(fault.InvalidJSON, "the body is not valid JSON at byte %d: %s", broken.ByteOffset, problem.Clip(broken.Err.Error()))
	case errors.Is(err, io.EOF):
		return errEmpty
	}
	return fault.Wrap(fault.InvalidJSON, err, "the body cannot be read to its end")
}

// describe returns the expected value, in terms of JSON instead of Go.
func describe(e *strictjson.SemanticError) string {
	switch {
	case errors.Is(e.Err, strictjson.ErrUnknownName):
		if near := suggest.Close(e.JSONPointer.LastToken(), names(e.GoType)); near != "" {
			return "there is no such field; did you mean " + near + "?"
		}
		return "there is no such field"
	case errors.Is(e.Err, errNull):
		return errNull.Error()
	case e.GoType == nil:
		return "is not understood"
	}
	want := expected(e.GoType)
	if e.JSONKind == jsontext.KindNumber && want != "a string" {
		switch {
		case errors.Is(e.Err, strconv.ErrRange):
			return fmt.Sprintf("the number %s is out of range: %s is expected", problem.Clip(string(e.JSONValue)), want)
		case errors.Is(e.Err, strconv.ErrSyntax):
			return fmt.Sprintf("the number %s must be written without fraction and exponent", problem.Clip(string(e.JSONValue)))
		}
	}
	got := map[jsontext.Kind]string{
		jsontext.KindString: "a string", jsontext.KindNumber: "a number", jsontext.KindTrue: "true", jsontext.KindFalse: "false",
		jsontext.KindBeginObject: "an object", jsontext.KindBeginArray: "a list", jsontext.KindNull: "null",
	}[e.JSONKind]
	return fmt.Sprintf("%s is expected, not %s", want, got)
}

// names returns the names of an object's fields.
func names(t reflect.Type) (all []string) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			all = append(all, name)
		}
	}
	return all
}

func expected(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return expected(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int64:
		return "a whole number of at most 64 bits"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

// dotted turns the JSON pointer /inputs/0/path into inputs[0].path. The target's type tells an index from a name.
func dotted(pointer jsontext.Pointer, t reflect.Type) string {
	var b strings.Builder
	for token := range pointer.Tokens() {
		for t != nil && t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t != nil && t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 { // []byte is free-form JSON
			b.WriteString("[" + token + "]")
			t = t.Elem()
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		if token == "" {
			b.WriteString(`""`)
		}
		b.WriteString(problem.Clip(token))
		t = member(t, token)
	}
	return b.String()
}

// member returns the type of an object's member, or nil if it is unknown.
func member(t reflect.Type, name string) reflect.Type {
	switch {
	case t == nil:
		return nil
	case t.Kind() == reflect.Map:
		return t.Elem()
	case t.Kind() != reflect.Struct:
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
			return f.Type
		}
	}
	return nil
}

// Strict decodes a JSON text that is not a body.
func Strict(text []byte, target any) error {
	return NewJSON().Decode(bytes.NewReader(text), target)
}
