package server

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"secbox/api"
	"secbox/audit"
	"secbox/diskwatch"
	"secbox/engine"
	"secbox/fault"
	"secbox/policy"
	"secbox/runner"
	"secbox/sandbox"
	"secbox/sandbox/docker"
	"secbox/sandbox/files"
	"secbox/sandbox/none"
	"secbox/sandbox/record"
	"secbox/sandbox/remote"
	"secbox/tokens"
	"secbox/workspace"
)

// sandboxes are where users work, as the API asks for them: a record of every command around the router.
type sandboxes struct {
	*record.Recorder
	*choices
	hub *remote.Hub
}

// choices is the part of the router that no other sandbox has.
type choices struct{ router *sandbox.Router }

func (c choices) Chosen(ctx context.Context, userID string) (sandbox.Choice, error) {
	return c.router.Chosen(ctx, userID)
}

func (c choices) Choose(ctx context.Context, choice sandbox.Choice) (sandbox.Choice, error) {
	return c.router.Choose(ctx, choice)
}

func (c choices) Backends() []string { return c.router.Backends() }

// sandboxParts is what the sandboxes are made of beside the deps.
type sandboxParts struct {
	log      *audit.Log
	choices  sandbox.Choices
	tokens   *tokens.Service
	policy   *policy.Resolver
	host     func() policy.Host
	cold     *engine.Cold
	disk     *diskwatch.Watcher
	nodeID   string
	environ  []string
	observer record.Observer
}

// newSandboxes switches on what the settings allow: docker and remote always, none by its name only.
func (d *Deps) newSandboxes(p sandboxParts) (*sandboxes, error) {
	s := d.settings.Sandboxes
	tool, err := d.versions.Tool().Place()
	if err != nil {
		return nil, err
	}
	readOnly := []sandbox.ReadOnlyRoot{{Path: workspace.ToolTarget, Dir: tool.Path, Mount: tool.Mount}}
	all := &sandboxes{}
	all.hub = remote.NewHub(remote.Config{
		Log: d.log, Now: time.Now, Version: Version, Heartbeat: seconds(s.HeartbeatSeconds), Grace: seconds(s.RunnerGraceSeconds), Valid: p.tokens.Valid,
		Late: func(ctx context.Context, user sandbox.User, execID string, result sandbox.ExecResult) error {
			return all.Late(ctx, user, execID, result)
		},
		ReadOnlyRoots: []string{workspace.ToolTarget},
	})
	backends := []sandbox.Backend{
		docker.New(docker.Config{
			Directories: files.Workspaces{Workspace: d.Workspace}, Workspace: d.Workspace, Engine: p.cold, Images: d.Images, Container: func() docker.Container { return d.container(p) },
			Disk:    p.disk,
			IdleFor: seconds(s.IdleSeconds), Max: s.MaxContainers, MaxPerToken: s.MaxContainersPerToken, ReadOnlyRoots: readOnly, Log: d.log, Now: time.Now,
		}),
		all.hub,
	}
	if s.None {
		backends = append(backends, none.New(none.Config{Directories: files.Workspaces{Workspace: d.Workspace}, ReadOnly: readOnly, Environ: p.environ, Room: d.roomToWrite}))
		d.log.Warn("the sandbox backend none is allowed: who chooses it runs commands on this machine, as the user that core-api is")
	}
	router, err := sandbox.NewRouter(sandbox.RouterConfig{Backends: backends, Default: s.Backend, Choices: p.choices})
	if err != nil {
		return nil, err
	}
	all.choices = &choices{router}
	all.Recorder = record.New(record.Config{
		Sandbox: router, Log: p.log, Policy: p.policy, Host: p.host, NodeID: p.nodeID, Now: time.Now, NewID: NewID, Logger: d.log, Observer: p.observer,
		Enter: func(l sandbox.Location) (func(), error) {
			if sandbox.TraitsOf(l.Backend).UserMachine {
				return func() {}, nil
			}
			project, err := d.Workspace.Project(l.User.ProjectID())
			if err != nil {
				return nil, err
			}
			return project.UseInExec() // skills are not moved about under a command
		},
	})
	return all, nil
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// container is what a user's container is made as: what the policy gives an exec that asks for nothing.
func (d *Deps) container(p sandboxParts) docker.Container {
	snapshot, err := p.policy.Resolve(nil, policy.Layer{}, p.host())
	v := snapshot.Values
	if err != nil { // the settings' own values were checked against their ceilings
		d.log.Error("the policy of users' containers cannot be resolved", "error", err)
		v = policy.Defaults()
	}
	c := docker.Container{
		Image: v.Image, Limits: engine.Limits{MemoryMB: v.MemoryMB, CPUCores: v.CPUCores, PIDs: v.PIDs, TmpMB: v.TmpMB}, User: d.User, Runtime: v.Runtime,
	}
	switch work := v.MountModes().Work; work {
	case policy.ReadWrite:
	case policy.ReadOnly:
		c.ReadOnly = true
	default:
		c.Refused = fault.New(fault.PolicyDenied, "the settings' policy lets no command see a workspace: fs.read and fs.write leave out %s", policy.PatternWork)
	}
	return c
}

// roomToWrite is fault.DiskFull when the workspace's disk has less left than execs are started with.
func (d *Deps) roomToWrite() error {
	bytes, inodes, err := d.Workspace.Free()
	if err != nil {
		return err
	}
	if s := d.settings.Sandbox; bytes < uint64(s.DiskFreeMinBytes) || inodes < uint64(s.DiskFreeMinInodes) {
		return fault.New(fault.DiskFull, "the workspace's disk has %d MiB and %d inodes left, too little to write; free some space", bytes>>20, inodes)
	}
	return nil
}

// cancelers ends commands wherever they run: in an exec's container or in a sandbox.
type cancelers struct {
	*runner.Runner
	sandboxes *record.Recorder
}

// Cancel implements api.Runner.
func (c cancelers) Cancel(ctx context.Context, execID string) error {
	if c.sandboxes.Cancel(execID) {
		return nil
	}
	return c.Runner.Cancel(ctx, execID)
}

// dialled are the machines of users as the API shows and serves them.
type dialled struct{ hub *remote.Hub }

func (d dialled) Connected() []api.ConnectedRunner {
	all := d.hub.Runners()
	out := make([]api.ConnectedRunner, len(all))
	for i, r := range all {
		out[i] = api.ConnectedRunner{
			UserID: r.UserID, Name: r.Name, Version: r.Version, Os: r.OS, Arch: r.Arch, Allow: append([]string{}, r.Allow...),
			ConnectedSince: api.Timestamp(r.ConnectedSince.UTC()), LatencyMS: float64(r.Latency.Microseconds()) / 1000, InFlight: r.InFlight,
		}
	}
	return out
}

func (d dialled) ServeLink(w http.ResponseWriter, r *http.Request, caller tokens.Token) {
	d.hub.ServeLink(w, r, remote.Caller{TokenID: caller.ID, UserID: caller.UserID})
}

func (d dialled) ServeTransfer(w http.ResponseWriter, r *http.Request, id string, caller tokens.Token) {
	d.hub.ServeTransfer(w, r, id, remote.Caller{TokenID: caller.ID, UserID: caller.UserID})
}

// commandMetrics are the numbers about commands in sandboxes; those about execs are apart, since they say how fast containers start.
type commandMetrics struct {
	ended    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newCommandMetrics(registry *prometheus.Registry) *commandMetrics {
	m := &commandMetrics{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "secbox_sandbox_commands_total", Help: "Commands in users' sandboxes that ended, by backend, status and reason.",
		}, []string{"backend", "status", "reason"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "secbox_sandbox_command_duration_seconds", Help: "Time from the start to the end of a command in a user's sandbox.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}, []string{"backend"}),
	}
	registry.MustRegister(m.ended, m.duration)
	return m
}

// watch adds what can only be looked at.
func (m *commandMetrics) watch(registry *prometheus.Registry, s *sandboxes) {
	registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "secbox_sandbox_commands_running", Help: "Commands that run in users' sandboxes now."},
			func() float64 { return float64(s.Running()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "secbox_runners_connected", Help: "Users' machines that are connected to this node."},
			func() float64 { return float64(len(s.hub.Runners())) }),
	)
}

// Ended implements record.Observer.
func (m *commandMetrics) Ended(r audit.Record) {
	m.ended.WithLabelValues(r.Backend, string(r.Status), string(r.ErrorReason)).Inc()
	if !r.StartedAt.IsZero() {
		m.duration.WithLabelValues(r.Backend).Observe(r.EndedAt.Sub(r.StartedAt).Seconds())
	}
}
