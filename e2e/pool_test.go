package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/settings"
)

// fill has so many containers wait for such a request; the project is made by it. As many are kept
// as were asked for lately, so on a slow machine it asks again.
func (s *testServer) fill(request object, n int) {
	s.t.Helper()
	k, ok := s.keyOf(request)
	if !ok {
		s.t.Fatalf("policy refuses %v", request)
	}
	eventually(s.t, fmt.Sprintf("%d containers wait for %+v", n, k), func() bool {
		report := s.get("/sandbox/pool")
		if found, _ := k.find(report); found.num("wanted") < float64(n) {
			s.unprepared().exec(request).wants(s.t, object{"status": "succeeded"})
		}
		return k.idle(report) >= float64(n)
	})
}

// meta reads an exec's meta.json from disk.
func (s *testServer) meta(result object) object {
	s.t.Helper()
	content, err := os.ReadFile(filepath.Join(s.dir, "workspace", result.str("artifacts_dir"), "meta.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{Body: content}.json(s.t)
}

// metric is the value of a line of /metrics; 0 when it is not there.
func (s *testServer) metric(name string) (value float64) {
	s.t.Helper()
	for line := range strings.Lines(string(s.send(http.MethodGet, "/metrics", nil).Body)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			if _, err := fmt.Sscan(rest, &value); err != nil {
				s.t.Errorf("%s: %v", line, err)
			}
		}
	}
	return value
}

// TestWarmIsReported checks that answer, record, meta.json, metrics and the pool's report agree on
// warm and cold.
func TestWarmIsReported(t *testing.T) {
	t.Parallel()
	for name, share := range map[string]bool{"for any project": true, "for one project each": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if share && !canShare() {
				share = false
			}
			warmIsReported(t, share)
		})
	}
}

func warmIsReported(t *testing.T, share bool) {
	s := tidy(t, func(c *settings.Settings) { c.Pool.Share = share })
	told := func(result object, warm bool) {
		t.Helper()
		result.wants(t, object{"status": "succeeded", "warm": warm})
		s.get("/sandbox/execs/"+result.str("exec_id")).wants(t, object{"warm": warm})
		s.meta(result).wants(t, object{"warm": warm})
	}
	request := shell("demo", "echo works")
	told(s.exec(request), false)
	hits, misses := 3.0, 1.0
	for range 3 {
		told(s.serving(warm).exec(request), true)
	}
	if share {
		hits++
		told(s.serving(warm).exec(shell("other", "true")), true)
	} else {
		misses++
		told(s.exec(shell("other", "true")), false)
	}
	s.serving(warm).exec(shell("other", "exit 3"))
	hits++

	report := s.get("/sandbox/pool")
	report.wants(t, object{
		"enabled": true, "max": 32, "max_per_key": 4, "hits": hits, "misses": misses, "refill_failures": 0, "age_ms.n": hits, "dropped.dead": 0,
		"dropped.stale": 0,
	})
	keys := report.list("keys")
	if share {
		if len(keys) != 1 {
			t.Fatalf("keys %v", keys)
		}
		keys[0].wants(t, object{"project_id": "", "access": ""})
	} else {
		if len(keys) != 2 {
			t.Fatalf("keys %v", keys)
		}
		slices.SortFunc(keys, func(a, b object) int { return strings.Compare(a.str("project_id"), b.str("project_id")) })
		keys[0].wants(t, object{"project_id": "demo", "access": "inputs:ro,work:rw,artifacts:rw"})
		keys[1].wants(t, object{"project_id": "other"})
	}
	keys[0].wants(t, object{"image": "secbox-sandbox:latest", "memory_mb": 1024, "cpu_cores": 1, "pids": 256, "tmp_mb": 256, "shm_mb": 1024})
	if id := s.get("/sandbox/execs").list("items")[0].str("image_id"); keys[0].str("image_id") != id || id == "" {
		t.Errorf("image ids %s and %s", id, keys[0].str("image_id"))
	}
	for name, want := range map[string]float64{
		`secbox_execs_total{reason="",status="succeeded",warm="true"}`:          hits - 1,
		`secbox_execs_total{reason="",status="succeeded",warm="false"}`:         misses,
		`secbox_execs_total{reason="nonzero_exit",status="failed",warm="true"}`: 1,
		`secbox_exec_duration_seconds_count{warm="true"}`:                       hits,
		`secbox_exec_duration_seconds_count{warm="false"}`:                      misses,
		`secbox_pool_requests_total{result="hit"}`:                              hits,
		`secbox_pool_requests_total{result="miss"}`:                             misses,
		`secbox_pool_slot_age_seconds_count`:                                    hits,
		`secbox_pool_refills_total{result="failed"}`:                            0,
		`secbox_pool_dropped_total{reason="dead"}`:                              0,
	} {
		if got := s.metric(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	eventually(t, "metrics, report and docker agree on what waits", func() bool {
		got, report, there := s.metric(`secbox_pool_slots{state="waiting"}`), s.get("/sandbox/pool"), len(s.containers())
		return report.num("starting") == 0 && got >= float64(len(keys)) && report.num("idle") == got && report.num("memory_mb") == got*16 &&
			float64(there) == got
	})
}

func TestPoolThatIsOff(t *testing.T) {
	t.Parallel()
	s := tidy(t, noPool).serving(cold)
	for range 2 {
		s.works("demo").wants(t, object{"warm": false})
	}
	report := s.get("/sandbox/pool")
	report.wants(t, object{"enabled": false, "max": 0, "idle": 0, "starting": 0, "hits": 0, "misses": 0, "refills": 0, "keys": "[]"})
	eventually(t, "no containers", func() bool { return len(s.containers()) == 0 })
	if stray := s.withoutRow("demo"); len(stray) > 0 {
		t.Errorf("directories without an exec: %v", stray)
	}
}

// TestPoolAccess checks which roles may read the pool: it names projects, so workers may not.
func TestPoolAccess(t *testing.T) {
	t.Parallel()
	s := tidy(t, noPool)
	_, admin := s.newToken(tokens.Spec{Role: tokens.Admin})
	for role, want := range map[tokens.Role]int{
		tokens.Admin: 200, tokens.Auditor: 200, tokens.Worker: 403, tokens.Runner: 403, tokens.AgentAdmin: 403,
	} {
		spec := tokens.Spec{Role: role}
		switch role {
		case tokens.Runner:
			spec.UserID = "user"
		case tokens.AgentAdmin:
			spec.Agents = []string{"agent"}
		}
		_, secret := s.newToken(spec)
		if a := s.as(secret).send(http.MethodGet, "/sandbox/pool", nil); a.Code != want {
			t.Errorf("%s: %d %s, want %d", role, a.Code, a.Body, want)
		}
	}
	if a := s.send(http.MethodGet, "/sandbox/pool", nil); a.Code != http.StatusUnauthorized {
		t.Errorf("no token: %d %s", a.Code, a.Body)
	}
	s.as(admin).works("demo")
}

// limitsInside prints what the kernel holds a container to, under cgroup v1 and v2.
const limitsInside = `cd /sys/fs/cgroup
	cat memory/memory.limit_in_bytes memory.max 2>/dev/null
	cat pids/pids.max pids.max 2>/dev/null
	cat cpu/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 cpu.max
	for d in /tmp /dev/shm; do grep " $d " /proc/mounts | grep -o 'size=[0-9]*k'; done`

// TestLimitsNeverShareASlot checks that an exec gets its own limits while containers with other
// limits wait.
func TestLimitsNeverShareASlot(t *testing.T) {
	t.Parallel()
	s := tidy(t)
	s.fill(shell("demo", "true"), 1)
	type limits struct {
		memory, pids int
		cpus         float64
		tmp, shm     int
	}
	// engine.TestPoolKeys has each limit alone.
	for _, c := range []limits{{1024, 256, 1, 256, 1024}, {64, 32, 0.5, 16, 32}} {
		request := shell("demo", limitsInside, "policy_overrides",
			object{"memory_mb": c.memory, "pids": c.pids, "cpu_cores": c.cpus, "tmp_mb": c.tmp, "shm_mb": c.shm})
		shm := c.shm
		if shm == c.memory { // the memory is the limit
			shm = 64 << 10
		}
		want := fmt.Sprintf("%d\n%d\n%d\nsize=%dk\nsize=%dk\n", c.memory<<20, c.pids, int(c.cpus*100_000), c.tmp<<10, shm<<10)
		hows := []serving{""}
		if c.memory == 64 { // once: a waiting container has the limits that it was started with
			hows = append(hows, warm)
		}
		for _, how := range hows {
			if result := s.serving(how).exec(request); result.str("stdout") != want {
				t.Errorf("%+v (%s): inside it is\n%s, want\n%s", c, how, result.str("stdout"), want)
			}
		}
	}
}

// TestSettingsChangeUnderAFullPool restarts a server with other settings: containers started with
// the old ones must not be used.
func TestSettingsChangeUnderAFullPool(t *testing.T) {
	t.Parallel()
	dir := hostileDir(t)
	request := shell("demo", "id -u; awk '$2==\"/\" {print substr($4, 1, 2)}' /proc/mounts; { "+limitsInside+"; } | head -1")
	memory := int64(128)
	for _, c := range []struct {
		name   string
		change func(*settings.Settings)
		want   string
	}{
		{"as it comes", func(*settings.Settings) {}, "1000\nro\n1073741824\n"},
		{"less memory, another user, a root that may be written and a runtime by its name", func(s *settings.Settings) {
			s.Sandbox.Policy.MemoryMB, s.Sandbox.User, s.Sandbox.ReadOnlyRootfs, s.Sandbox.Runtime = &memory, "1234:1234", false, "runc"
		}, "1234\nrw\n134217728\n"},
		{"as it comes, again", func(*settings.Settings) {}, "1000\nro\n1073741824\n"},
	} {
		s := tidyIn(t, dir, c.change)
		first := s.exec(request)
		first.wants(t, object{"warm": false, "stdout": c.want})
		result := s.serving(warm).exec(request)
		result.wants(t, object{"status": "succeeded", "stdout": c.want})
		args := func(result object) string {
			args, _ := withoutMounts(s.meta(result))
			return strings.ReplaceAll(strings.Join(args, " "), result.str("exec_id"), "ID")
		}
		if args(result) != args(first) || strings.Contains(args(result), "--runtime") != strings.Contains(c.name, "runtime") {
			t.Errorf("%s: warm %s\ncold %s", c.name, args(result), args(first))
		}
		s.awaitWaiting(request, 1)
		if err := s.app.Close(); err != nil {
			t.Fatal(err)
		}
		if left := s.containers(); len(left) > 0 {
			t.Errorf("%s: containers outlive the server: %v", c.name, left)
		}
		s.noStray(dir, "demo")
	}
}

// noStray looks, beside a server that has ended, for directories of execs that never ran.
func (s *testServer) noStray(dir, project string) {
	s.t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "workspace/projects", project, "artifacts"))
	if err != nil {
		s.t.Error(err)
	}
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(dir, "workspace/projects", project, "artifacts", e.Name(), "meta.json")); err != nil {
			s.t.Errorf("artifacts/%s is of no exec that ran: %v", e.Name(), err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "state/allotted")); err != nil || len(left) > 0 {
		s.t.Errorf("pending directories are left: %v %v", left, err)
	}
}
