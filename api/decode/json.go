package decode

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	strictjson "github.com/go-json-experiment/json"

	"secbox/api/problem"
	"secbox/fault"
	"secbox/internal/suggest"
)

// emptyBody is the error of an empty body. It is an io.EOF, too: the generated code checks for that
// where openapi.yaml makes the body optional.
type emptyBody struct{ error }

var errEmpty = emptyBody{fault.New(fault.InvalidJSON, "the body is empty; JSON is needed")}

func (emptyBody) Is(target error) bool { return target == io.EOF }

func (n emptyBody) Unwrap() error { return n.error }

// JSON implements echo.JSONSerializer. Decoding refuses everything that openapi.yaml does not
// declare.
type JSON struct{ options strictjson.Options }

// NewJSON makes a JSON.
func NewJSON() JSON {
	return JSON{strictjson.JoinOptions(
		strictjson.RejectUnknownMembers(true),
		strictjson.WithUnmarshalers(strictjson.JoinUnmarshalers(
			strictjson.UnmarshalFromFunc(decodeWhole),
			// By default null means "leave as it is". No field of a request may be null.
			strictjson.UnmarshalFromFunc(func(dec *jsontext.Decoder, _ any) error {
				if dec.PeekKind() == jsontext.KindNull {
					return errNull
				}
				return errors.ErrUnsupported // decode as usual
			}),
		)),
	)}
}

// decodeWhole takes 5000.0 as 5000, as JSON Schema does: Python writes a computed number so.
func decodeWhole(dec *jsontext.Decoder, n *int64) error {
	if dec.PeekKind() != jsontext.KindNumber {
		return errors.ErrUnsupported
	}
	text, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if *n, err = strconv.ParseInt(string(text), 10, 64); errors.Is(err, strconv.ErrSyntax) {
		if f, _ := strconv.ParseFloat(string(text), 64); f == math.Trunc(f) && math.Abs(f) <= 1<<53 {
			*n, err = int64(f), nil
		}
	}
	if err != nil {
		return &strictjson.SemanticError{JSONKind: jsontext.KindNumber, JSONValue: text.Clone(), GoType: reflect.TypeFor[int64](), Err: err}
	}
	return nil
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

// byteOrderMark is what some editors and shells of Windows write before a text in UTF-8.
const byteOrderMark = "\xef\xbb\xbf"

// Decode reads all of body as one JSON value into target. It returns fault.InvalidJSON,
// fault.InvalidRequest, or an error that wraps the reader's.
func (s JSON) Decode(body io.Reader, target any) error {
	buffered := bufio.NewReaderSize(body, 16)
	if first, _ := buffered.Peek(1); len(first) > 0 && first[0] >= utf8.RuneSelf { // no JSON: a slow body is not waited for
		switch mark, _ := buffered.Peek(len(byteOrderMark)); {
		case string(mark) == byteOrderMark: // RFC 8259, 8.1: it may be ignored
			_, _ = buffered.Discard(len(byteOrderMark))
		case bytes.HasPrefix(mark, []byte{0xff, 0xfe}) || bytes.HasPrefix(mark, []byte{0xfe, 0xff}):
			return fault.New(fault.InvalidJSON, "the body is UTF-16; send it as UTF-8")
		}
	}
	err := strictjson.UnmarshalRead(buffered, target, s.options)
	var wrong *strictjson.SemanticError
	var broken *jsontext.SyntacticError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		field := dotted(wrong.JSONPointer, reflect.TypeOf(target))
		if field == "" {
			return fault.New(fault.InvalidRequest, "the body: %s", describe(wrong, target))
		}
		return fault.BadField(field, "%s", describe(wrong, target))
	case errors.As(err, &broken) && errors.Is(broken.Err, jsontext.ErrDuplicateName):
		return fault.BadField(dotted(broken.JSONPointer, reflect.TypeOf(target)), "is given more than once")
	case errors.As(err, &broken):
		return fault.New(fault.InvalidJSON, "the body is not valid JSON at byte %d: %s", broken.ByteOffset,
			problem.Clip(broken.Err.Error()))
	case errors.Is(err, io.EOF):
		return errEmpty
	}
	return fault.Wrap(fault.InvalidJSON, err, "the body cannot be read to its end")
}

// describe returns the expected value in a body, in terms of JSON instead of Go.
func describe(e *strictjson.SemanticError, body any) string {
	switch {
	case errors.Is(e.Err, strictjson.ErrUnknownName):
		name := e.JSONPointer.LastToken()
		near := elsewhere(reflect.TypeOf(body), name)
		if near == "" {
			near = suggest.Close(name, names(e.GoType))
		}
		if near != "" {
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
			return fmt.Sprintf("the number %s is not %s", problem.Clip(string(e.JSONValue)), want)
		}
	}
	got := map[jsontext.Kind]string{
		jsontext.KindString: "a string", jsontext.KindNumber: "a number", jsontext.KindTrue: "true", jsontext.KindFalse: "false",
		jsontext.KindBeginObject: "an object", jsontext.KindBeginArray: "a list", jsontext.KindNull: "null",
	}[e.JSONKind]
	return fmt.Sprintf("%s is expected, not %s", want, got)
}

// elsewhere returns the path of a body's first field with that name in another object: exec.command
// for command.
func elsewhere(body reflect.Type, name string) string {
	for outer, t := range fields(body) {
		if outer == name {
			return outer
		}
		for inner := range fields(t) {
			if inner == name {
				return outer + "." + inner
			}
		}
	}
	return ""
}

// fields are the fields of an object by name, with the fields of embedded structs; none of other
// types.
func fields(t reflect.Type) iter.Seq2[string, reflect.Type] {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return func(yield func(string, reflect.Type) bool) {
		if t == nil || t.Kind() != reflect.Struct {
			return
		}
		for _, f := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" && !yield(name, f.Type) {
				return
			}
		}
	}
}

// names returns the names of an object's fields.
func names(t reflect.Type) (all []string) {
	for name := range fields(t) {
		all = append(all, name)
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

// dotted turns the JSON pointer /inputs/0/path into inputs[0].path. The target's type tells an
// index from a name.
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
	if t != nil && t.Kind() == reflect.Map {
		return t.Elem()
	}
	for field, inner := range fields(t) {
		if field == name {
			return inner
		}
	}
	return nil
}

// Strict decodes a JSON text that is not a body.
func Strict(text []byte, target any) error {
	return NewJSON().Decode(bytes.NewReader(text), target)
}
