package wire

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ErrProtocol is in the chain of every error about a message of the other side. The text around it explains the error, and quotes at most a
// few bytes.
var ErrProtocol = errors.New("invalid message")

// Message is one decoded message. Body is a pointer to the struct of its type, nil for types without one.
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

// Encode encodes a message. body is nil or a pointer to the struct of t; invalid UTF-8 in its texts is replaced, so that the name of a file
// cannot break the link. The caller owns the result.
func Encode(id string, t Type, body any) ([]byte, error) {
	var frame any
	switch b := body.(type) {
	case nil:
		frame = &envelope[nothing]{ID: id, Type: t}
	case *Hello:
		frame = pack(id, t, b)
	case *Welcome:
		frame = pack(id, t, b)
	case *Exec:
		frame = pack(id, t, b)
	case *Path:
		frame = pack(id, t, b)
	case *Output:
		frame = pack(id, t, b)
	case *ExecResult:
		frame = pack(id, t, b)
	case *FileContent:
		frame = pack(id, t, b)
	case *FileInfo:
		frame = pack(id, t, b)
	case *DirEntries:
		frame = pack(id, t, b)
	case *Error:
		frame = pack(id, t, b)
	default:
		return nil, fmt.Errorf("wire: %T is not the body of a message", body)
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

func pack[T any](id string, t Type, body *T) any { return &envelope[T]{ID: id, Type: t, Body: *body} }

// FromRunner decodes a message of a runner. Every error wraps ErrProtocol. Of a hello of another version only Protocol is set, so that the
// runner can be told which side to update.
func FromRunner(data []byte) (Message, error) {
	m, err := open(data)
	if err != nil {
		return Message{}, err
	}
	switch m.Type {
	case TypeHello:
		return greeting(data, m, func(n int) *Hello { return &Hello{Protocol: n} })
	case TypePong:
		return bare(data, m, false)
	case TypeOK:
		return bare(data, m, true)
	case TypeOutput:
		return unpack[Output](data, m)
	case TypeExecResult:
		return unpack[ExecResult](data, m)
	case TypeFileContent:
		return unpack[FileContent](data, m)
	case TypeFileInfo:
		return unpack[FileInfo](data, m)
	case TypeDirEntries:
		return unpack[DirEntries](data, m)
	case TypeError:
		return unpack[Error](data, m)
	}
	return Message{}, wrong("a runner sends no message of the type %s", quoted(string(m.Type)))
}

// FromServer decodes a message of core-api. Every error wraps ErrProtocol. Of a welcome of another version only Protocol is set.
func FromServer(data []byte) (Message, error) {
	m, err := open(data)
	if err != nil {
		return Message{}, err
	}
	switch m.Type {
	case TypeWelcome:
		return greeting(data, m, func(n int) *Welcome { return &Welcome{Protocol: n} })
	case TypePing:
		return bare(data, m, false)
	case TypeCancel, TypeAck:
		return bare(data, m, true)
	case TypeExec:
		return unpack[Exec](data, m)
	case TypeReadFile, TypeWriteFile, TypeStat, TypeReadDir, TypeMkdirAll, TypeRemove, TypeRemoveAll:
		return unpack[Path](data, m)
	}
	return Message{}, wrong("core-api sends no message of the type %s", quoted(string(m.Type)))
}

// open reads the id and the type. Our own messages have them first, so it reads a few bytes of a long message; others are scanned twice.
func open(data []byte) (Message, error) {
	if len(data) > MaxMessage {
		return Message{}, wrong("the message has %d bytes, more than %d", len(data), MaxMessage)
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true)) // unpack refuses them; checking here would keep every name
	if tok, err := d.ReadToken(); err != nil || tok.Kind() != '{' {
		return Message{}, wrong("the message is not a JSON object")
	}
	var m Message
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return Message{}, wrong("the message is not JSON")
		}
		switch name.String() {
		case "id":
			m.ID, err = text(d)
		case "type":
			var t string
			t, err = text(d)
			m.Type = Type(t)
		default:
			err = d.SkipValue()
		}
		switch {
		case err != nil && errors.Is(err, ErrProtocol):
			return Message{}, err
		case err != nil:
			return Message{}, wrong("the message is not JSON")
		case m.Type != "" && (m.ID != "" || !m.Type.needsID()):
			return m, nil
		}
	}
	if m.Type == "" {
		return Message{}, wrong("the message has no type")
	}
	return Message{}, wrong("the message of the type %s has no id", quoted(string(m.Type)))
}

// needsID reports whether a message of this type must have an id.
func (t Type) needsID() bool {
	switch t {
	case TypeHello, TypeWelcome, TypePing, TypePong:
		return false
	}
	return true
}

// text reads a string of at most MaxID bytes.
func text(d *jsontext.Decoder) (string, error) {
	tok, err := d.ReadToken()
	switch {
	case err != nil:
		return "", err
	case tok.Kind() != '"':
		return "", wrong("id and type must be strings")
	}
	s := tok.String()
	if s == "" || len(s) > MaxID {
		return "", wrong("id and type must have 1 to %d bytes", MaxID)
	}
	return s, nil
}

// strict rejects unknown members and overlong lists. The package itself rejects duplicate members, other spellings of names, and invalid
// UTF-8.
var strict = json.JoinOptions(json.RejectUnknownMembers(true), json.WithUnmarshalers(json.JoinUnmarshalers(
	json.UnmarshalFromFunc(list[DirEntry](MaxEntries)),
	json.UnmarshalFromFunc(list[Expected](MaxHeld)),
	json.UnmarshalFromFunc(list[string](MaxArgs)), // the longest bound; check has the bound of each list
)))

// list decodes a list and stops at one element too many: a message of empty elements would need a multiple of its size in memory.
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

func unpack[T any, P checker[T]](data []byte, m Message) (Message, error) {
	var frame envelope[T]
	if err := json.Unmarshal(data, &frame, strict); err != nil {
		return Message{}, misfit(m.Type, err)
	}
	if err := checkID(frame.ID, m.Type); err != nil {
		return Message{}, err
	}
	if err := P(&frame.Body).check(m.Type); err != nil {
		return Message{}, err
	}
	return Message{ID: frame.ID, Type: frame.Type, Body: &frame.Body}, nil
}

// bare decodes a message without a body. withID: it must have an id; a ping and its pong may have one.
func bare(data []byte, m Message, withID bool) (Message, error) {
	var frame envelope[nothing]
	if err := json.Unmarshal(data, &frame, strict); err != nil {
		return Message{}, misfit(m.Type, err)
	}
	if withID || frame.ID != "" {
		if err := checkID(frame.ID, m.Type); err != nil {
			return Message{}, err
		}
	}
	return Message{ID: frame.ID, Type: frame.Type}, nil
}

// greeting decodes a hello or a welcome; of another version only its number.
func greeting[T any, P checker[T]](data []byte, m Message, other func(protocol int) *T) (Message, error) {
	var version struct {
		Protocol int `json:"protocol"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return Message{}, misfit(m.Type, err)
	}
	if version.Protocol < 1 {
		return Message{}, wrong("%s has no protocol version", m.Type)
	}
	if version.Protocol != Version {
		return Message{Type: m.Type, Body: other(version.Protocol)}, nil
	}
	var frame envelope[T]
	if err := json.Unmarshal(data, &frame, strict); err != nil {
		return Message{}, misfit(m.Type, err)
	}
	if frame.ID != "" {
		return Message{}, wrong("%s has no id", m.Type)
	}
	if err := P(&frame.Body).check(m.Type); err != nil {
		return Message{}, err
	}
	return Message{Type: m.Type, Body: &frame.Body}, nil
}

// misfit names the bad field of a message without its content.
func misfit(t Type, err error) error {
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok && semantic.JSONPointer != "" {
		return wrong("%s: the field %s is unknown or invalid", t, quoted(string(semantic.JSONPointer)))
	}
	return wrong("%s is not valid JSON", t)
}

func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// quoted quotes untrusted text for a log and a close frame.
func quoted(s string) string { return fmt.Sprintf("%.40q", s) }
