package health

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/engine"
)

// attachedExperiments returns the experiments for containers that serve any project.
func attachedExperiments(s environment) []experiment {
	return []experiment{attachedMounts(s), neighbours(s)}
}

func TestNeighboursJudge(t *testing.T) {
	t.Parallel()
	const flags = `"flags":{"inputs":["nosuid","nodev"],"work":["nosuid","nodev"],"artifacts":["nosuid","nodev"]}`
	for stdout, want := range map[string]string{
		`{"own":["/workspace/inputs/own"],"other":[],"mounts":[],` + flags + `}`:                                              "",
		`{"own":[],"other":[],"mounts":[],` + flags + `}`:                                                                     "own file is there 0 times",
		`{"own":["/a","/b"],"other":[],"mounts":[],` + flags + `}`:                                                            "own file is there 2 times",
		`{"own":["/a"],"other":["/workspace/b"],"mounts":[],` + flags + `}`:                                                   "another project's /workspace/b",
		`{"own":["/a"],"other":[],"mounts":["1 2 /other"],` + flags + `}`:                                                     "a mount of another project",
		`{"own":["/a"],"other":[],"mounts":[],"flags":{"inputs":["nosuid","nodev"],"work":["nosuid"],"artifacts":["nodev"]}}`: "work/ is mounted without nodev",
		`{"own":["/a"],"other":[],"mounts":[]}`:                                                                               "incomplete",
	} {
		p := neighbours(standard()).judge(outcome{stdout: stdout})[0]
		if p.OK != (want == "") || !strings.Contains(p.Seen, want) {
			t.Errorf("%s: %+v, want %q", stdout, p, want)
		}
	}
}

// attaching is an engine that says that its containers waited for any project.
type attaching struct{ engine.Engine }

type attachedSlot struct{ engine.Slot }

func (attachedSlot) Attached() bool { return true }

func (a attaching) Acquire(ctx context.Context, spec engine.Spec) (engine.Slot, error) {
	slot, err := a.Engine.Acquire(ctx, spec)
	return attachedSlot{slot}, err
}

// TestAttachedProbesCanFail has the probes run in containers with too many rights.
func TestAttachedProbesCanFail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		probe, seen string
		edit        func(neighbour string) func([]string) []string
	}{
		"writable inputs": {"attached_inputs", "writable", func(string) func([]string) []string { return replacing(",readonly", "") }},
		"set-user-id":     {"neighbours", "without nosuid", func(string) func([]string) []string { return with() }},
		"another project": {"neighbours", "another project's /mnt/", func(neighbour string) func([]string) []string {
			return with("--mount", "type=bind,source="+neighbour+",target=/mnt")
		}},
		"a missing artifact": {"attached_artifacts", "artifacts", func(string) func([]string) []string {
			return replacing("target=/workspace/artifacts", "target=/workspace/elsewhere")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, ws := realConfig(t)
			d := NewDoctor(DoctorConfig{Checker: patient(cfg), Workspace: ws, Now: time.Now})
			d.cfg.Engine = realEngine(t, cfg, c.edit(filepath.Join(ws.Root(), "projects", d.neighbour())), nil)
			d.cfg.Share = func(context.Context, engine.Spec) (engine.Engine, string) { return attaching{d.cfg.Engine}, "" }
			image, err := d.prerequisites(t.Context())
			if err != nil {
				t.Fatalf("%v; run `make setup`", err)
			}
			probes, because := d.attachedProbes(t.Context(), image, d.environment(t.Context()))
			if p := find(t, Diagnosis{Probes: probes}, c.probe); p.OK || !strings.Contains(p.Seen, c.seen) || because != "" {
				t.Errorf("%+v, %q", p, because)
			}
			if err := d.CleanUp(); err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(filepath.Join(ws.Root(), "projects")); err != nil || len(left) != 0 {
				t.Errorf("the doctor left %v (%v)", left, err)
			}
		})
	}
}

// TestDoctorSaysWhyNothingIsShared: without containers for any project there is a reason and no
// probe, and a container that was not attached proves nothing.
func TestDoctorSaysWhyNothingIsShared(t *testing.T) {
	t.Parallel()
	cfg, ws := realConfig(t)
	e := realEngine(t, cfg, nil, nil)
	d := NewDoctor(DoctorConfig{
		Checker: patient(cfg), Workspace: ws, Now: time.Now, Engine: e,
		Share: func(context.Context, engine.Spec) (engine.Engine, string) { return nil, "pool.share is false" },
	})
	image, err := d.prerequisites(t.Context())
	if err != nil {
		t.Fatalf("%v; run `make setup`", err)
	}
	s := d.environment(t.Context())
	if probes, because := d.attachedProbes(t.Context(), image, s); len(probes) > 0 || because != "pool.share is false" {
		t.Errorf("%+v %q", probes, because)
	}
	d.cfg.Share = func(context.Context, engine.Spec) (engine.Engine, string) { return e, "" }
	probes, _ := d.attachedProbes(t.Context(), image, s)
	if len(probes) != 3 || slices.ContainsFunc(probes, func(p Probe) bool { return p.OK || !strings.Contains(p.Seen, "no container waited") }) {
		t.Errorf("%+v", probes)
	}
	if err := d.CleanUp(); err != nil {
		t.Error(err)
	}
}
