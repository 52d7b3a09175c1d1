//go:build linux

package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"secbox/sandbox"
)

var treeCases = []testCase{
	{name: "NothingIsLeft", run: nothingIsLeft, backend: true},
	{name: "NothingIsLeftAtATimeout", run: nothingIsLeftAtTimeout, backend: true},
	{name: "NothingIsLeftWhenItIsCanceled", run: nothingIsLeftAtCancel},
	{name: "Timeout", run: timeout},
	{name: "SIGTERMBeforeTheTimeout", run: warned},
	{name: "ACommandThatStopsItsParent", run: stopsItsParent, backend: true},
	{name: "EndlessOutput", run: endlessOutput, backend: true},
}

// ways are lines that try to leave a process behind, with MARK among its arguments. None grows
// without end, in case a sandbox fails to kill it.
var ways = map[string]string{
	"child":           `sleep MARK &`,
	"many children":   `for i in 1 2 3 4 5 6 7 8 9 10; do sleep MARK & done`,
	"deaf child":      `sh -c 'trap "" TERM HUP INT QUIT; sleep MARK; :' &`,
	"setsid":          `setsid sleep MARK &`,
	"double fork":     `(setsid sh -c 'sleep MARK & exit' &) ; sleep 0.01`,
	"no environment":  `env -i setsid "$(command -v sleep)" MARK &`,
	"nohup":           `nohup sleep MARK >/dev/null 2>&1 &`,
	"closed streams":  `setsid sh -c 'exec sleep MARK' <&- >&- 2>&- &`,
	"stopped":         `sleep MARK & kill -STOP $!`,
	"grandchildren":   `sh -c 'sh -c "sleep MARK & sleep MARK" & sleep MARK' &`,
	"a pipe's end":    `(setsid sleep MARK | cat &)`,
	"its own session": `setsid sh -c '(setsid sleep MARK &); sleep MARK' &`,
	// Each process starts the next one and ends: killing by pid comes too late. 3,000 are as good
	// as endless.
	"what runs on": `printf '[ $2 = 0 ] || sh "$0" $1 $(($2-1)) & exit' > relay; sh relay MARK 3000 &`,
}

func eachWay(b *bench, f func(b *bench, line, marker string)) {
	var all sync.WaitGroup
	for name, line := range ways {
		all.Go(func() {
			one := *b
			one.dir = b.at(strings.ReplaceAll(name, " ", "-"))
			b.must2(b.s.MkdirAll(b.ctx, one.dir, 0o755, b.user))
			mark := marker()
			f(&one, strings.ReplaceAll(line, "MARK", mark), mark)
			if b.f.Processes(mark) != 0 {
				b.Errorf("%s: processes of the command live", name)
			}
		})
	}
	all.Wait()
}

func nothingIsLeft(b *bench) {
	eachWay(b, func(b *bench, line, _ string) {
		r, err := b.s.Exec(b.ctx, b.line(line+"\nsleep 0.05; echo over; exit 7"))
		if err != nil || r.ExitCode != 7 || r.Stdout != "over\n" {
			b.Errorf("%s: %+v %v", line, r, err)
		}
	})
}

func nothingIsLeftAtTimeout(b *bench) {
	eachWay(b, func(b *bench, line, mark string) {
		// A timeout proves something only if the command has come far enough before it.
		for limit := 500 * time.Millisecond; ; limit *= 2 {
			spec := b.line(line + "\nsleep 0.05; echo up; sleep " + mark)
			spec.Timeout = limit
			r, err := b.s.Exec(b.ctx, spec)
			if err != nil || r.ExitCode != -1 || !r.TimedOut {
				b.Errorf("%s: %+v %v", line, r, err)
				return
			}
			if r.Stdout == "up\n" {
				return
			}
		}
	})
}

func nothingIsLeftAtCancel(b *bench) {
	eachWay(b, func(b *bench, line, mark string) {
		ctx, cancel := context.WithCancelCause(b.ctx)
		defer cancel(nil)
		why := errors.New("why it was cancelled")
		up := writerFunc(func(p []byte) (int, error) {
			cancel(why)
			return len(p), nil
		})
		r, err := b.streamer().ExecTo(ctx, b.line(line+"\nsleep 0.05; echo up; sleep "+mark), up, nil)
		if !errors.Is(err, context.Canceled) {
			b.Errorf("%s: %+v %v", line, r, err)
		}
	})
}

// writerFunc is a function as a writer.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func timeout(b *bench) {
	spec := b.line("echo before; trap '' TERM; sleep 100000; echo after")
	spec.Timeout = 300 * time.Millisecond
	r, err := b.s.Exec(b.ctx, spec)
	if err != nil || !r.TimedOut || r.ExitCode != -1 || strings.Contains(r.Stdout, "after") {
		b.Errorf("%+v %v", r, err)
	}
	// A command that ends in time has an ordinary result, and so has the next one.
	if r := b.shell("exit 9"); r.TimedOut || r.ExitCode != 9 {
		b.Errorf("%+v", *r)
	}
}

// warned runs a command that uses the time between SIGTERM and its timeout, which is a tenth of it.
func warned(b *bench) {
	for limit := 2 * time.Second; ; limit *= 2 {
		spec := b.line("trap 'echo saved; exit 3' TERM; echo up; while :; do sleep 0.01; done")
		spec.Timeout = limit
		r, err := b.s.Exec(b.ctx, spec)
		if err != nil || !r.TimedOut || r.ExitCode != -1 {
			b.Errorf("%+v %v", r, err)
			return
		}
		if r.Stdout == "up\nsaved\n" {
			if r.Runner == "" && (r.Ended == nil || *r.Ended != 3) { // the protocol of runners has no field for it
				b.Errorf("%+v", r)
			}
			return
		}
		if limit > time.Minute { // else the machine was too slow
			b.Errorf("%+v", r)
			return
		}
	}
}

// stopsItsParent runs a command that stops the process that would kill it.
func stopsItsParent(b *bench) {
	mark := marker()
	spec := b.line("kill -STOP $PPID; exec sleep " + mark)
	spec.Timeout = 300 * time.Millisecond
	if r, err := b.s.Exec(b.ctx, spec); err != nil || !r.TimedOut {
		b.Errorf("%+v %v", r, err)
	}
	b.none(mark)
	if r := b.shell("echo on"); r.Stdout != "on\n" {
		b.Errorf("%+v", *r)
	}
}

func endlessOutput(b *bench) {
	spec := b.line("yes & yes >&2")
	spec.MaxStdout, spec.MaxStderr, spec.Timeout = 5000, 100, 500*time.Millisecond
	// Repeat until the machine was fast enough for more than the bounds.
	enough := func(r *sandbox.ExecResult, err error) bool {
		if err != nil || !r.TimedOut || r.StdoutBytes > 5000 && r.StderrBytes > 100 {
			return true
		}
		spec.Timeout *= 2
		return false
	}
	for {
		r, err := b.s.Exec(b.ctx, spec)
		if !enough(r, err) {
			continue
		}
		if err != nil || !r.TimedOut || r.Stdout != strings.Repeat("y\n", 2500) || len(r.Stderr) != 100 {
			b.Errorf("%v", err)
		}
		break
	}
	for {
		var out, errs bytes.Buffer
		r, err := b.streamer().ExecTo(b.ctx, spec, &out, &errs)
		if !enough(r, err) {
			continue
		}
		if err != nil || !r.TimedOut || out.Len() != 5000 || errs.Len() != 100 {
			b.Errorf("as streams: %d and %d bytes, %+v %v", out.Len(), errs.Len(), r, err)
		}
		break
	}
}
