package runner_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"secbox/audit"
	"secbox/engine"
	"secbox/engine/initproto"
	"secbox/engine/memengine"
	"secbox/fault"
	"secbox/runner"
	"secbox/runner/terminal"
)

// withTerminals has a sandbox-init whose terminals run no command: they show their arguments, then
// what is typed, until a q.
func withTerminals(f *fixture) {
	commands := f.commands()
	commands[engine.InitPath] = func(_ context.Context, p *memengine.Process) (int, *engine.Exit, error) {
		fmt.Fprintf(p.Stdout, "%q", p.Args[1:])
		frames := initproto.NewReader(bufio.NewReader(p.Stdin), initproto.ToTerminal)
		for {
			kind, payload, err := frames.Next()
			if err != nil || string(payload) == "q" {
				return 3, nil, err
			}
			fmt.Fprintf(p.Stdout, "\r\n%c%s", kind, payload)
		}
	}
	f.options.Run = memengine.Shell(commands)
}

func inTerminal(req runner.Request, record string) runner.Request {
	req.Command.Terminal = &runner.Terminal{Size: terminal.Size{Cols: 80, Rows: 24}, Record: record}
	return req
}

// TestTerminal: the exec of a terminal has what was shown as its output, and what was shown and
// typed among the published files; the row says which.
func TestTerminal(t *testing.T) {
	t.Parallel()
	f := setUp(t, withTerminals)
	for record, typed := range map[string]bool{"": true, audit.RecordAll: true, audit.RecordOutput: false} {
		p := f.post(inTerminal(shell("p"+record, "vi"), record))
		row := f.row(p.id())
		term, err := f.Terminal(t.Context(), row)
		must(t, err)
		must(t, term.Type(t.Context(), []byte("secret")))
		must(t, term.Resize(t.Context(), terminal.Size{Cols: 99, Rows: 40}))
		must(t, term.Type(t.Context(), []byte("q")))
		res := p.wants(audit.Failed, audit.NonzeroExit)
		want := `["terminal" "80x24" "bash" "-lc" "vi"]` + "\r\nIsecret\r\nZ\x00c\x00("
		if got := f.published(res.Record, "stdout.txt"); got != want || string(res.Stdout) != want {
			t.Errorf("%q", got)
		}
		cast := f.published(res.Record, runner.CastFile)
		for _, text := range []string{`{"version":2,"width":80,"height":24,`, `"exec ` + p.id() + `"`, `, "o", "[\"terminal\" `, `, "r", "99x40"]`} {
			if !strings.Contains(cast, text) {
				t.Errorf("%s\nlacks %s", cast, text)
			}
		}
		if strings.Contains(cast, `"i", "secret"`) != typed || (res.Record.TTYRecord == audit.RecordAll) != typed {
			t.Errorf("%q %s", res.Record.TTYRecord, cast)
		}
		if row.TTYRecord != res.Record.TTYRecord || !strings.Contains(f.published(res.Record, "manifest.json"), `"terminal.cast"`) {
			t.Error(row.TTYRecord)
		}
		if _, err := f.Terminal(t.Context(), res.Record); !fault.Is(err, fault.ExecEnded) {
			t.Error(err)
		}
		if _, _, err := term.Next(t.Context(), term.At(), nil); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}
	plain := f.exec(shell("plain", "echo hi; echo mine >/workspace/artifacts/terminal.cast"))
	if _, err := f.Terminal(t.Context(), plain.Record); !fault.Is(err, fault.InvalidRequest) {
		t.Error(err)
	}
	if len(plain.Artifacts) != 1 || plain.Artifacts[0].Path != runner.CastFile || plain.Record.TTYRecord != "" {
		t.Errorf("%+v", plain)
	}
}

// TestTerminalWaits: a client may ask for the terminal of an exec that is queued.
func TestTerminalWaits(t *testing.T) {
	t.Parallel()
	f := setUp(t, withTerminals, slots(1, 1))
	first := f.post(shell("p", "hold"))
	<-f.held
	p := f.post(inTerminal(shell("q", "vi"), ""))
	row := f.row(p.id())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Terminal(gone, row); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	got := make(chan *terminal.Terminal)
	go func() {
		term, _ := f.Terminal(t.Context(), row)
		got <- term
	}()
	f.release <- struct{}{}
	first.wants(audit.Succeeded, "")
	must(t, (<-got).Type(t.Context(), []byte("q")))
	p.wants(audit.Failed, audit.NonzeroExit)
}

// TestTerminalIsCut: the output, the recording and the row say that they are cut.
func TestTerminalIsCut(t *testing.T) {
	t.Parallel()
	f := setUp(t, withTerminals)
	req := inTerminal(shell("p", "vi"), "")
	req.Overrides.MaxStdoutBytes = new(int64(100))
	p := f.post(req)
	term, err := f.Terminal(t.Context(), f.row(p.id()))
	must(t, err)
	for range 30 { // each is echoed, and takes six bytes for one in the recording
		must(t, term.Type(t.Context(), []byte(strings.Repeat("\x01", terminal.MaxTyped))))
	}
	must(t, term.Type(t.Context(), []byte("q")))
	res := p.wants(audit.Failed, audit.NonzeroExit)
	if !res.Record.StdoutTruncated || len(res.Stdout) != 100 ||
		!strings.Contains(res.Record.Detail, "the recording of the terminal is cut at 1048976 bytes, raise") {
		t.Errorf("%d %+v", len(res.Stdout), res.Record)
	}
	if cast := f.published(res.Record, runner.CastFile); len(cast) > 1<<20+1000 || !strings.Contains(cast, "cut here") {
		t.Errorf("%d bytes", len(cast))
	}
}

// TestTerminalRefusals: what a terminal cannot be.
func TestTerminalRefusals(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for field, change := range map[string]func(*runner.Request){
		"exec.tty":        func(r *runner.Request) { r.Command.Terminal.Cols = 0 },
		"exec.tty_record": func(r *runner.Request) { r.Command.Terminal.Record = "none" },
	} {
		req := inTerminal(shell("p", "vi"), "")
		change(&req)
		if e := f.refused(fault.InvalidRequest, req); len(e.Fields) != 1 || e.Fields[0].Field != field {
			t.Errorf("%s: %v", field, e)
		}
	}
	req := inTerminal(shell("p", "vi"), "")
	req.Command.Stdin = []byte("x")
	f.refused(fault.InvalidRequest, req)
	// the shell of the fake engine does not find it; the real one of an old image says why
	f.options.Run = memengine.Shell(map[string]memengine.Command{
		engine.InitPath: func(_ context.Context, p *memengine.Process) (int, *engine.Exit, error) {
			fmt.Fprintln(p.Stderr, "sandbox-init: runs only as the first process of a container")
			return 3, nil, nil
		},
	})
	f.boot()
	if res := f.exec(inTerminal(shell("p", "vi"), "")); res.Record.ErrorReason != audit.StartFailed ||
		!strings.Contains(res.Record.Detail, "too old for terminals; rebuild the image") {
		t.Errorf("%+v", res.Record)
	}
}
