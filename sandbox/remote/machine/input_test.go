//go:build unix

package machine_test

import (
	"slices"
	"strings"
	"testing"

	"secbox/sandbox/remote/wire"
)

func withInput(line string) *wire.Exec { return &wire.Exec{Command: line, Shell: true, Input: true} }

func (l *serverLink) stdin(id string, offset int64, data string, end bool) {
	l.t.Helper()
	l.send(id, wire.TypeStdin, &wire.Stdin{Offset: offset, Data: []byte(data), End: end})
}

// resultWithAcks is result with the acknowledgments of input, which must not fall.
func (l *serverLink) resultWithAcks(id string) (o outcome, last wire.InputAck) {
	l.t.Helper()
	for {
		m := l.receive()
		if a, ok := m.Body.(*wire.InputAck); ok {
			if a.Stdin < last.Stdin || a.Signals < last.Signals {
				l.t.Errorf("%+v after %+v", *a, last)
			}
			last = *a
			continue
		}
		if m.ID != id {
			l.t.Fatalf("%s %s", m.Type, m.ID)
		}
		if o.add(l.t, m) {
			l.send(id, wire.TypeAck, nil)
			return o, last
		}
	}
}

// ack waits for an acknowledgment.
func (l *serverLink) ack(stdin, signals int64) {
	l.t.Helper()
	for {
		m := l.receive()
		if a, ok := m.Body.(*wire.InputAck); ok && *a == (wire.InputAck{Stdin: stdin, Signals: signals}) {
			return
		} else if !ok && m.Type != wire.TypeOutput {
			l.t.Fatalf("%s %+v", m.Type, m.Body)
		}
	}
}

// TestInputOverCutLinks: input that is sent again is passed on once, and acknowledged again.
func TestInputOverCutLinks(t *testing.T) {
	t.Parallel()
	s, r, l := both(t)
	hears := `trap 'echo x >> hups' HUP; while read -r line; do echo "$line" >> lines; done; exit 3`
	l.send("1", wire.TypeExec, withInput(hears))
	l.stdin("1", 0, "one\n", false)
	l.ack(4, 0)
	until(t, "the line", func() bool { return slices.Contains(strings.Fields(r.readIfThere("lines")), "one") }) // the trap is set
	l.send("1", wire.TypeSignal, &wire.Signal{Number: 1, Signal: "HUP"})
	l.ack(4, 1)
	until(t, "the signal", func() bool { return r.readIfThere("hups") == "x\n" })
	l.cut()
	l = s.welcome(wire.Expected{ID: "1"})
	l.ack(4, 1)
	l.stdin("1", 2, "e\ntwo\n", false)
	l.send("1", wire.TypeSignal, &wire.Signal{Number: 1, Signal: "HUP"})
	l.ack(8, 1)
	l.stdin("1", 8, "three\n", true)
	l.cut()
	l = s.welcome(wire.Expected{ID: "1"})
	l.stdin("1", 8, "three\n", true)
	l.stdin("1", 14, "", true)
	o, _ := l.resultWithAcks("1")
	if o.exec(t).ExitCode != 3 || r.read("lines") != "one\ntwo\nthree\n" || r.read("hups") != "x\n" {
		t.Errorf("%+v, %q, %q", o.body, r.read("lines"), r.read("hups"))
	}
	l.stdin("1", 14, "late", false) // of a command that has ended: ignored
	l.send("2", wire.TypeExec, shell("echo on"))
	if o := l.result("2"); string(o.stdout) != "on\n" {
		t.Errorf("%+v", o)
	}
}

func TestInputThatIsNotAllowed(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(l *serverLink){
		"a gap":         func(l *serverLink) { l.stdin("1", 1, "a", false) },
		"after the end": func(l *serverLink) { l.stdin("1", 0, "a", true); l.stdin("1", 1, "b", false) },
		"an end before": func(l *serverLink) { l.stdin("1", 0, "ab", false); l.stdin("1", 0, "a", true) },
		"more than the window": func(l *serverLink) {
			for at := int64(0); at <= wire.StdinWindow+8*wire.MaxOutput; at += wire.MaxOutput { // a pipe and its feeder take some
				l.stdin("1", at, strings.Repeat("x", wire.MaxOutput), false)
			}
		},
		"a signal missing": func(l *serverLink) { l.send("1", wire.TypeSignal, &wire.Signal{Number: 2, Signal: "INT"}) },
		"a command without input": func(l *serverLink) {
			l.send("2", wire.TypeExec, shell("sleep 1000"))
			l.stdin("2", 0, "a", false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, l := both(t)
			l.send("1", wire.TypeExec, withInput("sleep 1000"))
			send(l)
			if status := l.closed(); status != wire.StatusProtocol {
				t.Errorf("closed with %d", status)
			}
		})
	}
}
