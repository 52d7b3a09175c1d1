//go:build linux

// Command bench measures a real core-api beside plain docker run, unzip, cp and docker exec; `make
// bench` builds and runs it. It knows of core-api only what the HTTP API, the records and the argv
// of its containers tell, but for the parts that have no route of their own: copies of skills and
// users' containers.
//
// Machines are noisy, so only the ratio of neighbours means something: the sides of a comparison
// take turns. The work behind the pool is not hidden: its misses count, and a closed loop ends when
// the last container is gone and the pool is as full as before.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"secbox/engine/dockercli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// run returns the exit code: 0 when everything was measured, with its target reached or not, 1 when
// something was not, 2 for a wrong flag.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	b := &bench{options: defaults(), environ: environ, log: stderr}
	asJSON, err := b.parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "bench:", err)
		return 2
	}
	b.report.Command = strings.Join(append([]string{"bench"}, args...), " ")
	err = b.run(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "bench: could not measure everything:\n%v\n", err)
	}
	if asJSON {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		err = errors.Join(err, e.Encode(b.report))
	} else {
		err = errors.Join(err, b.report.writeText(stdout))
	}
	switch {
	case ctx.Err() != nil:
		return 130
	case err != nil:
		return 1
	}
	return 0
}

// options say which sections to measure, and how often.
type options struct {
	server    string        // core-api
	against   string        // another core-api to compare with; empty: none
	only      []string      // sections; empty: all
	tmp       string        // for throw-away files; empty: the system's directory
	timeLimit time.Duration // per section; complete rounds count
	goJudge   string        // URL of a go-judge to measure in section first; empty: none

	pairs int // turns of sections that time one thing at a time; packages uploads a fifth as often
	// from the start of a turn to the next one's in first, warm and skills; the mean time between
	// arrivals in uneven
	pace        time.Duration
	rounds      int   // of sections that time many things at once
	roundExecs  int   // in a round of cold-throughput and sandboxes
	outputBytes int64 // that the job of output prints
	closedAt    []int // concurrencies of closed
	closedExecs int   // in a round: the refill at its end costs the same for any number
	burst       int   // execs at once
	skills      int   // in the catalog that is timed
	files       int   // in the skill that packages uploads and copies
	packages    int   // that packages lists; first accesses find two fifths of them
}

// defaults are the numbers that the project's targets are for.
func defaults() options {
	return options{
		timeLimit: 15 * time.Minute, pairs: 100, pace: 500 * time.Millisecond, rounds: 6, roundExecs: 24, outputBytes: 1 << 30,
		closedAt: []int{4, 16}, closedExecs: 200, burst: 16, skills: 1000, files: 1000, packages: 500,
	}
}

// maxConcurrent is the maximum of sandbox.max_concurrent_execs.
const maxConcurrent = 1024

func (b *bench) parse(args []string) (asJSON bool, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(b.log)
	f.Usage = func() {
		fmt.Fprintf(b.log, "Measures core-api; it takes some twenty minutes and some gigabytes of disk space, which are free again "+
			"afterwards.\n\nSections: %s\n\n",
			strings.Join(sectionNames(), ", "))
		f.PrintDefaults()
	}
	beside := func(name string) string {
		program, _ := os.Executable()
		return filepath.Join(filepath.Dir(program), name)
	}
	var only string
	f.StringVar(&b.server, "server", beside("core-api"), "the core-api to measure")
	f.StringVar(&b.against, "against", "", "another core-api: compare the two, in turns, and nothing else")
	f.StringVar(&only, "only", "", "only these sections, separated by commas")
	f.StringVar(&b.tmp, "dir", "", "directory for throw-away files; measure on the disk that you will use")
	f.DurationVar(&b.timeLimit, "time-limit", b.timeLimit, "of each section")
	f.StringVar(&b.goJudge, "go-judge", "", "first: URL of a go-judge to measure too, such as http://127.0.0.1:5050")
	f.IntVar(&b.pairs, "pairs", b.pairs, "turns of each side, where one thing at a time is measured")
	f.IntVar(&b.rounds, "rounds", b.rounds, "rounds of each side, where many things at once are measured")
	f.DurationVar(&b.pace, "pace", b.pace,
		"first, warm, skills: from the start of a turn to the next one's; uneven: between two arrivals on average")
	f.IntVar(&b.closedExecs, "closed-execs", b.closedExecs, "closed: execs in a round of one side")
	f.BoolVar(&asJSON, "json", false, "print the report as JSON")
	if err := f.Parse(args); err != nil {
		return false, err
	}
	if only != "" {
		b.only = strings.Split(only, ",")
	}
	if f.NArg() > 0 {
		return false, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return asJSON, b.check()
}

// check refuses numbers and names that make no sense.
func (o *options) check() error {
	for _, name := range o.only {
		if !slices.Contains(sectionNames(), name) {
			return fmt.Errorf("there is no section %q; choose among %s", name, strings.Join(sectionNames(), ", "))
		}
	}
	if min(o.pairs, o.rounds, o.closedExecs) < 1 {
		return errors.New("--pairs, --rounds and --closed-execs must be at least 1")
	}
	if o.pace < time.Millisecond || o.timeLimit < time.Second {
		return errors.New("--pace must be at least 1ms, and --time-limit 1s")
	}
	if u, err := url.Parse(o.goJudge); o.goJudge != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("--go-judge %q is no URL; give it as http://127.0.0.1:5050", o.goJudge)
	}
	for _, program := range []string{o.server, o.against} {
		if program == "" {
			continue
		}
		if _, err := os.Stat(program); err != nil {
			return fmt.Errorf("%w; build the programs with `make bench`, or give --server", err)
		}
	}
	return nil
}

// bench is a run.
type bench struct {
	options
	environ  []string
	settings []string // variables of every core-api, which its section may change
	log      io.Writer
	docker   *dockercli.CLI
	dir      string // of this run
	report   Report
}

func (b *bench) logf(format string, args ...any) { fmt.Fprintf(b.log, format+"\n", args...) }

// section is a part of a run. It starts what it needs, so that none finds the pool as another left
// it.
type section struct {
	name    string
	measure func(*bench, context.Context) error
}

func sections() []section {
	return []section{
		{"cold", served("cold", (*bench).cold, noPool)}, // one exec without a pool beside docker run
		// execs per second without a pool, teardown included
		{"cold-throughput", served("cold-throughput", (*bench).coldThroughput, noPool)},
		{"output", served("output", (*bench).output, noPool)}, // a job that prints far more than its limit
		// with the pool, at an even pace, each of a new project
		{"first", served("first", (*bench).first)},
		{"warm", served("warm", (*bench).warm)},       // the same of one project
		{"uneven", served("uneven", (*bench).uneven)}, // with arrivals at random, of many projects
		// execs per second with the pool, refill and teardown included
		{"closed", (*bench).closed},
		{"burst", (*bench).bursts}, // many at once of as many new projects
		// an invoke and an MCP call beside the same exec; a large catalog
		{"skills", (*bench).invokes},
		{"packages", (*bench).skillPackages},                // beside unzip and cp
		{"sandboxes", (*bench).sandboxes},                   // the docker sandbox beside docker exec
		{"sessions", served("sessions", (*bench).sessions)}, // execs in a session beside docker run and docker exec
	}
}

// served is a section that measures one core-api with these settings.
func served(name string, measure func(*bench, context.Context, []*subject) error, environ ...string) func(*bench, context.Context) error {
	return func(b *bench, ctx context.Context) error {
		return b.withSubjects(ctx, name, environ, func(ctx context.Context, xs []*subject) error { return measure(b, ctx, xs) })
	}
}

func sectionNames() (names []string) {
	for _, s := range sections() {
		names = append(names, s.name)
	}
	return names
}

// run measures. The error joins what could not be measured. Containers, processes and files are
// gone when it returns, also when ctx ended.
func (b *bench) run(ctx context.Context) (err error) {
	if b.docker, err = dockercli.Find("", b.environ); err != nil {
		return err
	}
	info, err := b.docker.Info(ctx)
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp(b.tmp, "secbox-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	begun := time.Now()
	b.report.Begun, b.report.Machine = begun.UTC().Truncate(time.Second), machine(info)
	defer func() {
		b.report.Seconds, b.report.LoadAfter = time.Since(begun).Round(100*time.Millisecond).Seconds(), loadAverage()
	}()
	for _, s := range sections() {
		if ctx.Err() != nil || len(b.only) > 0 && !slices.Contains(b.only, s.name) {
			continue
		}
		limited, cancel := context.WithTimeoutCause(ctx, b.timeLimit, errTimeLimit)
		if failed := s.measure(b, limited); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", s.name, failed))
		}
		cancel()
	}
	if ctx.Err() != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	return err
}
