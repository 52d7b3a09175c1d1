//go:build unix

package machine_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"secbox/sandbox/remote/wire"
)

// TestIDs sends requests twice.
func TestIDs(t *testing.T) {
	t.Parallel()
	s, r, l := both(t)
	count := shell("echo x >> count; until [ -e go ]; do sleep 0.01; done; echo out")
	finish := func() outcome {
		t.Helper()
		o := outcome{}
		l.finish("1", &o)
		return o
	}
	l.send("1", wire.TypeExec, count)
	l.send("1", wire.TypeExec, count) // running: nothing happens
	until(t, "it does not run", func() bool { _, err := os.Stat(r.dir + "/count"); return err == nil })
	l.send("1", wire.TypeExec, shell("touch other"))
	if o := finish(); o.code() != wire.CodeIDReused {
		t.Errorf("%+v", o.body)
	}
	r.write("go", "")
	if o := finish(); string(o.stdout) != "out\n" {
		t.Errorf("%+v", o)
	}
	l.send("1", wire.TypeExec, count) // not acknowledged: answered again
	if o := finish(); string(o.stdout) != "out\n" {
		t.Errorf("%+v", o)
	}
	// Also on another link.
	l.cut()
	l = s.welcome(wire.Expected{ID: "1"})
	if fmt.Sprint(l.hello.Held) != "[1]" {
		t.Errorf("%q is held", l.hello.Held)
	}
	if o := finish(); string(o.stdout) != "out\n" {
		t.Errorf("%+v", o)
	}
	l.send("1", wire.TypeExec, count)
	if o := l.result("1"); string(o.stdout) != "out\n" {
		t.Errorf("%+v", o)
	}
	l.send("1", wire.TypeExec, count) // acknowledged: the result is forgotten, the id is not
	if o := finish(); o.code() != wire.CodeIDReused {
		t.Errorf("%+v", o.body)
	}
	if got := r.read("count"); got != "x\n" {
		t.Errorf("it was run %d times", strings.Count(got, "x"))
	}
	if _, err := os.Stat(r.dir + "/other"); err == nil {
		t.Error("another request with its id was run")
	}
}

// numbers returns the output of seq.
func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

// TestCutLink cuts the link at every stage of a command.
func TestCutLink(t *testing.T) {
	t.Parallel()
	const line = "echo x >> count; seq 50000; until [ -e go ]; do sleep 0.01; done; seq 50000 >&2; echo end"
	want := numbers(50000)
	check := func(t *testing.T, r *runner, o outcome) {
		t.Helper()
		if string(o.stdout) != want+"end\n" || string(o.stderr) != want || o.exec(t).ExitCode != 0 || r.read("count") != "x\n" {
			t.Errorf("%d and %d bytes, %+v", len(o.stdout), len(o.stderr), o.body)
		}
	}
	have := func(o outcome) wire.Expected {
		return wire.Expected{ID: "1", Stdout: int64(len(o.stdout)), Stderr: int64(len(o.stderr))}
	}
	t.Run("before the result", func(t *testing.T) {
		t.Parallel()
		s, r, l := both(t)
		l.send("1", wire.TypeExec, shell(line))
		until(t, "it does not run", func() bool { _, err := os.Stat(r.dir + "/count"); return err == nil })
		l.cut()
		r.write("go", "")
		l = s.welcome(wire.Expected{ID: "1"})
		check(t, r, l.result("1"))
	})
	t.Run("in the midst of output", func(t *testing.T) {
		t.Parallel()
		s, r, l := both(t)
		l.send("1", wire.TypeExec, shell(line))
		o := outcome{}
		l.written(&o, 100_000)
		l.cut()
		l = s.welcome(have(o))
		l.written(&o, 200_000)
		l.cut()
		r.write("go", "")
		l = s.welcome(have(o))
		l.finish("1", &o)
		check(t, r, o)
	})
	t.Run("after the result, before it was acknowledged", func(t *testing.T) {
		t.Parallel()
		s, r, l := both(t)
		r.write("go", "")
		l.send("1", wire.TypeExec, shell(line))
		o := outcome{}
		l.finish("1", &o)
		check(t, r, o)
		for range 3 {
			l.cut()
			l = s.welcome(wire.Expected{ID: "1", Stdout: 7}) // the rest was lost
			again := outcome{stdout: []byte(want[:7])}
			l.finish("1", &again)
			check(t, r, again)
		}
		l.send("1", wire.TypeAck, nil)
		l.send("", wire.TypePing, nil)
		l.receive() // the ack has been read then
		l.cut()
		if l = s.accept(); len(l.hello.Held) != 0 {
			t.Errorf("%q is held", l.hello.Held)
		}
	})
	t.Run("core-api has forgotten", func(t *testing.T) {
		t.Parallel()
		s, r, l := both(t)
		l.send("1", wire.TypeExec, shell(daemon+"sleep 600"))
		l.started(&outcome{})
		l.cut()
		l = s.welcome()
		o := outcome{}
		l.finish("1", &o)
		if e := o.exec(t); !e.Canceled || len(o.stdout) != 0 {
			t.Errorf("%+v", e)
		}
		r.allDead()
		l.cut() // not acknowledged
		l = s.welcome()
		if e := l.result("1").exec(t); !e.Canceled {
			t.Errorf("%+v", e)
		}
	})
	t.Run("core-api claims more than it has", func(t *testing.T) {
		t.Parallel()
		s, _, l := both(t)
		l.send("1", wire.TypeExec, shell("echo out"))
		l.finish("1", &outcome{})
		l.cut()
		l = s.welcome(wire.Expected{ID: "1", Stdout: 1 << 20, Stderr: 1 << 20}, wire.Expected{ID: "never"})
		o := outcome{stdout: []byte("out\n")}
		if l.finish("1", &o); o.exec(t).StdoutBytes != 4 {
			t.Errorf("%+v", o.body)
		}
	})
}

// TestStopWithoutServer stops a runner without a link.
func TestStopWithoutServer(t *testing.T) {
	t.Parallel()
	s, r, l := both(t)
	l.send("1", wire.TypeExec, shell(daemon+"sleep 600"))
	l.started(&outcome{})
	s.setDoor(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	l.cut()
	until(t, "nothing is said", func() bool { return strings.Contains(r.log.String(), `msg="core-api cannot be reached"`) })
	r.stop()
	if err := r.ended(); err != nil {
		t.Error(err)
	}
	r.allDead()
}

// TestReadOverCutLinks reads a file while the link is cut again and again.
func TestReadOverCutLinks(t *testing.T) {
	t.Parallel()
	s, r, l := both(t)
	content := strings.Repeat("0123456789abcdef", 1<<14)
	r.write("f", content)
	for i := range 6 {
		id := fmt.Sprint(i)
		ask := &wire.Path{Path: "/workspace/f"}
		l.send(id, wire.TypeReadFile, ask)
		if i%2 == 1 {
			l.receive()
		}
		l.cut()
		l = s.accept()
		if len(l.hello.Held) > 0 {
			l.greet(wire.Expected{ID: id})
		} else { // lost with the link, and requested again
			l.greet()
			l.send(id, wire.TypeReadFile, ask)
		}
		if c, ok := l.result(id).body.(*wire.FileContent); !ok || string(c.Data) != content {
			t.Errorf("%d: %v", i, ok)
		}
		l.send("", wire.TypePing, nil)
		l.receive() // the ack has been read then
	}
}
