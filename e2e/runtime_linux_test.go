package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"secbox/engine"
	"secbox/engine/enginetest"
	"secbox/settings"
)

// suitePrograms are what the jobs of the engine's suite and of the doctor's probes call.
var suitePrograms = strings.Fields("awk chmod cut date df env grep head hostname id ls mkdir mkfifo python python3 rm sed seq setsid sha256sum sort tail tr uname wc yes")

// dependOnRuntime are the cases of the engine's suite that another runtime could break: the others
// are about what the engine and sandbox-init say to each other.
var dependOnRuntime = []string{
	"HardeningFromInside", "HardeningAsDocker", "SystemCalls", "OutOfMemory", "ForkBomb", "DeadlineKillsTheTree", "AThirdOfACore", "ReadOnlyAndMissingMounts",
	"WritesIntoMounts", "ContainerKilledOutside",
}

// TestRuntime runs everything that makes a sandbox under crun, on an engine that was told of it:
// the one of the machine may not have been.
func TestRuntime(t *testing.T) {
	t.Parallel()
	e := newOwnEngine(t)
	e.args = []string{"--add-runtime", "crun=" + crunFor(t, e)}
	e.start()
	e.loadImage(suitePrograms...)
	under := func(t *testing.T, name string) *testServer {
		return startWith(t, t.TempDir(), e.environ(), noPool, func(s *settings.Settings) { s.Sandbox.Runtime = name })
	}
	t.Run("is what containers run under", func(t *testing.T) { t.Parallel(); chosenRuntime(t, under(t, "crun"), under(t, "")) })
	t.Run("passes the doctor", func(t *testing.T) { t.Parallel(); doctorUnderRuntime(t, e) })
	t.Run("cold engine", func(t *testing.T) {
		t.Parallel()
		where := enginetest.Where{Environ: e.environ(), Runtime: "crun", Only: dependOnRuntime}
		if scaled(0, 1) == 1 {
			where.Only = nil
		}
		where.Run(t, func(_ *testing.T, cfg engine.Config) engine.Engine { return engine.NewCold(cfg) })
	})
}

// hiddenHierarchy starts a runtime where it sees no cgroup v2 hierarchy.
const hiddenHierarchy = `#!/bin/sh
exec unshare --mount sh -c 'umount /sys/fs/cgroup/unified && exec "$0" "$@"' CRUN "$@"
`

// crunFor is the program that the engine is to start. Where cgroup v1 has a v2 hierarchy with
// controllers of its own beside it, crun refuses to do anything ("cgroups in hybrid mode not
// supported"); there it runs where that hierarchy is hidden.
func crunFor(t *testing.T, e *ownEngine) string {
	t.Helper()
	crun, err := exec.LookPath("crun")
	if err != nil {
		t.Fatalf("%v; run `make setup`", err)
	}
	controllers, _ := os.ReadFile("/sys/fs/cgroup/unified/cgroup.controllers")
	if len(bytes.TrimSpace(controllers)) == 0 {
		return crun
	}
	wrapped := e.path("crun")
	if err := os.WriteFile(wrapped, []byte(strings.Replace(hiddenHierarchy, "CRUN", crun, 1)), 0o755); err != nil {
		t.Fatal(err)
	}
	return wrapped
}

// chosenRuntime compares a server whose operator chose with one that leaves it to the engine:
// nothing but the runtime differs.
func chosenRuntime(t *testing.T, chosen, plain *testServer) {
	runtimes := map[*testServer]string{chosen: "crun", plain: "runc"}
	hosts := map[*testServer]any{}
	for s, want := range runtimes {
		health := s.send(http.MethodGet, "/sandbox/health", nil)
		if health.Code != http.StatusOK || health.json(t).str("engine_runtime") != want {
			t.Errorf("health: %d %s", health.Code, health.Body)
		}
		running := s.post(shell("demo", waiting("echo done")))
		id := s.awaitStart("demo")
		var host map[string]any
		said := s.docker("inspect", "--format", "{{json .HostConfig}}", "secbox-"+id)
		if err := json.Unmarshal([]byte(strings.NewReplacer(s.dir, "DIR", id, "ID").Replace(said)), &host); err != nil {
			t.Fatal(err)
		}
		s.letGo("demo")
		running.result().wants(t, object{"exec_id": id, "status": "succeeded", "stdout": "done\n"})
		if host["Runtime"] != want {
			t.Errorf("the container ran under %v, want %s", host["Runtime"], want)
		}
		delete(host, "Runtime")
		hosts[s] = host
	}
	if !reflect.DeepEqual(hosts[chosen], hosts[plain]) {
		t.Errorf("under crun a container is confined otherwise:\n%v\n%v", hosts[chosen], hosts[plain])
	}
	for s, want := range map[*testServer]object{
		chosen: {"value": "crun", "layer": "settings", "ceiling": "crun", "ceiling_from": "settings"},
		plain:  {"value": "", "layer": "default", "ceiling": "", "ceiling_from": "default"},
	} {
		record := s.get("/sandbox/execs/" + s.get("/sandbox/execs").list("items")[0].str("exec_id"))
		resolved := s.send(http.MethodPost, "/sandbox/policy/resolve", object{"project_id": "demo"})
		for what, got := range map[string]any{"the record": record.at("policy_snapshot.fields.runtime"), "resolve": resolved.json(t).at("fields.runtime")} {
			if !reflect.DeepEqual(got, map[string]any(want)) {
				t.Errorf("%s says %v, want %v", what, got, want)
			}
		}
	}
}

// doctorUnderRuntime has every probe run in containers of that runtime.
func doctorUnderRuntime(t *testing.T, e *ownEngine) {
	dir := t.TempDir()
	code, stdout, stderr := cli(t, append(e.environ(), "CORE_API_SANDBOX_RUNTIME=crun"),
		"doctor", "--json", "--state-dir", filepath.Join(dir, "state"), "--workspace-root", filepath.Join(dir, "workspace"))
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	said := answer{Body: []byte(stdout)}.json(t)
	probes := said.list("probes")
	i := slices.IndexFunc(probes, func(p object) bool { return p.str("name") == "runtime" })
	if said.str("health.engine_runtime") != "crun" || i < 0 || probes[i].str("seen") != "crun" {
		t.Errorf("%v", said)
	}
}

// TestUnknownRuntime checks that health and execs name a runtime that the engine does not have.
func TestUnknownRuntime(t *testing.T) {
	t.Parallel()
	s := start(t, noPool, func(s *settings.Settings) { s.Sandbox.Runtime = "nosuch" })
	health := s.send(http.MethodGet, "/sandbox/health", nil)
	i := slices.IndexFunc(health.json(t).list("problems"), func(p object) bool { return p.str("check") == "runtime" })
	if health.Code != http.StatusServiceUnavailable || health.json(t).str("engine_runtime") != "nosuch" || i < 0 {
		t.Fatalf("/sandbox/health: %d %s", health.Code, health.Body)
	}
	problem := health.json(t).list("problems")[i]
	if !strings.HasPrefix(problem.str("reason"), `the engine knows no runtime "nosuch"; it has `) ||
		!strings.Contains(problem.str("remedy"), "sandbox.runtime") {
		t.Errorf("%v", problem)
	}
	if ready := s.send(http.MethodGet, "/readyz", nil); ready.Code != http.StatusServiceUnavailable ||
		!strings.Contains(ready.json(t).str("detail"), "nosuch") {
		t.Errorf("/readyz: %d %s", ready.Code, ready.Body)
	}
	a := s.send(http.MethodPost, "/sandbox/execs", shell("demo", "true"))
	if a.Code < 500 || !strings.Contains(a.json(t).str("detail"), "sandbox.runtime") {
		t.Errorf("an exec: %d %s", a.Code, a.Body)
	}
	s.get("/sandbox/execs/"+a.json(t).str("exec_id")).wants(t, object{"status": "error", "error_reason": "start_failed", "started_at": nil})
	s.noContainers()
}

// TestRequestCannotChooseRuntime checks that only the operator chooses the runtime.
func TestRequestCannotChooseRuntime(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for path, request := range map[string]object{
		"/sandbox/execs":          shell("no-runtime", "true", "policy_overrides", object{"runtime": "runc"}),
		"/sandbox/policy/resolve": {"project_id": "no-runtime", "policy_overrides": object{"runtime": "runc"}},
	} {
		a := s.send(http.MethodPost, path, request)
		if errors := a.json(t).list("errors"); a.Code != http.StatusBadRequest || len(errors) != 1 || !strings.Contains(errors[0].str("field"), "runtime") {
			t.Errorf("%s: %d %s", path, a.Code, a.Body)
		}
	}
	if items := s.get("/sandbox/execs?project_id=no-runtime").list("items"); len(items) != 0 {
		t.Errorf("there are records: %v", items)
	}
}
