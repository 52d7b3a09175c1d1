package wire

import "github.com/go-json-experiment/json"

// sender is the side that sends a message, as errors name it.
type sender string

const (
	runner sender = "a runner"
	server sender = "core-api"
)

// presence tells whether a message has an id.
type presence int

const (
	required presence = iota
	optional
	none
)

// kind describes the messages of one type.
type kind struct {
	from   sender
	id     presence
	result Type   // of a request: its answer, if that is not an error
	needs  string // of a request: what the runner must allow; empty: nothing

	envelop func(id string, t Type, body any) any // nil for a body of another type
	decode  func(data []byte, t Type) (Message, error)
}

var kinds = map[Type]kind{
	TypeHello:   greeting(runner, func(version int) *Hello { return &Hello{Protocol: version} }),
	TypeWelcome: greeting(server, func(version int) *Welcome { return &Welcome{Protocol: version} }),
	TypePing:    message[nothing](server, optional),
	TypePong:    message[nothing](runner, optional),
	TypeCancel:  message[nothing](server, required),
	TypeAck:     message[nothing](server, required),

	TypeStdin:  message[Stdin](server, required),
	TypeSignal: message[Signal](server, required),

	TypeExec:      request[Exec](TypeExecResult, AllowExec),
	TypeReadFile:  request[Path](TypeFileContent, ""),
	TypeWriteFile: request[Path](TypeOK, AllowWrite),
	TypeStat:      request[Path](TypeFileInfo, ""),
	TypeReadDir:   request[Path](TypeDirEntries, ""),
	TypeMkdirAll:  request[Path](TypeOK, AllowWrite),
	TypeRemove:    request[Path](TypeOK, AllowWrite),
	TypeRemoveAll: request[Path](TypeOK, AllowWrite),

	TypeOutput:      message[Output](runner, required),
	TypeInputAck:    message[InputAck](runner, required),
	TypeExecResult:  message[ExecResult](runner, required),
	TypeFileContent: message[FileContent](runner, required),
	TypeFileInfo:    message[FileInfo](runner, required),
	TypeDirEntries:  message[DirEntries](runner, required),
	TypeOK:          message[nothing](runner, required),
	TypeError:       message[Error](runner, required),
}

// Result returns the type of a request's result, if that is not an error.
func (t Type) Result() Type { return kinds[t].result }

// Needs returns what a runner must allow for a request: AllowExec or AllowWrite if the request
// changes something, else nothing.
func (t Type) Needs() string { return kinds[t].needs }

// message is the kind of messages with the body T.
func message[T any, P checker[T]](from sender, id presence) kind {
	return kind{
		from: from, id: id,
		envelop: func(id string, t Type, body any) any {
			if body == nil {
				return &envelope[nothing]{ID: id, Type: t}
			}
			if b, ok := body.(*T); ok {
				return &envelope[T]{ID: id, Type: t, Body: *b}
			}
			return nil
		},
		decode: func(data []byte, t Type) (Message, error) { return unpack[T, P](data, t, id) },
	}
}

// request is the kind of requests with the body T.
func request[T any, P checker[T]](result Type, needs string) kind {
	k := message[T, P](server, required)
	k.result, k.needs = result, needs
	return k
}

// greeting is the kind of a hello or a welcome. Of another version of the protocol it decodes only
// the number, for the body that other makes.
func greeting[T any, P checker[T]](from sender, other func(version int) *T) kind {
	k := message[T, P](from, none)
	decode := k.decode
	k.decode = func(data []byte, t Type) (Message, error) {
		var version struct {
			Protocol int `json:"protocol"`
		}
		if err := json.Unmarshal(data, &version); err != nil {
			return Message{}, decodeError(t, err)
		}
		switch {
		case version.Protocol < 1:
			return Message{}, protocolErrorf("%s has no protocol version", t)
		case version.Protocol != Version:
			return Message{Type: t, Body: other(version.Protocol)}, nil
		}
		return decode(data, t)
	}
	return k
}
