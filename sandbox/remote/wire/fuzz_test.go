package wire_test

import (
	"errors"
	"reflect"
	"testing"

	"secbox/sandbox/remote/wire"
)

func FuzzFromRunner(f *testing.F) {
	for _, s := range ofRunner() {
		seed(f, s)
	}
	for _, message := range lyingRunners {
		if len(message) < 4096 {
			f.Add([]byte(message))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { decodesOrRefuses(t, data, wire.FromRunner) })
}

func FuzzFromServer(f *testing.F) {
	for _, s := range ofServer() {
		seed(f, s)
	}
	for _, message := range lyingServers {
		if len(message) < 4096 {
			f.Add([]byte(message))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { decodesOrRefuses(t, data, wire.FromServer) })
}

func seed(f *testing.F, s sample) {
	data, err := wire.Encode(s.id, s.t, s.body)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
}

// decodesOrRefuses checks that a decoder returns a protocol error, or a message that encodes and
// decodes to the same.
func decodesOrRefuses(t *testing.T, data []byte, decode func([]byte) (wire.Message, error)) {
	m, err := decode(data)
	if err != nil {
		if !errors.Is(err, wire.ErrProtocol) || !reflect.ValueOf(m).IsZero() {
			t.Fatalf("%+v, %v", m, err)
		}
		return
	}
	switch body := m.Body.(type) {
	case *wire.Hello:
		if body.Protocol != wire.Version {
			return
		}
	case *wire.Welcome:
		if body.Protocol != wire.Version {
			return
		}
	case *wire.Exec:
		body.SetStdin(body.Stdin)
	case *wire.ExecResult:
		body.SetOutput(body.Stdout, body.Stderr)
	}
	again, err := wire.Encode(m.ID, m.Type, m.Body)
	if errors.Is(err, wire.ErrTooLong) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	same, err := decode(again)
	if err != nil {
		t.Fatalf("%s was taken and %s is not: %v", data, again, err)
	}
	third, err := wire.Encode(m.ID, same.Type, plain(same.Body))
	if err != nil || string(third) != string(again) {
		t.Fatalf("%s\nbecame\n%s (%v)", again, third, err)
	}
}

// plain returns a message as it was before encoding.
func plain(body any) any {
	switch b := body.(type) {
	case *wire.Exec:
		b.SetStdin(b.Stdin)
	case *wire.ExecResult:
		b.SetOutput(b.Stdout, b.Stderr)
	}
	return body
}
