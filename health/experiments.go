package health

import (
	"embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"secbox/engine"
	"secbox/policy"
	"secbox/workspace"
)

//go:embed probes/*.py
var scripts embed.FS

// environment is what the probes depend on.
type environment struct {
	user           string // "uid:gid"
	runtime        string // of containers; empty: the engine's default
	readOnlyRootfs bool
	dockerRoot     string
	volume         string // that is the workspace root; empty: dockerRoot is
	nonce          string
	neighbour      string   // a second project, beside the project of the probes
	targets        []string // host:port that no job may reach
	cluster        bool     // pods are containers
	copies         bool     // which get copies of the directories
}

// experiment is one job and the checks of its outcome.
type experiment struct {
	argv      []string
	limits    policy.ContainerLimits
	timeout   time.Duration
	maxStdout int64
	inputs    map[string]string // for inputs/, by path
	network   bool              // give it a way out
	collect   bool              // collect its artifacts
	inspect   bool              // inspect its container, and then end the job
	tries     int               // attempts until it holds, at most; 0 is one
	needed    bool              // when it fails, the others are skipped
	checks    []check
}

// check is one limit that is checked.
type check struct {
	name     string
	expected string
	remedy   string
	// judge is called for every outcome, also when nothing ran: a limit that could not be measured
	// is not ok.
	judge func(o outcome) (seen string, ok bool)
}

// outcome is the result of a job.
type outcome struct {
	err            error // the job's exit is not known
	exit           engine.Exit
	stdout, stderr string    // their first MiB
	stdoutPassed   int64     // bytes that arrived
	before, after  time.Time // by our clock
	runtime        string    // of the container, by the engine
	inspectErr     error
	artifacts      workspace.Manifest
	artifactsErr   error
}

// holds reports whether every check is ok.
func (e experiment) holds(o outcome) bool {
	for _, c := range e.checks {
		if _, ok := c.judge(o); !ok {
			return false
		}
	}
	return true
}

// judge runs every check. Only a failed one has a remedy.
func (e experiment) judge(o outcome) []Probe {
	var probes []Probe
	for _, c := range e.checks {
		p := Probe{Name: c.name, Expected: c.expected}
		p.Seen, p.OK = c.judge(o)
		if !p.OK {
			p.Remedy = c.remedy
		}
		probes = append(probes, p)
	}
	return probes
}

// notTried is Seen of a probe that was skipped; Diagnosis.NotTried has the reason.
const notTried = "not tried"

// skip returns the probes as not tried.
func (e experiment) skip() []Probe {
	var probes []Probe
	for _, c := range e.checks {
		probes = append(probes, Probe{
			Name: c.name, Expected: c.expected, Seen: notTried,
			Remedy: "correct the problems above, then run the doctor again",
		})
	}
	return probes
}

// smallLimits are enough for most probes; a limit that is probed differs a lot from them. Other
// limits have the policy's default.
func smallLimits() policy.ContainerLimits {
	l := policy.Defaults().ContainerLimits
	l.MemoryMB, l.PIDs, l.TmpMB, l.ShmMB = 128, 64, 16, 64
	return l
}

// jobTimeout is the deadline of a probe's job. Most jobs need milliseconds, and seconds on a busy
// machine.
const jobTimeout = 30 * time.Second

// python returns the experiment that runs a script.
func python(script string, args ...string) experiment {
	var source strings.Builder
	for _, name := range []string{"common", script} {
		content, err := scripts.ReadFile("probes/" + name + ".py")
		if err != nil {
			panic(err) // it is embedded
		}
		source.Write(content)
	}
	return experiment{
		argv:   append([]string{"python", "-I", "-c", source.String()}, args...),
		limits: smallLimits(), timeout: jobTimeout, maxStdout: outputKept,
	}
}

func shell(script string) experiment {
	return experiment{argv: []string{"bash", "-lc", script}, limits: smallLimits(), timeout: jobTimeout, maxStdout: outputKept}
}

// experiments returns all experiments, in the order of the report.
func experiments(s environment) []experiment {
	if s.cluster {
		return []experiment{
			runs(s), mounts(s),
			memory(), swap(), podPIDs(), cpu(), tmp(), shm(), deadline(), output(),
			noSockets(s), rootfs(s), identity(s), firstProcess(), clock(),
		}
	}
	return []experiment{
		runs(s), mounts(s), ociRuntime(s),
		memory(), swap(), pids(), cpu(), tmp(), shm(), deadline(), output(),
		noNetwork(s), allowlist(), rootfs(s), identity(s), firstProcess(), clock(),
	}
}

// cannot returns why a job that should end by itself gave no result; "" when it ended with exit
// code 0.
func (o outcome) cannot() string {
	switch {
	case o.err != nil:
		return "not measured: " + message(o.err)
	case o.exit.StartError != "":
		return "not measured: the job could not be started: " + quoted(o.exit.StartError)
	case o.exit.TimedOut:
		return "not measured: the job did not end in time"
	case o.exit.Killed:
		return "not measured: the doctor was interrupted"
	case o.exit.OOMKills > 0 && o.exit.Signal != 0:
		return "not measured: the job ran out of memory"
	case o.exit.Code != 0:
		return fmt.Sprintf("not measured: the job ended with exit code %d: %s", o.exit.Code, quoted(lastLine(o.stderr)))
	}
	return ""
}

// facts decodes the job's output into v, or returns why it cannot.
func (o outcome) facts(v any) (why string) {
	if why := o.cannot(); why != "" {
		return why
	}
	if err := json.Unmarshal([]byte(o.stdout), v); err != nil {
		return "not measured: the job printed something else: " + quoted(o.stdout)
	}
	return ""
}

// reading returns a judge that decodes the job's output first.
func reading[T any](judge func(o outcome, said T) (seen string, ok bool)) func(o outcome) (seen string, ok bool) {
	return func(o outcome) (string, bool) {
		var said T
		if why := o.facts(&said); why != "" {
			return why, false
		}
		return judge(o, said)
	}
}

// incomplete is Seen of a probe whose job left out a part of its output.
const incomplete = "not measured: the job's output is incomplete"

// quoted makes a container's output safe for a line on a terminal: short and quoted.
func quoted(s string) string {
	if len(s) > 300 {
		s = s[:300]
	}
	return strconv.Quote(s)
}

func lastLine(s string) string {
	s = strings.TrimRight(s, "\n")
	return s[strings.LastIndexByte(s, '\n')+1:]
}
