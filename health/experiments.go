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

// surroundings are the facts that the probes are made for.
type surroundings struct {
	user           string // "uid:gid"
	runtime        string // that containers are to run under; empty: whatever the engine likes
	readOnlyRootfs bool
	dockerRoot     string
	nonce          string
	targets        []string // host:port that no job may reach
}

// experiment is one job and the questions that its outcome answers.
type experiment struct {
	argv      []string
	limits    policy.ContainerLimits
	timeout   time.Duration
	maxStdout int64
	inputs    map[string]string // for inputs/, by path
	collect   bool              // look at its artifacts afterwards
	inspect   bool              // ask the engine about its container, which ends the job
	tries     int               // how often it may be tried until it holds; 0 is once
	needed    bool              // when it fails, there is no use in going on
	checks    []check
}

// check is one question.
type check struct {
	name     string
	expected string
	remedy   string
	// judge says what was seen. It is called for every outcome, also when nothing ran: only what was seen may be ok.
	judge func(o outcome) (seen string, ok bool)
}

// outcome is all that is known after a job.
type outcome struct {
	err            error // the job's exit is not known
	exit           engine.Exit
	stdout, stderr string    // their first MiB
	stdoutPassed   int64     // bytes that arrived
	before, after  time.Time // by our clock
	runtime        string    // what the engine says runs the container
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

// judge answers every question. The remedy is there only where one is needed.
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

// notTried is what a probe has seen that Diagnosis.NotTried explains.
const notTried = "not tried"

// skip answers no question.
func (e experiment) skip() []Probe {
	var probes []Probe
	for _, c := range e.checks {
		probes = append(probes, Probe{Name: c.name, Expected: c.expected, Seen: notTried, Remedy: "repair what is reported above, then run the doctor again"})
	}
	return probes
}

// The job of most probes needs little; a limit that is probed is set far from these.
func smallLimits() policy.ContainerLimits {
	return policy.ContainerLimits{MemoryMB: 128, CPUCores: 1, PIDs: 64, TmpMB: 16}
}

// patience is the deadline of a probe's job: they need milliseconds, and seconds on a machine that is busy with others.
const patience = 30 * time.Second

// python makes an experiment of a script.
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
		limits: smallLimits(), timeout: patience, maxStdout: outputKept,
	}
}

func shell(script string) experiment {
	return experiment{argv: []string{"bash", "-lc", script}, limits: smallLimits(), timeout: patience, maxStdout: outputKept}
}

// experiments are all of them, in the order in which they are told.
func experiments(s surroundings) []experiment {
	return []experiment{
		runs(s), mounts(s), ociRuntime(s),
		memory(), swap(), pids(), cpu(), tmp(), deadline(), output(),
		network(s), rootfs(s), identity(s), firstProcess(), clock(),
	}
}

// cannot says why a job that should have ended by itself says nothing; "" when it did end with exit code 0.
func (o outcome) cannot() string {
	switch {
	case o.err != nil:
		return "not measured: " + words(o.err)
	case o.exit.StartError != "":
		return "not measured: the job could not be started: " + clip(o.exit.StartError)
	case o.exit.TimedOut:
		return "not measured: the job did not end in time"
	case o.exit.Killed:
		return "not measured: the doctor was interrupted"
	case o.exit.OOMKills > 0 && o.exit.Signal != 0:
		return "not measured: the job ran out of memory"
	case o.exit.Code != 0:
		return fmt.Sprintf("not measured: the job ended with exit code %d: %s", o.exit.Code, clip(lastLine(o.stderr)))
	}
	return ""
}

// facts reads what the job printed into v, and says why it cannot.
func (o outcome) facts(v any) (why string) {
	if why := o.cannot(); why != "" {
		return why
	}
	if err := json.Unmarshal([]byte(o.stdout), v); err != nil {
		return "not measured: the job printed something else: " + clip(o.stdout)
	}
	return ""
}

// incomplete is what a probe says whose job did not tell all that it should.
const incomplete = "not measured: the job did not tell all that it was asked"

// clip makes what a container printed fit for a line on a terminal: quoted, so that nothing in it acts.
func clip(s string) string {
	if len(s) > 300 {
		s = s[:300]
	}
	return strconv.Quote(s)
}

func lastLine(s string) string {
	s = strings.TrimRight(s, "\n")
	return s[strings.LastIndexByte(s, '\n')+1:]
}
