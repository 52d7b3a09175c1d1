package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	strictjson "github.com/go-json-experiment/json"

	"secbox/fault"
)

// bodyBinder is the one place where request bodies are read: JSON, declared as such, not empty, within the limit.
type bodyBinder struct{ maxBytes int64 }

// Bind reads the body into target.
func (b bodyBinder) Bind(target any, c echo.Context) error {
	r := c.Request()
	if r.ContentLength == 0 {
		return errEmpty
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset, declared := params["charset"]
	if err != nil || media != "application/json" || declared && !strings.EqualFold(charset, "utf-8") {
		return fault.New(fault.UnsupportedMedia, "the Content-Type is %q; send application/json", clip(r.Header.Get("Content-Type")))
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return fault.New(fault.UnsupportedMedia, "the Content-Encoding is %q; send the body as it is", clip(coding))
	}
	if r.ContentLength > b.maxBytes {
		return b.tooLarge()
	}
	r.Body = http.MaxBytesReader(c.Response(), r.Body, b.maxBytes)
	err = c.Echo().JSONSerializer.Deserialize(c, target)
	if tooMuch := (*http.MaxBytesError)(nil); errors.As(err, &tooMuch) {
		return b.tooLarge()
	}
	return err
}

func (b bodyBinder) tooLarge() error {
	return fault.New(fault.BodyTooLarge, "the body has more than the %d bytes that this server takes; the setting http.max_body_bytes raises it", b.maxBytes)
}

// noBody is the error of an empty body. The generated code tells it by io.EOF where the contract lets a body be left out.
type noBody struct{ error }

var errEmpty = noBody{fault.New(fault.InvalidJSON, "the body is empty; JSON is needed")}

// Is makes it an io.EOF.
func (noBody) Is(target error) bool { return target == io.EOF }

// Unwrap gives the fault itself.
func (n noBody) Unwrap() error { return n.error }

// strictJSON decodes what strangers send, refusing whatever the contract does not know. It implements echo.JSONSerializer.
type strictJSON struct{ options strictjson.Options }

func newStrictJSON() strictJSON {
	return strictJSON{strictjson.JoinOptions(
		strictjson.RejectUnknownMembers(true),
		// Go would take null for "leave as it is" everywhere. No request field of ours can be null.
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
func (strictJSON) Serialize(c echo.Context, v any, indent string) error {
	enc := json.NewEncoder(c.Response())
	enc.SetIndent("", indent)
	return enc.Encode(v)
}

// Deserialize reads the whole body as one JSON value into target. Errors are fault.InvalidJSON or fault.InvalidRequest, or wrap the
// reader's own error.
func (s strictJSON) Deserialize(c echo.Context, target any) error {
	return s.decode(c.Request().Body, target)
}

func (s strictJSON) decode(body io.Reader, target any) error {
	err := strictjson.UnmarshalRead(body, target, s.options)
	var wrong *strictjson.SemanticError
	var broken *jsontext.SyntacticError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		field := dotted(wrong.JSONPointer, reflect.TypeOf(target))
		if field == "" {
			return fault.New(fault.InvalidRequest, "the body: %s", whyWrong(wrong))
		}
		return fault.BadField(field, "%s", whyWrong(wrong))
	case errors.As(err, &broken) && errors.Is(broken.Err, jsontext.ErrDuplicateName):
		return fault.BadField(dotted(broken.JSONPointer, reflect.TypeOf(target)), "is given more than once")
	case errors.As(err, &broken):
		return fault.New(fault.InvalidJSON, "the body is no JSON at byte %d: %s", broken.ByteOffset, clip(broken.Err.Error()))
	case errors.Is(err, io.EOF):
		return errEmpty
	}
	return fault.Wrap(fault.InvalidJSON, err, "the body could not be read to its end")
}

// whyWrong says what was expected, in the words of JSON and not of Go.
func whyWrong(e *strictjson.SemanticError) string {
	switch {
	case errors.Is(e.Err, strictjson.ErrUnknownName):
		return "there is no such field"
	case errors.Is(e.Err, errNull):
		return errNull.Error()
	case e.GoType == nil:
		return "cannot be understood"
	}
	want := expected(e.GoType)
	if e.JSONKind == jsontext.KindNumber && want != "a string" {
		switch {
		case errors.Is(e.Err, strconv.ErrRange):
			return fmt.Sprintf("the number %s is beyond what fits: %s is expected", clip(string(e.JSONValue)), want)
		case errors.Is(e.Err, strconv.ErrSyntax):
			return fmt.Sprintf("the number %s must be written without fraction and exponent", clip(string(e.JSONValue)))
		}
	}
	got := map[jsontext.Kind]string{
		jsontext.KindString: "a string", jsontext.KindNumber: "a number", jsontext.KindTrue: "true", jsontext.KindFalse: "false",
		jsontext.KindBeginObject: "an object", jsontext.KindBeginArray: "a list", jsontext.KindNull: "null",
	}[e.JSONKind]
	return fmt.Sprintf("%s is expected, not %s", want, got)
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

// dotted turns the JSON pointer /inputs/0/path into inputs[0].path; the target's type tells a list's index from a name.
func dotted(pointer jsontext.Pointer, t reflect.Type) string {
	var b strings.Builder
	for token := range pointer.Tokens() {
		for t != nil && t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t != nil && t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 { // bytes are free JSON, whose lists nobody knows here
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
		b.WriteString(clip(token))
		t = member(t, token)
	}
	return b.String()
}

// member is the type of an object's member; nil when it is not known.
func member(t reflect.Type, name string) reflect.Type {
	switch {
	case t == nil:
		return nil
	case t.Kind() == reflect.Map:
		return t.Elem()
	case t.Kind() != reflect.Struct:
		return nil
	}
	for i := range t.NumField() {
		if tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); tag == name {
			return t.Field(i).Type
		}
	}
	return nil
}

// decodeStrict is for the small JSON texts that are not bodies.
func decodeStrict(text []byte, target any) error {
	return newStrictJSON().decode(bytes.NewReader(text), target)
}
