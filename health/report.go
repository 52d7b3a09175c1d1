package health

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"

	"secbox/diskspace"
	"secbox/fault"
	"secbox/policy"
)

// Status sums a report up.
type Status string

// The statuses.
const (
	OK          Status = "ok"
	Degraded    Status = "degraded"    // an exec could run, but something deserves a look
	Unavailable Status = "unavailable" // an exec could not run
)

// Report is how a node is. Its JSON names are those of HealthReport in the HTTP contract.
type Report struct {
	Status              Status    `json:"status"`
	Version             string    `json:"version"`
	NodeID              string    `json:"node_id"`
	RuntimeMode         string    `json:"runtime_mode"`
	WorkspaceRootNative string    `json:"workspace_root_native"`
	WorkspaceWritable   bool      `json:"workspace_writable"`
	DockerCLIPath       string    `json:"docker_cli_path"` // empty: none was found
	DockerVersion       string    `json:"docker_version"`  // the engine's; empty: it does not answer
	DockerContext       string    `json:"docker_context"`
	EngineRuntime       string    `json:"engine_runtime"` // that containers run under
	CgroupVersion       string    `json:"cgroup_version"`
	ContainerUser       string    `json:"container_user"`
	ImagePresent        bool      `json:"image_present"`
	Database            string    `json:"database"` // sqlite or postgres
	Skills              Skills    `json:"skills"`
	Problems            []Problem `json:"problems"` // never nil; what stops execs comes first
}

// Problem is one thing that is wrong.
type Problem struct {
	Check  string `json:"check"`
	Reason string `json:"reason"`
	Remedy string `json:"remedy"`

	code fault.Code // why an exec could not run; empty: it could
	err  error      // for the log
}

// Report looks at everything. It never fails and returns within three seconds: what could not be looked at is one of its problems.
func (c *Checker) Report(ctx context.Context) Report {
	s := c.survey(ctx, reportAge)
	r := Report{
		Status: OK, Version: c.cfg.Version, NodeID: c.cfg.NodeID,
		RuntimeMode: c.cfg.RuntimeMode, WorkspaceRootNative: c.cfg.WorkspaceRootNative, WorkspaceWritable: s.rootErr == nil,
		DockerVersion: s.engine.ServerVersion, DockerContext: s.engine.ClientInfo.Context,
		EngineRuntime: c.runtimeInUse(s.engine), CgroupVersion: s.engine.CgroupVersion,
		ContainerUser: c.cfg.ContainerUser, ImagePresent: s.imagePresent(), Database: c.cfg.DatabaseKind,
		Skills: c.skills(), Problems: c.problems(s),
	}
	if c.cfg.CLI != nil {
		r.DockerCLIPath = c.cfg.CLI.Path()
	}
	switch {
	case len(r.Problems) > 0 && r.Problems[0].code != "":
		r.Status = Unavailable
	case len(r.Problems) > 0:
		r.Status = Degraded
	}
	return r
}

// Ready is nil when an exec could run here, and else says why not. It is cheap: it believes answers of the last seconds.
// fault.DatabaseUnavailable, fault.EngineUnavailable, fault.ImageMissing, fault.DiskFull, or fault.Internal for directories that
// cannot be written.
func (c *Checker) Ready(ctx context.Context) error {
	problems := c.problems(c.survey(ctx, readyAge))
	if len(problems) == 0 || problems[0].code == "" {
		return nil
	}
	p := problems[0]
	return fault.Wrap(p.code, p.err, "%s; %s", p.Reason, p.Remedy)
}

// problems are all that is wrong, what stops execs first.
func (c *Checker) problems(s survey) []Problem {
	problems := []Problem{}
	var worries []Problem
	for _, p := range c.found(s) {
		if p.code != "" {
			problems = append(problems, p)
		} else {
			worries = append(worries, p)
		}
	}
	return append(problems, worries...)
}

func (c *Checker) found(s survey) []Problem {
	var p []Problem
	if s.databaseErr != nil {
		p = append(p, c.databaseProblem(s.databaseErr))
	}
	switch {
	case s.engineErr != nil:
		p = append(p, c.engineProblem(s.engineErr))
	default:
		p = append(p, s.engine.concerns()...)
		p = append(p, c.runtimeProblem(s.engine)...)
		if s.imageErr != nil {
			p = append(p, c.imageProblem(s.imageErr))
		}
		p = append(p, allowedProblems(s.missing, s.allowedErr)...)
	}
	p = append(p, c.diskProblems(s)...)
	if s.stateFSErr != nil {
		p = append(p, Problem{
			Check: "state_dir", Reason: "the file system of the state dir " + c.cfg.StateDir + " is on a network or cannot be looked at, where the audit's locks and syncs cannot be relied on",
			Remedy: "move it to a local disk: state_dir, or --state-dir",
		})
	}
	if c.cfg.Unmade {
		p = append(p, Problem{
			Check: "state_dir", Reason: "there is no database in the state dir " + c.cfg.StateDir + " yet",
			Remedy: "`core-api serve` makes it; if a server has run before, give this command the server's --state-dir or --config",
		})
	}
	if user := c.cfg.ContainerUser; user != standardUser {
		p = append(p, Problem{
			Check: "container_user", Reason: "jobs run as " + user + " instead of " + standardUser + ", so they share their user with whatever else runs under it on the host",
			Remedy: "run core-api as root or as uid 1000",
		})
	}
	return append(p, c.skillProblems()...)
}

// standardUser is who jobs run as when nothing is in the way.
const standardUser = "1000:1000"

func (c *Checker) databaseProblem(err error) Problem {
	p := Problem{Check: "database", Reason: "the database does not answer", code: fault.DatabaseUnavailable, err: err}
	if c.cfg.DatabaseKind == "postgres" {
		p.Remedy = "start PostgreSQL, and check DATABASE_URL and that its host can be reached from here"
	} else {
		p.Remedy = "check the disk and the permissions of the state dir " + c.cfg.StateDir
	}
	return p
}

func (c *Checker) engineProblem(err error) Problem {
	p := Problem{Check: "engine", Reason: "the Docker engine does not answer", Remedy: c.startEngine(), code: fault.EngineUnavailable, err: err}
	switch {
	case c.cfg.CLI == nil:
		p.Reason, p.Remedy = "the docker CLI was not found", "install Docker, or set sandbox.docker_path to the docker binary"
	case !errors.Is(err, errSilent) && fault.Is(err, fault.Internal):
		p.Reason = "the docker CLI cannot say how its engine is"
	}
	return p
}

// startEngine is how an engine is started here.
func (c *Checker) startEngine() string {
	switch {
	case c.cfg.RuntimeMode == "container":
		return "start the engine on the host, and check that its socket is mounted into core-api's container and that core-api's user may use it"
	case c.cfg.RuntimeMode == "windows" || c.cfg.RuntimeMode == "wsl" || runtime.GOOS == "darwin":
		return "start Docker Desktop and wait until it says that its engine runs; then `docker info` must work for this user"
	default:
		return "start it (`systemctl start docker`), and check that this user may use it (`docker info`)"
	}
}

func (c *Checker) imageProblem(err error) Problem {
	p := Problem{
		Check: "image", Reason: "the image " + c.cfg.Image + " is not on the engine",
		Remedy: obtain, code: fault.ImageMissing, err: err,
	}
	if fields := fault.From(err).Fields; len(fields) > 0 { // it may be our own image, whose sandbox-init the other one needs
		p.Reason = fields[0].Reason
	}
	if c.cfg.Image != policy.DefaultImage {
		p.Reason += "; execs that name no image run in " + c.cfg.Image + ", by sandbox.policy.image"
	}
	if !fault.Is(err, fault.ImageMissing) {
		p.Reason, p.Remedy = "the engine does not say whether it has the image "+c.cfg.Image, "try `docker image inspect "+c.cfg.Image+"` on the engine's host"
		p.code = fault.EngineUnavailable
	}
	return p
}

// obtain is how an image gets onto the engine.
const obtain = "build it with `make setup`, or `docker pull` it on the engine's host; nothing is pulled at run time"

// allowedProblems are about images that only skills and requests name.
func allowedProblems(missing []string, err error) []Problem {
	var p []Problem
	for _, ref := range missing {
		p = append(p, Problem{
			Check: "images", Reason: "the image " + ref + " is allowed and not on the engine: an exec that names it is refused",
			Remedy: obtain + "; or remove it from sandbox.images",
		})
	}
	if err != nil {
		p = append(p, Problem{
			Check: "images", Reason: "the engine does not say whether it has the images of sandbox.images",
			Remedy: "try `docker image ls` on the engine's host", err: err,
		})
	}
	return p
}

// lowFactor is how many times the least room must be there before anybody is warned.
const lowFactor = 4

func (c *Checker) diskProblems(s survey) []Problem {
	var p []Problem
	if s.rootErr != nil {
		p = append(p, diskProblem("workspace", "the workspace root "+c.cfg.WorkspaceRootNative, "sandbox.workspace_root", s.rootErr))
	} else if reason, bad := c.room(s.root); reason != "" {
		problem := Problem{
			Check: "workspace", Reason: "the disk of the workspace root " + c.cfg.WorkspaceRootNative + " " + reason,
			Remedy: "make room there, or lower sandbox.disk_free_min_bytes or sandbox.disk_free_min_inodes",
		}
		if bad {
			problem.code = fault.DiskFull
		}
		p = append(p, problem)
	}
	if s.stateErr != nil {
		p = append(p, diskProblem("state_dir", "the state dir "+c.cfg.StateDir, "state_dir (--state-dir)", s.stateErr))
	} else if reason, _ := c.room(s.state); reason != "" {
		p = append(p, Problem{
			Check: "state_dir", Reason: "the disk of the state dir " + c.cfg.StateDir + " " + reason,
			Remedy: "make room there: the database and the captured output of jobs lie there",
		})
	}
	return p
}

// room says what is wrong with the free space, and whether it stops execs.
func (c *Checker) room(d disk) (reason string, bad bool) {
	for _, r := range []struct {
		free, least uint64
		show        func(uint64) string
	}{{d.bytes, c.cfg.FreeMinBytes, sizeOf}, {d.inodes, c.cfg.FreeMinInodes, countOf}} {
		switch {
		case !d.known || r.least == 0:
		case r.free < r.least:
			return fmt.Sprintf("has %s free, execs are refused below %s", r.show(r.free), r.show(r.least)), true
		case r.free/lowFactor < r.least:
			reason = fmt.Sprintf("has only %s free, execs are refused below %s", r.show(r.free), r.show(r.least))
		}
	}
	return reason, false
}

func diskProblem(check, what, setting string, err error) Problem {
	p := Problem{Check: check, Reason: what + " cannot be written", err: err, code: fault.Internal, Remedy: "check its owner and its mode, or choose another with " + setting}
	switch {
	case fault.Is(err, fault.DiskFull) || diskspace.IsFull(err):
		p.Reason, p.Remedy, p.code = what+" is on a full disk", "make room there", fault.DiskFull
	case errors.Is(err, errSilent):
		p.Reason, p.Remedy = what+" does not answer", "check the disk or the file server behind it"
	}
	return p
}

func sizeOf(bytes uint64) string {
	switch {
	case bytes >= 1<<30:
		return strconv.FormatFloat(float64(bytes)/(1<<30), 'f', 1, 64) + " GiB"
	case bytes >= 1<<20:
		return strconv.FormatFloat(float64(bytes)/(1<<20), 'f', 1, 64) + " MiB"
	default:
		return strconv.FormatUint(bytes, 10) + " bytes"
	}
}

func countOf(inodes uint64) string { return strconv.FormatUint(inodes, 10) + " inodes" }
