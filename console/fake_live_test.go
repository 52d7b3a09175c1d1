package console_test

import (
	"context"
	"io"

	"secbox/audit"
	"secbox/engine"
	"secbox/engine/memengine"
	"secbox/runner"
)

// Follow tells that the execs that have not ended run here, with the application's output.
func (f *fakeApp) Follow(ctx context.Context, execID string, seen runner.Progress) (runner.Progress, error) {
	if rec, err := f.Get(ctx, f.caller, execID); err != nil || rec.Status.Final() {
		return runner.Progress{}, nil
	}
	now := runner.Progress{Here: true, Started: true, Stdout: int64(len(f.output["stdout"])), Stderr: int64(len(f.output["stderr"]))}
	if now != seen {
		return now, nil
	}
	<-ctx.Done()
	return now, ctx.Err()
}

// Await tells that every exec is here.
func (f *fakeApp) Await(string) (<-chan struct{}, func()) {
	here := make(chan struct{})
	close(here)
	return here, func() {}
}

// followed reads the records for those who follow an exec.
type followed struct{ app *fakeApp }

func (f followed) Newer(ctx context.Context, r audit.Record) (audit.Record, error) {
	return f.app.Get(ctx, f.app.caller, r.ExecID)
}

// printed is what the command listen prints. An empty one ends it.
type printed struct {
	stdout, stderr string
	used           engine.Usage // zero: it does not say
}

// listen is a command of memengine.Shell that prints what it is told.
func listen(prints <-chan printed) memengine.Command {
	return func(ctx context.Context, p *memengine.Process) (int, *engine.Exit, error) {
		for {
			select {
			case <-ctx.Done():
				died := memengine.Died()
				return 0, &died, nil
			case text := <-prints:
				if text == (printed{}) {
					return 0, nil, nil
				}
				if text.used != (engine.Usage{}) {
					p.Job.OnUsage(text.used)
				}
				_, _ = io.WriteString(p.Stdout, text.stdout)
				_, _ = io.WriteString(p.Stderr, text.stderr)
			}
		}
	}
}

// begin runs a script in the background and returns the exec's id once it runs. ended is closed
// when the answer is there.
func (c *core) begin(secret, script string) (execID string, ended <-chan struct{}) {
	c.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(secret, script)
	}()
	c.prints <- printed{stdout: "began\n"} // the script has begun to listen
	rows, _, err := c.db.Audit().List(c.t.Context(), audit.Filter{Statuses: []audit.Status{audit.Running}}, nil, 1)
	must(c.t, err)
	if len(rows) != 1 {
		c.t.Fatalf("%d execs run", len(rows))
	}
	return rows[0].ExecID, done
}

// fillNewer adds an exec that is newer than all others.
func (f *fakeApp) fillNewer() {
	f.records = append([]audit.Record{record(len(f.records) + 1)}, f.records...)
}
