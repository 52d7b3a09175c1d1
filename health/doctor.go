package health

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/netip"
	"os"
	"strings"
	"time"

	"secbox/engine"
	"secbox/engine/dockercli"
	"secbox/fault"
	"secbox/policy"
	"secbox/workspace"
	"secbox/workspace/tree"
)

// DoctorConfig configures a Doctor.
type DoctorConfig struct {
	Checker   *Checker
	Engine    engine.Engine        // nil when there is no docker CLI
	Workspace *workspace.Workspace // of the probes' temporary project; nil when it could not be opened
	Now       func() time.Time     // this machine's clock
	// Share starts an engine with two containers of the spec that wait for any project, and which
	// the Doctor closes; nil, and the reason with the remedy, where containers wait for one project
	// only. Nil: that is not tried.
	Share func(context.Context, engine.Spec) (engine.Engine, string)
	// Project is the name of the temporary project; empty: a random one.
	Project string
}

// Doctor proves on the real engine that the limits of a sandbox hold.
type Doctor struct {
	cfg     DoctorConfig
	project string
}

// NewDoctor returns a Doctor.
func NewDoctor(cfg DoctorConfig) *Doctor {
	return &Doctor{cfg: cfg, project: cmp.Or(cfg.Project, "secbox-doctor-"+strings.ToLower(rand.Text()))}
}

// Probe is the result of one attempt to exceed a limit.
type Probe struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`       // the limit held, and that was measured
	Expected string `json:"expected"` // the expected observation
	Seen     string `json:"seen"`     // the observation, or why it could not be measured
	Remedy   string `json:"remedy"`   // empty when OK
}

// Diagnosis is the result of a Doctor.
type Diagnosis struct {
	Health   Report  `json:"health"`
	Probes   []Probe `json:"probes"`
	NotTried string  `json:"not_tried"` // why probes were not tried; empty: all were
}

// OK reports whether an exec could run and every limit holds.
func (d Diagnosis) OK() bool {
	for _, p := range d.Probes {
		if !p.OK {
			return false
		}
	}
	return d.Health.Status != Unavailable && len(d.Probes) > 0
}

// Run checks everything and runs the probes one after the other, which takes some seconds. Its jobs
// are real containers in a temporary project. Every probe is in the diagnosis, also after failures.
func (d *Doctor) Run(ctx context.Context) Diagnosis {
	var diagnosis Diagnosis
	environment := d.environment(ctx)
	image, err := d.prerequisites(ctx)
	for _, e := range experiments(environment) {
		if err != nil {
			diagnosis.Probes = append(diagnosis.Probes, e.skip()...)
			diagnosis.NotTried = message(err)
			continue
		}
		o := d.run(ctx, e, image)
		diagnosis.Probes = append(diagnosis.Probes, e.judge(o)...)
		if e.needed && !e.holds(o) {
			err = errNoJob
		}
	}
	because := notTried
	if err == nil && d.cfg.Share != nil && ctx.Err() == nil {
		var probes []Probe
		probes, because = d.attachedProbes(ctx, image, environment)
		diagnosis.Probes = append(diagnosis.Probes, probes...)
	}
	if err := d.CleanUp(); err != nil {
		diagnosis.Probes = append(diagnosis.Probes, Probe{
			Name: "clean_up", Expected: "the probes' projects are removed", Seen: message(err),
			Remedy: "remove projects/" + d.project + "* in the workspace root",
		})
	}
	// Last, because a sleeping Docker Desktop takes longer to wake than a report waits.
	diagnosis.Health = d.cfg.Checker.Report(context.WithoutCancel(ctx))
	diagnosis.Health.PoolShared, diagnosis.Health.PoolNotSharedBecause = because == "", because
	return diagnosis
}

// Why probes are not tried.
var (
	errNoJob       = errors.New("not even a harmless job could run")
	errNoWorkspace = errors.New("the workspace could not be opened")
	errInterrupted = errors.New("the doctor was interrupted")
)

// environment determines what the probes depend on.
func (d *Doctor) environment(ctx context.Context) environment {
	cfg := d.cfg.Checker.cfg
	s := environment{
		user: cfg.ContainerUser, readOnlyRootfs: cfg.ReadOnlyRootfs, runtime: cfg.Runtime, dockerRoot: cfg.DockerRoot,
		volume: cfg.WorkspaceVolume, nonce: rand.Text(),
		neighbour: d.neighbour(), cluster: cfg.Cluster != nil, copies: cfg.Copies,
		targets: []string{"1.1.1.1:80", "[2606:4700:4700::1111]:80", "172.17.0.1:80"},
	}
	if cfg.CLI == nil {
		return s
	}
	if info, err := d.cfg.Checker.engine.get(ctx, engineAge); err == nil {
		if s.runtime = d.cfg.Checker.runtimeInUse(info); info.IsPodman() {
			s.runtime = cfg.Runtime // podman names any other runtime "oci"
		}
	}
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	out, err := cfg.CLI.Output(ctx, "network", "inspect", "bridge", "--format", "{{range .IPAM.Config}}{{println .Subnet .Gateway}}{{end}}")
	if gateways := gatewaysIn(string(out)); err == nil && len(gateways) > 0 {
		s.targets = append(s.targets[:2], gateways...)
	}
	return s
}

// gatewaysIn parses lines of "subnet gateway". The gateway of the default bridge is the engine's
// machine, the first one that a container with a network reaches. If the engine does not name it,
// it is the first address of the subnet.
func gatewaysIn(lines string) []string {
	var found []string
	for line := range strings.Lines(lines) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		subnet, err := netip.ParsePrefix(fields[0])
		if err != nil {
			continue
		}
		gateway := subnet.Masked().Addr().Next()
		if len(fields) > 1 {
			if named, err := netip.ParseAddr(fields[1]); err == nil {
				gateway = named
			}
		}
		found = append(found, netip.AddrPortFrom(gateway, 80).String())
	}
	return found
}

// prerequisites resolves the image, or returns why no probe can run.
func (d *Doctor) prerequisites(ctx context.Context) (engine.Image, error) {
	switch {
	case d.cfg.Engine == nil || d.cfg.Checker.cfg.Images == nil:
		return engine.Image{}, d.cfg.Checker.noCLI()
	case d.cfg.Workspace == nil:
		return engine.Image{}, errNoWorkspace
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return d.cfg.Checker.cfg.Images.Resolve(ctx, d.cfg.Checker.cfg.Image)
}

// run runs an experiment until it holds or has no attempts left.
func (d *Doctor) run(ctx context.Context, e experiment, image engine.Image) outcome {
	for try := 1; ; try++ {
		o := d.try(ctx, e, image)
		if try >= e.tries || ctx.Err() != nil || e.holds(o) {
			return o
		}
	}
}

// try runs one job.
func (d *Doctor) try(ctx context.Context, e experiment, image engine.Image) outcome {
	if ctx.Err() != nil {
		return outcome{err: errInterrupted}
	}
	p, err := d.acquire(ctx, d.cfg.Engine, d.project, e, image)
	if err != nil {
		return outcome{err: err}
	}
	return d.runIn(ctx, p, e)
}

// place is where an experiment runs.
type place struct {
	project *workspace.Project
	slot    engine.Slot
}

// spec describes the containers of probes, without their project.
func (d *Doctor) spec(image engine.Image, limits policy.ContainerLimits) engine.Spec {
	return engine.Spec{
		ImageRef: image.Ref, ImageID: image.ID, InitVolume: image.InitVolume, Volumes: image.Volumes,
		Limits: limits, User: d.cfg.Checker.cfg.ContainerUser, Runtime: d.cfg.Checker.cfg.Runtime, Access: "doctor",
	}
}

// acquire returns a slot with the directories of a project that it makes.
func (d *Doctor) acquire(ctx context.Context, on engine.Engine, project string, e experiment, image engine.Image) (p place, err error) {
	if p.project, err = d.cfg.Workspace.Project(project); err != nil {
		return p, err
	}
	spec := d.spec(image, e.limits)
	spec.ProjectID = project
	spec.Prepare = func(_ context.Context, execID string) (engine.MountSet, error) {
		return prepare(p.project, execID, e.inputs)
	}
	p.slot, err = on.Acquire(ctx, spec)
	return p, err
}

// runIn runs the experiment's job.
func (d *Doctor) runIn(ctx context.Context, p place, e experiment) outcome {
	slot, project := p.slot, p.project
	stdout, stderr := &head{limit: outputKept}, &head{limit: outputKept}
	o := outcome{before: d.cfg.Now()}
	job := engine.Job{Argv: e.argv, Cwd: "/workspace/work", Timeout: e.timeout, MaxStdout: e.maxStdout, MaxStderr: outputKept}
	if e.network {
		end, err := withNetwork(&job)
		if err != nil {
			slot.Discard()
			o.err = err
			return o
		}
		defer end()
	}
	jobCtx, wait := ctx, func() {}
	if e.inspect {
		jobCtx, wait = d.inspected(ctx, slot, &job, &o)
	}
	o.exit, o.err = slot.Run(jobCtx, job, stdout, stderr)
	wait()
	o.after = d.cfg.Now()
	o.stdout, o.stderr, o.stdoutPassed = stdout.String(), stderr.String(), stdout.total
	if o.err == nil && e.collect {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		o.artifacts, o.artifactsErr = project.Collect(ctx, slot.ExecID(), outputKept, workspace.FullAccess)
	}
	return o
}

// prepare creates the directories as the runner does, so that probes see the same as execs.
func prepare(project *workspace.Project, execID string, inputs map[string]string) (engine.MountSet, error) {
	var files []workspace.Input
	for name, content := range inputs {
		files = append(files, workspace.Input{Path: name, Content: []byte(content)})
	}
	release, err := project.PutInputs(execID, files)
	if err != nil {
		return engine.MountSet{}, err
	}
	release() // this project has no other users
	prepared, err := project.PrepareMounts(execID, workspace.FullAccess)
	if err != nil {
		return engine.MountSet{}, err
	}
	set := engine.MountSet{Open: prepared.Open}
	for _, m := range prepared.Mounts {
		set.Mounts = append(set.Mounts, engine.Mount(m))
	}
	return set, nil
}

// CleanUp removes the probes' projects, also when the doctor was interrupted or another process was
// killed that had the project.
func (d *Doctor) CleanUp() error {
	if d.cfg.Workspace == nil {
		return nil
	}
	root, err := os.OpenRoot(d.cfg.Workspace.Root())
	if err != nil {
		return err
	}
	defer root.Close()
	projects, err := root.OpenRoot("projects")
	if err != nil {
		return err
	}
	defer projects.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, project := range []string{d.project, d.neighbour()} {
		if _, e := projects.Lstat(project); errors.Is(e, os.ErrNotExist) {
			continue // no job got that far
		}
		_, e := tree.RemoveTree(ctx, projects, project)
		err = errors.Join(err, e)
	}
	return err
}

// message describes an error for the operator: its message and docker's, since there is no log.
func message(err error) string {
	text := err.Error()
	if ours := new(fault.Error); errors.As(err, &ours) {
		text = ours.Message
	}
	if docker := new(dockercli.Error); errors.As(err, &docker) && docker.Stderr != "" {
		text += "; docker said " + quoted(strings.TrimSpace(docker.Stderr))
	}
	return text
}

// outputKept is the most bytes of a probe's output that are kept.
const outputKept = 1 << 20

// head keeps the beginning of the output and counts the rest.
type head struct {
	strings.Builder
	limit int
	total int64
}

func (t *head) Write(p []byte) (int, error) {
	t.total += int64(len(p))
	if room := t.limit - t.Len(); room > 0 {
		t.WriteString(string(p[:min(len(p), room)]))
	}
	return len(p), nil
}
