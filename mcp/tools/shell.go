package tools

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"secbox/internal/whole"
	"secbox/sandbox"
)

// Bounds of the output that Shell answers with, in bytes: of each stream the head and the tail.
const (
	stdoutHead, stdoutTail = 8 << 10, 16 << 10
	stderrHead, stderrTail = 3 << 10, 5 << 10

	keptOutput = 256 << 10 // of each, in sessions that keep long results

	maxCommand       = 100 << 10 // bytes of a line
	maxProgressBytes = 1 << 10   // of the output in one report of progress
	progressInterval = time.Second
)

const shellDescription = `Runs a line in the shell of the user's sandbox (bash, in most cases), in the current directory (files_cd). Each call is a new shell: variables do not stay, files do. ` +
	`All processes that it starts are killed when it ends. Of long output the beginning and the end are shown. The sandbox may have no network.`

// ShellParams are the arguments of Shell.
type ShellParams struct {
	Command   string `json:"command" jsonschema:"the line, as it is written in the shell"`
	TimeoutMS int64  `json:"timeout_ms,omitempty" jsonschema:"milliseconds until the command is killed; leave it out for the usual limit"`
}

// Shell runs a line in the user's shell. Its Meta has exec_id, exit_code, timed_out and the bytes
// of the streams. After a timeout the exit code is -1.
func (s *Session) Shell(ctx context.Context, p ShellParams) (*Result, error) {
	switch {
	case strings.TrimSpace(p.Command) == "":
		return nil, badArgument("command", "is empty; give a line for the shell")
	case len(p.Command) > maxCommand:
		return nil, badArgument("command", "has %d bytes, more than %d; write a script with files_write and run that", len(p.Command),
			maxCommand)
	case p.TimeoutMS < 0:
		return nil, badArgument("timeout_ms", "must be at least 1")
	}
	report := newReporter(callerOf(ctx).Progress)
	defer report.stop()
	stdout := &output{head: stdoutHead, tail: stdoutTail, written: report.output}
	stderr := &output{head: stderrHead, tail: stderrTail, written: report.output}
	if s.kept != nil {
		stdout.head, stdout.tail, stderr.head, stderr.tail = keptOutput, keptOutput, keptOutput, keptOutput
	}
	dir := s.Dir()
	res, err := s.sandbox.ExecTo(ctx, sandbox.ExecSpec{
		Command: p.Command, Shell: true, Dir: dir, User: s.user, Timeout: time.Duration(min(p.TimeoutMS, 24*3600*1000)) * time.Millisecond,
	}, stdout, stderr)
	if err != nil {
		return nil, s.explain(ctx, dir, err)
	}
	return &Result{
		Text:   shellText(res, stdout, stderr),
		Failed: res.ExitCode != 0 || res.TimedOut,
		Meta: map[string]any{
			"exec_id": res.ExecID, "exit_code": res.ExitCode, "timed_out": res.TimedOut, "stdout_bytes": res.StdoutBytes,
			"stderr_bytes": res.StderrBytes,
		},
	}, nil
}

func shellText(res *sandbox.ExecResult, stdout, stderr *output) string {
	var b strings.Builder
	b.WriteString(stdout.text(res.StdoutBytes))
	if text := stderr.text(res.StderrBytes); text != "" {
		b.WriteString("stderr:\n" + text)
	}
	switch {
	case res.TimedOut && res.Ended != nil:
		fmt.Fprintf(&b, "(timed out: ended after SIGTERM with exit code %d)\n", *res.Ended)
	case res.TimedOut:
		b.WriteString("(timed out and killed; exit code -1)\n")
	case res.ExitCode != 0:
		fmt.Fprintf(&b, "(exit code %d)\n", res.ExitCode)
	case b.Len() == 0:
		b.WriteString("(no output)\n")
	}
	if res.Detail != "" {
		b.WriteString("(" + visible(cut(res.Detail, 1000)) + ")\n")
	}
	return b.String()
}

// output keeps the head and the tail of a stream.
type output struct {
	head, tail int // bytes to keep
	written    func([]byte)

	first, last []byte
	size        int64
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	n := len(p)
	o.size += int64(n)
	o.written(p)
	take := min(len(p), o.head-len(o.first))
	o.first = append(o.first, p[:take]...)
	p = p[take:]
	if len(p) > o.tail {
		p = p[len(p)-o.tail:]
	}
	if o.last = append(o.last, p...); len(o.last) > 2*o.tail {
		o.last = append(o.last[:0], o.last[len(o.last)-o.tail:]...)
	}
	return n, nil
}

// text returns what was kept, with a note about the rest; written is how many bytes the command
// wrote.
func (o *output) text(written int64) string {
	first, last := o.first, o.last[max(0, len(o.last)-o.tail):]
	if o.size > int64(len(first)+len(last)) {
		first, last = whole.End(first), whole.Begin(last)
	}
	if written > o.size {
		last = whole.End(last)
	}
	text := string(first)
	if left := o.size - int64(len(first)) - int64(len(last)); left > 0 {
		text += fmt.Sprintf("\n… (%d bytes left out; to see them, write the output to a file and read it) …\n", left)
	}
	text += string(last)
	if written > o.size {
		text += fmt.Sprintf("\n… (%d more bytes were not kept)", written-o.size)
	}
	if text == "" {
		return ""
	}
	if text[len(text)-1] != '\n' {
		text += "\n"
	}
	return visibleLines(text)
}

// reporter passes the latest output on: at once the first, and then once per interval. A slow
// receiver does not slow the command.
type reporter struct {
	to    func(string)
	ended chan struct{}
	over  sync.WaitGroup
	wake  chan struct{}

	mu     sync.Mutex
	latest []byte
}

func newReporter(to func(string)) *reporter {
	r := &reporter{to: to, ended: make(chan struct{}), wake: make(chan struct{}, 1)}
	if to != nil {
		r.over.Go(r.run)
	}
	return r
}

func (r *reporter) output(p []byte) {
	if r.to == nil {
		return
	}
	r.mu.Lock()
	if r.latest = append(r.latest, p[max(0, len(p)-maxProgressBytes):]...); len(r.latest) > maxProgressBytes {
		r.latest = whole.Begin(r.latest[len(r.latest)-maxProgressBytes:])
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reporter) run() {
	for {
		select {
		case <-r.ended:
			return
		case <-r.wake:
		}
		r.mu.Lock()
		text := whole.End(r.latest)
		r.latest = bytes.Clone(r.latest[len(text):]) // the next report has the rest of the character
		r.mu.Unlock()
		if len(text) > 0 {
			r.to(visibleLines(strings.ToValidUTF8(string(text), "\uFFFD")))
		}
		select {
		case <-r.ended:
			return
		case <-time.After(progressInterval):
		}
	}
}

func (r *reporter) stop() {
	close(r.ended)
	r.over.Wait()
}
