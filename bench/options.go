package bench

import (
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"secbox/dockercli"
)

// Sections are the parts of a run, in their order.
const (
	Cold           = "cold"            // time to the answer of one exec without a pool against docker run to its end
	ColdThroughput = "cold-throughput" // execs per second without a pool, several at a time, teardown included
	Output         = "output"          // a job that prints far more than its limit
	Warm           = "warm"            // time to the answer with the pool, arrivals at an even pace
	Uneven         = "uneven"          // the same with arrivals at random, of several projects
	Closed         = "closed"          // execs per second with the pool, its refill and teardown included
	Burst          = "burst"           // many at once on an idle pool
	Memory         = "memory"          // of idle slots and of core-api
	Skills         = "skills"          // an invoke and an MCP call beside the same exec posted directly; a catalog of many
	Packages       = "packages"        // skill packages beside unzip and cp: upload, list, first access, materialising, reading
	Sandboxes      = "sandboxes"       // the docker sandbox beside docker exec, a runner beside os/exec and plain HTTP
	Lists          = "lists"           // 50 execs of one task out of many
)

// sections is all of them.
var sections = []string{Cold, ColdThroughput, Output, Warm, Uneven, Closed, Burst, Memory, Skills, Packages, Sandboxes, Lists}

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

	Only          []string      // sections; empty: all
	Pairs         int           // of exec and docker run, for Cold, Warm and Uneven, the last two with each job; of Skills, Packages and Sandboxes
	Rounds        int           // of ColdThroughput, each with both sides
	RoundExecs    int           // in a round of one side
	Concurrency   int           // of ColdThroughput
	OutputBytes   int64         // that the job of Output prints
	OutputRounds  int           // with both sides each
	Pace          time.Duration // from the start of a turn of Warm to the next one's; the mean time between arrivals of Uneven
	Seed          uint64        // of the arrivals of Uneven
	ClosedAt      []int         // concurrencies of Closed
	ClosedExecs   int           // in a round of one side: the refill at its end costs the same however many they are
	ClosedRounds  int           // at each concurrency, each with both sides
	Burst         int           // execs at once
	BurstRounds   int           // with both sides each
	Slots         int           // idle ones whose memory is measured
	GoJudge       string        // URL of a go-judge to be measured in Warm too; empty: none
	Skills        int           // in the catalog that is timed
	PackageFiles  int           // in the skill that Packages uploads and copies
	PackageSkills int           // that Packages lists; first accesses find two fifths of them
	SandboxFiles  int           // small ones that Sandboxes reads from a runner
	SandboxExecs  int           // in a round of one side of Sandboxes, several at once
	SandboxRounds int           // of Sandboxes, with both sides each
	LargeBytes    int64         // of the file that Sandboxes streams
	Rows          int           // in the databases of Lists
	Tasks         int           // lists timed per database
	TimeLimit     time.Duration // per section; what was measured until then counts
}

// Defaults are what the project's targets speak of.
func Defaults() Options {
	return Options{
		Log: io.Discard, Pairs: 100, Rounds: 6, RoundExecs: 24, Concurrency: 4, OutputBytes: 1 << 30, OutputRounds: 3,
		Pace: 500 * time.Millisecond, Seed: 1, ClosedAt: []int{4, 16}, ClosedExecs: 200, ClosedRounds: 2, Burst: 32, BurstRounds: 10, Slots: 32,
		Skills: 1000, PackageFiles: 1000, PackageSkills: 500, SandboxFiles: 1000, SandboxExecs: 200, SandboxRounds: 5, LargeBytes: 400 << 20, Rows: 1_000_000, Tasks: 200, TimeLimit: 15 * time.Minute,
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
		flag        string
		value       int64
		least, most int64 // most 0: any
	}{
		{"pairs", int64(o.Pairs), 1, 0},
		{"rounds", int64(o.Rounds), 1, 0},
		{"round-execs", int64(o.RoundExecs), 1, 0},
		{"concurrency", int64(o.Concurrency), 1, 0},
		{"output-bytes", o.OutputBytes, 1, 0},
		{"output-rounds", int64(o.OutputRounds), 1, 0},
		{"closed-rounds", int64(o.ClosedRounds), 1, 0},
		{"closed-execs", int64(o.ClosedExecs), 1, 0},
		{"burst", int64(o.Burst), 1, maxConcurrent},
		{"burst-rounds", int64(o.BurstRounds), 1, 0},
		{"slots", int64(o.Slots), 1, 0},
		{"skills", int64(o.Skills), 1, 0},
		{"package-files", int64(o.PackageFiles), 1, 10_000}, // as many as a skill may have
		{"package-skills", int64(o.PackageSkills), 1, 0},
		{"sandbox-files", int64(o.SandboxFiles), 1, 0},
		{"sandbox-execs", int64(o.SandboxExecs), 1, 0},
		{"sandbox-rounds", int64(o.SandboxRounds), 1, 0},
		{"large-bytes", o.LargeBytes, 1, 500 << 20}, // as many as a file may have
		{"rows", int64(o.Rows), 50, 0},              // one task's
		{"tasks", int64(o.Tasks), 1, 0},
	} {
		if n.value < n.least {
			return fmt.Errorf("--%s must be at least %d", n.flag, n.least)
		}
		if n.most > 0 && n.value > n.most {
			return fmt.Errorf("--%s must be at most %d", n.flag, n.most)
		}
	}
	if len(o.ClosedAt) == 0 || slices.Min(o.ClosedAt) < 1 || slices.Max(o.ClosedAt) > maxConcurrent {
		return fmt.Errorf("--closed-at takes numbers from 1 to %d", maxConcurrent)
	}
	if o.Pace < time.Millisecond {
		return fmt.Errorf("--pace must be at least 1ms")
	}
	if o.TimeLimit < time.Second {
		return fmt.Errorf("--time-limit must be at least 1s")
	}
	if u, err := url.Parse(o.GoJudge); o.GoJudge != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("--go-judge %q is no URL; give it as http://127.0.0.1:5050", o.GoJudge)
	}
	return nil
}

// The settings that sections give their server, by their variables.
const (
	poolMax        = "CORE_API_POOL_MAX"
	concurrentMax  = "CORE_API_SANDBOX_MAX_CONCURRENT_EXECS"
	runtimeSetting = "CORE_API_SANDBOX_RUNTIME"
)

// maxConcurrent is the most that sandbox.max_concurrent_execs accepts.
const maxConcurrent = 1024

// limit lets the server run as many execs at once as a section sends.
func (o Options) limit(concurrency ...int) string {
	return fmt.Sprintf("%s=%d", concurrentMax, slices.Max(concurrency))
}

func (o Options) wants(section string) bool {
	return len(o.Only) == 0 || slices.Contains(o.Only, section)
}

func (o Options) say(format string, args ...any) { fmt.Fprintf(o.Log, format+"\n", args...) }
