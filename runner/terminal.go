package runner

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"secbox/audit"
	"secbox/engine"
	"secbox/fault"
	"secbox/runner/output"
	"secbox/runner/terminal"
	"secbox/workspace"
)

// CastFile is the recording of an exec's terminal, among the files that core-api adds.
const CastFile = workspace.CastName

// mostShown is how many bytes a terminal shows; later ones are only counted.
const mostShown = 1 << 30

// recordedBytes bounds a recording, whose form may take six bytes for one of the output.
func recordedBytes(maxStdout int64) int64 { return 4*maxStdout + 1<<20 }

// tty is the terminal of an exec, and its recording; nil for an exec without one.
type tty struct {
	*terminal.Terminal
	size   terminal.Size
	cast   *terminal.Recording
	remove func()
}

// openTerminal makes the terminal that the command asks for. The caller must call close.
func (x *exec) openTerminal() *tty {
	c, id := x.req.Command, x.record.ExecID
	if c.Terminal == nil {
		return nil
	}
	t := &tty{size: c.Terminal.Size, cast: terminal.Record(filepath.Join(x.captureDir, id+".cast"), "exec "+id, c.Terminal.Size,
		x.record.TTYRecord == audit.RecordAll, recordedBytes(x.snapshot.Values.MaxStdoutBytes))}
	t.Terminal = terminal.New(t.cast)
	t.remove = x.terminals.Add(id, t.Terminal)
	return t
}

// takes makes a job run in the terminal.
func (t *tty) takes(job *engine.Job) {
	if t != nil {
		job.Argv, job.CodeFile = terminal.Argv(engine.InitPath, t.size, job.Argv), ""
		job.Stdin, job.MaxStdout = t.Terminal, mostShown
	}
}

// shows returns where the job's standard output goes.
func (t *tty) shows(kept io.Writer) io.Writer {
	if t == nil {
		return kept
	}
	return io.MultiWriter(kept, t.Terminal)
}

// end ends the terminal with its job.
func (t *tty) end(exit *engine.Exit, c *output.Capture) {
	if t == nil {
		return
	}
	t.End()
	if strings.HasPrefix(string(c.Stderr.Inline()), oldInit) {
		exit.StartError = "the sandbox-init in the image is too old for terminals; rebuild the image (make images)"
	}
}

// oldInit is what a sandbox-init says that knows no terminals.
const oldInit = "sandbox-init: runs only as the first process"

// recording returns the file to be published, and completes the record.
func (t *tty) recording(x *exec) (files []workspace.File) {
	if t == nil {
		return nil
	}
	content, cut, err := t.cast.Finish()
	if err != nil {
		x.cfg.Logger.Error("a terminal could not be recorded", "exec", x.record.ExecID, "error", err)
		x.record.Detail = join(x.record.Detail, "the terminal was not recorded: "+fault.From(stateDirError(err)).Message)
		return nil
	}
	if cut {
		x.record.Detail = join(x.record.Detail, fmt.Sprintf("the recording of the terminal is cut at %d bytes, raise %s",
			recordedBytes(x.snapshot.Values.MaxStdoutBytes), x.raise("max_stdout_bytes")))
	}
	return []workspace.File{{Name: CastFile, Content: content}}
}

// close removes what is kept of the terminal.
func (t *tty) close() {
	if t != nil {
		t.remove()
		t.End()
		_ = t.cast.Remove()
	}
}

// Terminal waits until the command of an exec on this node has its terminal, and returns it.
// fault.ExecEnded; fault.InvalidRequest if it has none.
func (r *Runner) Terminal(ctx context.Context, rec audit.Record) (*terminal.Terminal, error) {
	if rec.TTYRecord == "" {
		return nil, fault.BadField("exec_id", "is an exec without a terminal; start one with exec.tty")
	}
	for seen := (Progress{}); ; {
		if t := r.terminals.Of(rec.ExecID); t != nil {
			return t, nil
		}
		now, err := r.outputs.Follow(ctx, rec.ExecID, seen)
		switch {
		case err != nil:
			return nil, err
		case !now.Here || now.Started && seen.Started:
			return nil, fault.New(fault.ExecEnded, "exec %s has ended; GET /sandbox/execs/{exec_id}/cast has what its terminal has shown",
				rec.ExecID)
		}
		seen = now
	}
}
