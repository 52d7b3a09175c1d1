package health

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"

	"secbox/engine/dockercli"
	"secbox/fault"
	"secbox/policy"
	"secbox/workspace/diskspace"
)

// Status summarizes a report.
type Status string

// The statuses.
const (
	OK          Status = "ok"
	Degraded    Status = "degraded"    // an exec could run, but there are problems
	Unavailable Status = "unavailable" // an exec could not run
)

// Report is the health of a node. Its JSON has the names of HealthReport in the HTTP contract.
type Report struct {
	Status              Status    `json:"status"`
	Version             string    `json:"version"`
	NodeID              string    `json:"node_id"`
	RuntimeMode         string    `json:"runtime_mode"`
	WorkspaceRootNative string    `json:"workspace_root_native"`
	WorkspaceWritable   bool      `json:"workspace_writable"`
	DockerCLIPath       string    `json:"docker_cli_path"` // empty: none was found
	Engine              string    `json:"engine"`          // docker or kubernetes
	DockerVersion       string    `json:"docker_version"`  // the engine's; empty: it does not answer
	DockerContext       string    `json:"docker_context"`
	EngineRuntime       string    `json:"engine_runtime"` // of containers
	CgroupVersion       string    `json:"cgroup_version"`
	ContainerUser       string    `json:"container_user"`
	ImagePresent        bool      `json:"image_present"`
	Database            string    `json:"database"` // sqlite or postgres
	AuditLog            AuditLog  `json:"audit_log"`
	AuditSpool          Spool     `json:"audit_spool"`
	Retention           Retention `json:"retention"`
	Skills              Skills    `json:"skills"`

	// Of the pool, which a Checker does not know: whether waiting containers serve any project, and
	// why not, with the remedy.
	PoolShared           bool   `json:"pool_shared"`
	PoolNotSharedBecause string `json:"pool_not_shared_because"`

	// The free space of the workspace root and of the state dir, for pages; nil: it could not be
	// read.
	WorkspaceFree *diskspace.Space `json:"-"`
	StateFree     *diskspace.Space `json:"-"`

	Problems []Problem `json:"problems"` // never nil; those that stop execs come first
}

// Problem is one problem and its remedy.
type Problem struct {
	Check  string `json:"check"`
	Reason string `json:"reason"`
	Remedy string `json:"remedy"`

	code fault.Code // why an exec could not run; empty: it could
	err  error      // for the log
}

// Report runs all checks. It returns within three seconds and never fails: a check without an
// answer is one of its problems.
func (c *Checker) Report(ctx context.Context) Report { return c.report(c.survey(ctx, reportAge, 0)) }

// Latest is Report for pages that ask every few seconds: it does not wait for checks that have
// answered within 15 seconds, or 6 for the log, and repeats them meanwhile.
func (c *Checker) Latest(ctx context.Context) Report {
	return c.report(c.survey(ctx, reportAge, recentAge))
}

// Known is Report for every page: it never waits. It repeats checks whose answer is older than five
// seconds, for its next caller. Its Status is empty until each check has answered once.
func (c *Checker) Known(ctx context.Context) Report {
	s := c.survey(ctx, readyAge, neverWait)
	if slices.Contains(s.errs(), errNotYet) {
		return Report{}
	}
	return c.report(s)
}

func (c *Checker) report(s survey) Report {
	r := Report{
		Status: OK, Version: c.cfg.Version, NodeID: c.cfg.NodeID, Engine: "docker",
		RuntimeMode: c.cfg.RuntimeMode, WorkspaceRootNative: c.cfg.WorkspaceRootNative, WorkspaceWritable: s.rootErr == nil,
		DockerVersion: s.engine.ServerVersion, DockerContext: s.engine.ClientInfo.Context,
		EngineRuntime: c.runtimeInUse(s.engine), CgroupVersion: s.engine.CgroupVersion,
		ContainerUser: c.cfg.ContainerUser, ImagePresent: s.imagePresent(), Database: c.cfg.DatabaseKind,
		AuditLog: s.auditLog, AuditSpool: spoolOf(s.spool, c.cfg.Now), Retention: s.retention, Skills: c.skills(),
		WorkspaceFree: s.root.space(), StateFree: s.state.space(), Problems: c.problems(s),
	}
	if c.cfg.Cluster != nil {
		r.Engine, r.DockerVersion = "kubernetes", s.engine.Cluster
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

// Ready returns nil when an exec could run here, else the reason. It is cheap: it uses cached
// answers. fault.DatabaseUnavailable, fault.EngineUnavailable, fault.ImageMissing, fault.DiskFull,
// or fault.Internal for directories that cannot be written.
func (c *Checker) Ready(ctx context.Context) error {
	problems := c.problems(c.survey(ctx, readyAge, 0))
	if len(problems) == 0 || problems[0].code == "" {
		return nil
	}
	p := problems[0]
	return fault.Wrap(p.code, p.err, "%s; %s", p.Reason, p.Remedy)
}

// problems returns all problems; those that stop execs come first.
func (c *Checker) problems(s survey) []Problem {
	problems := []Problem{}
	var warnings []Problem
	for _, p := range c.found(s) {
		if p.code != "" {
			problems = append(problems, p)
		} else {
			warnings = append(warnings, p)
		}
	}
	return append(problems, warnings...)
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
		p = append(p, s.engine.warnings(c.cfg.ContainerUser, c.cfg.WorkspaceVolume != "")...)
		p = append(p, c.podmanProblems(s.engine)...)
		p = append(p, c.runtimeProblem(s.engine)...)
		if s.imageErr != nil {
			p = append(p, c.imageProblem(s.imageErr))
		}
		p = append(p, allowedProblems(s.missing, s.allowedErr)...)
	}
	p = append(p, c.diskProblems(s)...)
	if s.stateFSErr != nil {
		p = append(p, Problem{
			Check: "state_dir", Reason: "the file system of the state dir " + c.cfg.StateDir +
				" cannot be checked, or is on a network, where locks and syncs of the audit are not reliable",
			Remedy: "move it to a local disk: state_dir, or --state-dir",
		})
	}
	if c.cfg.NotCreated {
		p = append(p, Problem{
			Check: "state_dir", Reason: "there is no database in the state dir " + c.cfg.StateDir + " yet",
			Remedy: "`core-api serve` creates it; if a server has run before, give this command the server's --state-dir or --config",
		})
	}
	if user := c.cfg.ContainerUser; user != standardUser {
		p = append(p, Problem{
			Check: "container_user", Reason: "jobs run as " + user + " instead of " + standardUser +
				", so they share that user with other processes on the host",
			Remedy: "run core-api as root or as uid 1000",
		})
	}
	p = append(p, spoolProblems(s, c.cfg.Now)...)
	p = append(p, auditLogProblems(s)...)
	p = append(p, auditWatchProblems(s.auditLog)...)
	p = append(p, retentionProblems(s)...)
	return append(p, c.skillProblems()...)
}

// standardUser is the user of jobs by default.
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
	p := Problem{
		Check: "engine", Reason: "the Docker engine does not answer", Remedy: c.startEngine(), code: fault.EngineUnavailable,
		err: err,
	}
	switch {
	case c.cfg.Cluster != nil:
		p.Reason, p.Remedy = "the cluster's API server does not answer", "check `kubectl get --raw /readyz`, and sandbox.kubernetes"
		if ours := new(fault.Error); errors.As(err, &ours) {
			p.Reason = ours.Message
		}
	case c.cfg.CLI == nil:
		p.Reason, p.Remedy = "the docker CLI was not found", "install Docker, or set sandbox.docker_path to the docker binary"
	case errors.Is(err, errPodmanCommand):
		p.Reason, p.Remedy = "the docker command is podman's own",
			"install Docker's command, and set DOCKER_HOST to the socket of podman's service (docs/platforms.md)"
	case dockercli.IsTooOld(err):
		p.Reason, p.Remedy = "the Docker engine or its command is too old for a workspace in a volume, which needs Docker 26",
			"update Docker, or set sandbox.workspace_root_host to a directory of its machine"
	case !errors.Is(err, errTimeout) && fault.Is(err, fault.Internal):
		p.Reason = "the docker CLI cannot report the state of its engine"
	}
	return p
}

// startEngine returns how to start the engine on this platform.
func (c *Checker) startEngine() string {
	switch {
	case c.cfg.RuntimeMode == "container":
		return "start the engine on the host, and check that its socket is mounted into core-api's container and that core-api's user " +
			"may use it"
	case c.cfg.RuntimeMode == "windows" || c.cfg.RuntimeMode == "wsl" || runtime.GOOS == "darwin":
		return "start Docker Desktop and wait until its engine runs; then `docker info` must work for this user"
	default:
		return "start it (`systemctl start docker`), and check that this user may use it (`docker info`)"
	}
}

func (c *Checker) imageProblem(err error) Problem {
	p := Problem{
		Check: "image", Reason: "the image " + c.cfg.Image + " is not on the engine",
		Remedy: imageRemedy, code: fault.ImageMissing, err: err,
	}
	if fields := fault.From(err).Fields; len(fields) > 0 { // it may be our own image, whose sandbox-init the other one needs
		p.Reason = fields[0].Reason
	}
	if c.cfg.Image != policy.DefaultImage {
		p.Reason += "; execs that name no image run in " + c.cfg.Image + ", by sandbox.policy.image"
	}
	if !fault.Is(err, fault.ImageMissing) {
		p.Reason, p.Remedy = "the engine does not report whether it has the image "+c.cfg.Image,
			"try `docker image inspect "+c.cfg.Image+"` on the engine's host"
		p.code = fault.EngineUnavailable
	}
	return p
}

// imageRemedy is the remedy for a missing image.
const imageRemedy = "build it with `make setup`, or `docker pull` it on the engine's host; nothing is pulled at run time"

// allowedProblems reports images that only skills and requests use.
func allowedProblems(missing []string, err error) []Problem {
	var p []Problem
	for _, ref := range missing {
		p = append(p, Problem{
			Check: "images", Reason: "the image " + ref + " is allowed and not on the engine: an exec that names it is refused",
			Remedy: "build it, or `docker pull` it, on the engine's host; nothing is pulled at run time; or remove it from sandbox.images",
		})
	}
	if err != nil {
		p = append(p, Problem{
			Check: "images", Reason: "the engine does not report whether it has the images of sandbox.images",
			Remedy: "try `docker image ls` on the engine's host", err: err,
		})
	}
	return p
}

// warnFactor times the required free space is the threshold of a warning.
const warnFactor = 4

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
			Remedy: "make room there: it has the database and the captured output of jobs",
		})
	}
	return p
}

// room describes a lack of free space, and whether it stops execs.
func (c *Checker) room(d disk) (reason string, bad bool) {
	for _, r := range []struct {
		free, least uint64
		show        func(uint64) string
	}{{d.bytes, c.cfg.FreeMinBytes, sizeOf}, {d.inodes, c.cfg.FreeMinInodes, countOf}} {
		switch {
		case !d.known || r.least == 0:
		case r.free < r.least:
			return fmt.Sprintf("has %s free, execs are refused below %s", r.show(r.free), r.show(r.least)), true
		case r.free/warnFactor < r.least:
			reason = fmt.Sprintf("has only %s free, execs are refused below %s", r.show(r.free), r.show(r.least))
		}
	}
	return reason, false
}

func diskProblem(check, what, setting string, err error) Problem {
	p := Problem{
		Check: check, Reason: what + " cannot be written", err: err, code: fault.Internal,
		Remedy: "check its owner and its mode, or choose another with " + setting,
	}
	switch {
	case fault.Is(err, fault.DiskFull) || diskspace.IsFull(err):
		p.Reason, p.Remedy, p.code = what+" is on a full disk", "make room there", fault.DiskFull
	case errors.Is(err, errTimeout):
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
