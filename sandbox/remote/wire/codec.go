package wire

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ErrProtocol is in the chain of every error about a message of the other side. The text around it
// explains the error, and quotes at most a few bytes.
var ErrProtocol = errors.New("invalid message")

// Message is one decoded message. Body is a pointer to the struct of its type, nil for types
// without one.
type Message struct {
	ID   string // empty for hello and welcome
	Type Type
	Body any
}

// envelope is the JSON object of a message: the id and the type before the members of the body.
type envelope[T any] struct {
	ID   string `json:"id,omitzero"`
	Type Type   `json:"type"`
	Body T      `json:",embed"`
}

// nothing is the body of a type without one.
type nothing struct{}

func (*nothing) check(Type) error { return nil }

// Encode encodes a message. body is nil or a pointer to the struct of t; invalid UTF-8 in its texts
// is replaced, so that the name of a file cannot break the link. The caller owns the result.
func Encode(id string, t Type, body any) ([]byte, error) {
	var frame any
	if k, ok := kinds[t]; ok {
		frame = k.envelop(id, t, body)
	}
	if frame == nil {
		return nil, fmt.Errorf("wire: %T is not the body of %s", body, t)
	}
	data, err := json.Marshal(frame, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, fmt.Errorf("wire: encoding %s: %w", t, err)
	}
	if len(data) > MaxMessage {
		return nil, fmt.Errorf("wire: %s has %d bytes, more than %d: %w", t, len(data), MaxMessage, ErrTooLong)
	}
	return data, nil
}

// ErrTooLong is in the chain when a message would exceed MaxMessage bytes.
var ErrTooLong = errors.New("the message is too long")

// FromRunner decodes a message of a runner. Every error wraps ErrProtocol. Of a hello of another
// version only Protocol is set, so that the runner can be told which side to update.
func FromRunner(data []byte) (Message, error) { return decode(data, runner) }

// FromServer decodes a message of core-api. Every error wraps ErrProtocol. Of a welcome of another
// version only Protocol is set.
func FromServer(data []byte) (Message, error) { return decode(data, server) }

func decode(data []byte, from sender) (Message, error) {
	t, err := typeOf(data)
	if err != nil {
		return Message{}, err
	}
	k := kinds[t]
	if k.from != from {
		return Message{}, protocolErrorf("%s sends no message of the type %s", from, quoted(string(t)))
	}
	return k.decode(data, t)
}

// typeOf reads the type, and checks that there is an id if the type needs one. Our own messages
// have both first, so it reads a few bytes of a long message; others are scanned twice.
func typeOf(data []byte) (Type, error) {
	if len(data) > MaxMessage {
		return "", protocolErrorf("the message has %d bytes, more than %d", len(data), MaxMessage)
	}
	// unpack refuses them; checking here would keep every name
	d := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true))
	if tok, err := d.ReadToken(); err != nil || tok.Kind() != '{' {
		return "", protocolErrorf("the message is not a JSON object")
	}
	var id, t string
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return "", protocolErrorf("the message is not JSON")
		}
		switch name.String() {
		case "id":
			id, err = text(d)
		case "type":
			t, err = text(d)
		default:
			err = d.SkipValue()
		}
		switch {
		case errors.Is(err, ErrProtocol):
			return "", err
		case err != nil:
			return "", protocolErrorf("the message is not JSON")
		case t != "" && (id != "" || kinds[Type(t)].id != required):
			return Type(t), nil
		}
	}
	if t == "" {
		return "", protocolErrorf("the message has no type")
	}
	return "", protocolErrorf("the message of the type %s has no id", quoted(t))
}

// text reads a string of at most MaxID bytes.
func text(d *jsontext.Decoder) (string, error) {
	tok, err := d.ReadToken()
	switch {
	case err != nil:
		return "", err
	case tok.Kind() != '"':
		return "", protocolErrorf("id and type must be strings")
	}
	s := tok.String()
	if s == "" || len(s) > MaxID {
		return "", protocolErrorf("id and type must have 1 to %d bytes", MaxID)
	}
	return s, nil
}

// strict rejects unknown members and overlong lists. The package itself rejects duplicate members,
// other spellings of names, and invalid UTF-8.
var strict = json.JoinOptions(json.RejectUnknownMembers(true), json.WithUnmarshalers(json.JoinUnmarshalers(
	json.UnmarshalFromFunc(list[DirEntry](MaxEntries)),
	json.UnmarshalFromFunc(list[Expected](MaxHeld)),
	json.UnmarshalFromFunc(list[string](MaxArgs)), // the longest bound; check has the bound of each list
)))

// list decodes a list and stops at one element too many: a message of empty elements would need a
// multiple of its size in memory.
func list[T any](most int) func(*jsontext.Decoder, *[]T) error {
	return func(d *jsontext.Decoder, all *[]T) error {
		if d.PeekKind() != '[' {
			return errors.ErrUnsupported // null or invalid: use the default
		}
		if _, err := d.ReadToken(); err != nil {
			return err
		}
		*all = []T{}
		for d.PeekKind() != ']' {
			var one T
			if err := json.UnmarshalDecode(d, &one); err != nil {
				return err
			}
			if *all = append(*all, one); len(*all) > most {
				return fmt.Errorf("a list has more than %d elements", most)
			}
		}
		_, err := d.ReadToken()
		return err
	}
}

// checker is a pointer to a body that can check itself.
type checker[T any] interface {
	*T
	check(Type) error
}

// unpack decodes a message whose body is T. The result has no body if T is nothing.
func unpack[T any, P checker[T]](data []byte, t Type, id presence) (Message, error) {
	var frame envelope[T]
	if err := json.Unmarshal(data, &frame, strict); err != nil {
		return Message{}, decodeError(t, err)
	}
	switch {
	case id == none && frame.ID != "":
		return Message{}, protocolErrorf("%s has no id", t)
	case id == required || frame.ID != "":
		if err := checkID(frame.ID, t); err != nil {
			return Message{}, err
		}
	}
	if err := P(&frame.Body).check(t); err != nil {
		return Message{}, err
	}
	m := Message{ID: frame.ID, Type: frame.Type, Body: &frame.Body}
	if _, bare := m.Body.(*nothing); bare {
		m.Body = nil
	}
	return m, nil
}

// decodeError names the bad field of a message without its content.
func decodeError(t Type, err error) error {
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok && semantic.JSONPointer != "" {
		return protocolErrorf("%s: the field %s is unknown or invalid", t, quoted(string(semantic.JSONPointer)))
	}
	return protocolErrorf("%s is not valid JSON", t)
}

func protocolErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// quoted quotes untrusted text for a log and a close frame.
func quoted(s string) string { return fmt.Sprintf("%.40q", s) }
