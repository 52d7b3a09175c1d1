package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"secbox/dockercli"
)

// Sections are the parts of a run, in their order.
const (
	Answer     = "answer"     // time to the answer of one exec against docker run to its end
	Throughput = "throughput" // execs per second, several at a time, teardown included
	Output     = "output"     // a job that prints far more than its limit
	Lists      = "lists"      // 50 execs of one task out of many
)

// sections is all of them.
var sections = []string{Answer, Throughput, Output, Lists}

// Sections lists the names of all sections.
func Sections() []string { return slices.Clone(sections) }

// Options say what is measured and how often. Take Defaults and change them.
type Options struct {
	Server  []string // the command that serves, without flags: "/path/core-api", "serve"
	Environ []string // of this process; variables that would change the server's settings are kept from it
	Docker  *dockercli.CLI
	Command string    // as it was typed, for the report
	Dir     string    // for throw-away files; empty: the system's
	Log     io.Writer // what goes on, line by line

	Only         []string      // sections; empty: all
	Pairs        int           // of exec and docker run, for Answer
	Rounds       int           // of Throughput, each with both sides
	RoundExecs   int           // in a round of one side
	Concurrency  int           // of Throughput
	OutputBytes  int64         // that the job of Output prints
	OutputRounds int           // with both sides each
	Rows         int           // in the databases of Lists
	Tasks        int           // lists timed per database
	TimeLimit    time.Duration // per section; what was measured until then counts
}

// Defaults are what the project's targets speak of.
func Defaults() Options {
	return Options{
		Log: io.Discard, Pairs: 40, Rounds: 6, RoundExecs: 24, Concurrency: 4, OutputBytes: 1 << 30, OutputRounds: 3,
		Rows: 1_000_000, Tasks: 200, TimeLimit: 10 * time.Minute,
	}
}

// Check refuses numbers and names that make no sense.
func (o Options) Check() error {
	for _, name := range o.Only {
		if !slices.Contains(sections, name) {
			return fmt.Errorf("there is no section %q; choose among %s", name, strings.Join(sections, ", "))
		}
	}
	for _, n := range []struct {
		flag         string
		value, least int64
	}{
		{"pairs", int64(o.Pairs), 1},
		{"rounds", int64(o.Rounds), 1},
		{"round-execs", int64(o.RoundExecs), 1},
		{"concurrency", int64(o.Concurrency), 1},
		{"output-bytes", o.OutputBytes, 1},
		{"output-rounds", int64(o.OutputRounds), 1},
		{"rows", int64(o.Rows), 50}, // one task's
		{"tasks", int64(o.Tasks), 1},
		{"time-limit", int64(o.TimeLimit / time.Second), 1},
	} {
		if n.value < n.least {
			return fmt.Errorf("--%s must be at least %d", n.flag, n.least)
		}
	}
	return nil
}

func (o Options) wants(section string) bool {
	return len(o.Only) == 0 || slices.Contains(o.Only, section)
}

func (o Options) say(format string, args ...any) { fmt.Fprintf(o.Log, format+"\n", args...) }

// Run measures. It always returns a report of what it measured; the error joins what could not be measured and every plan that is not
// what was promised. Containers, processes and files are gone when it returns, also when ctx ended.
func Run(ctx context.Context, o Options) (report Report, err error) {
	if err := o.Check(); err != nil {
		return Report{}, err
	}
	dir, err := os.MkdirTemp(o.Dir, "secbox-bench-")
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	info, err := o.Docker.Info(ctx)
	if err != nil {
		return Report{}, err
	}
	begun := time.Now()
	report = Report{Command: o.Command, Begun: begun.UTC().Truncate(time.Second), Machine: machine(info)}
	defer func() { report.Seconds = time.Since(begun).Round(100 * time.Millisecond).Seconds() }()

	var errs []error
	section := func(name string, measure func(context.Context) error) {
		if !o.wants(name) || ctx.Err() != nil {
			return
		}
		limited, cancel := context.WithTimeoutCause(ctx, o.TimeLimit, errTimeLimit)
		defer cancel()
		if err := measure(limited); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	if o.wants(Answer) || o.wants(Throughput) || o.wants(Output) {
		if err := withExecs(ctx, o, dir, func(x *execs) {
			section(Answer, func(ctx context.Context) (err error) { report.Answer, err = x.answers(ctx); return err })
			section(Throughput, func(ctx context.Context) (err error) { report.Throughput, err = x.throughput(ctx); return err })
			section(Output, func(ctx context.Context) (err error) { report.Output, err = x.output(ctx); return err })
		}); err != nil {
			errs = append(errs, err)
		}
	}
	section(Lists, func(ctx context.Context) (err error) {
		report.Lists, err = lists(ctx, o, filepath.Join(dir, "lists"))
		return err
	})
	report.Targets = targets(report)
	if cause := context.Cause(ctx); cause != nil {
		errs = append(errs, cause)
	}
	return report, errors.Join(errs...)
}
