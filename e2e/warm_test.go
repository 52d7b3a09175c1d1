package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"secbox/policy"
	"secbox/settings"
	"secbox/workspace"
)

// serving is how a server's execs get their containers.
type serving string

const (
	cold serving = "cold" // each starts its own
	warm serving = "warm" // each finds one that was started before
)

// coldAndWarm runs a test twice, with cold and with warm containers.
func coldAndWarm(t *testing.T, test func(t *testing.T, how serving)) {
	t.Helper()
	for _, how := range []serving{cold, warm} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			test(t, how)
		})
	}
}

// onWaiting runs a test on the common server whose containers wait, and with SECBOX_SOAK=1 also on
// the one without. Each exec, also the first of its project, finds a container that waited for any
// project, where those can be.
func onWaiting(t *testing.T, test func(t *testing.T, s *testServer)) {
	t.Helper()
	if scaled(0, 1) == 1 {
		t.Run(string(cold), func(t *testing.T) {
			t.Parallel()
			test(t, shared(t))
		})
	}
	t.Run(string(warm), func(t *testing.T) {
		t.Parallel()
		s := sharedWarm(t)
		t.Run("waited", func(t *testing.T) { test(t, s.with(t)) }) // returns after parallel subtests
		if report := s.get("/sandbox/pool"); report.at("shared") != canShare() || report.num("unattached") > 0 {
			t.Errorf("%v", report)
		}
		for _, row := range s.records("") {
			if row.at("warm") == true && row.at("attached") != canShare() {
				t.Errorf("not in a container that serves any project: %v", row)
			}
		}
	})
}

// settings changes s for a server that serves so.
func (how serving) settings(s *settings.Settings) {
	if how == cold {
		s.Pool.Max = 0
		return
	}
	s.Sandbox.MaxConcurrentExecs = max(s.Sandbox.MaxConcurrentExecs, 64) // a queued exec is cold
}

// noPool is for tests that count containers and directories, where those that wait would be in the
// way.
func noPool(s *settings.Settings) { cold.settings(s) }

// serving returns the same server, whose execs are made cold or warm.
func (s *testServer) serving(how serving) *testServer {
	mine := *s
	mine.how = how
	return &mine
}

// ready has n containers wait from the start, where they can serve any project.
func ready(n int) func(*settings.Settings) {
	return func(s *settings.Settings) { s.Pool.Ready = n }
}

// perProject makes waiting containers serve one project each, as where directories cannot be
// attached to them.
func perProject(s *settings.Settings) { s.Pool.Share = false }

// canShare reports whether directories can be attached to waiting containers on this machine, so
// that each serves any project.
func canShare() bool { return runtime.GOOS == "linux" && os.Geteuid() == 0 }

// turn is held by the one request that is to get the container that waits, until it has it: the
// container may be any project's.
type turn struct {
	mu   sync.Mutex
	hits float64 // of the pool before the request
}

func (t *turn) end() { t.mu.Unlock() }

// poolKey is the key of a waiting container: it serves requests with the same values.
type poolKey struct {
	project, image, access             string // no project and access: it serves any
	memory, cpus, processes, temp, shm float64
}

// keyOf is the key of a request; false for one that policy refuses.
func (s *testServer) keyOf(request object) (poolKey, bool) {
	s.t.Helper()
	var r struct {
		Project   string         `json:"project_id"`
		Overrides map[string]any `json:"policy_overrides"`
		Image     string         `json:"image"`
	}
	text, err := json.Marshal(request)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	overrides := object{}
	for name, value := range r.Overrides {
		overrides[name] = value
	}
	if r.Image != "" {
		overrides["image"] = r.Image
	}
	a := s.send(http.MethodPost, "/sandbox/policy/resolve", object{"project_id": r.Project, "policy_overrides": overrides})
	if a.Code != http.StatusOK {
		return poolKey{}, false
	}
	fields, _ := a.json(s.t).at("fields").(map[string]any)
	value := func(name string) any { return object(fields[name].(map[string]any)).at("value") }
	number := func(name string) float64 { n, _ := value(name).(float64); return n }
	patterns := func(name string) (out []string) {
		list, _ := value(name).([]any)
		for _, p := range list {
			out = append(out, p.(string))
		}
		return out
	}
	image, _ := value("image").(string)
	return poolKey{
		r.Project, image, policy.Values{FSRead: patterns("fs.read"), FSWrite: patterns("fs.write")}.MountModes().String(),
		number("memory_mb"), number("cpu_cores"), number("pids"), number("tmp_mb"), number("shm_mb"),
	}, true
}

// find looks the containers that serve the key up in the pool's report: those for its project, or
// for any.
func (k poolKey) find(report object) (object, bool) {
	keys := report.list("keys")
	i := slices.IndexFunc(keys, func(o object) bool {
		found := poolKey{
			o.str("project_id"), o.str("image"), o.str("access"), o.num("memory_mb"), o.num("cpu_cores"), o.num("pids"), o.num("tmp_mb"), o.num("shm_mb"),
		}
		if found.project == "" && found.access == outside(k.project) {
			found.project, found.access = k.project, k.access
		}
		return found == k
	})
	if i < 0 {
		return nil, false
	}
	return keys[i], true
}

// idle is how many containers of a report wait for the key. Until the pool knows whether containers
// serve any project it may replace them: none.
func (k poolKey) idle(report object) float64 {
	found, ok := k.find(report)
	if !ok || strings.HasPrefix(report.str("not_shared_because"), "not known yet") {
		return 0
	}
	return found.num("idle")
}

// outside is what a project's containers have mounted beside its directories.
func outside(project string) string {
	if strings.Contains(project, "~") { // a user's workspace
		return workspace.ToolTarget
	}
	return ""
}

// prepare sees to it that a container waits for the request, and reports whether there can be one.
// If so, it is the request's turn, which the caller ends.
func (s *testServer) prepare(request any) (can bool) {
	s.t.Helper()
	o, ok := request.(object)
	if !ok || s.how != warm {
		return false
	}
	k, ok := s.keyOf(o)
	if !ok {
		return false
	}
	prime := shell(k.project, "true")
	for _, name := range []string{"policy_overrides", "image"} {
		if value, ok := o[name]; ok {
			prime[name] = value
		}
	}
	s.turn.mu.Lock()
	defer func() {
		if !can {
			s.turn.end()
		}
	}()
	waits, refused := false, false
	eventually(s.t, fmt.Sprintf("a container waits for %+v", k), func() bool {
		report := s.get("/sandbox/pool")
		if _, known := k.find(report); !known { // not yet, or not any more
			a := s.unprepared().send(http.MethodPost, "/sandbox/execs", prime)
			refused = a.Code != http.StatusOK // the request itself will show why
		}
		waits, s.turn.hits = k.idle(report) > 0, report.num("hits")
		return waits || refused
	})
	can = waits
	return can
}

// awaitTaken ends the turn of a request once it has its container, or its answer.
func (s *testServer) awaitTaken(l *later) {
	defer s.turn.end()
	eventually(s.t, "the container that waits is taken", func() bool {
		return len(l.answer)+len(l.failed) > 0 || s.get("/sandbox/pool").num("hits") > s.turn.hits
	})
}

// unprepared is the same server, where an exec gets the container that it gets.
func (s *testServer) unprepared() *testServer { return s.serving("") }

// awaitWaiting waits until at least so many containers wait for such a request.
func (s *testServer) awaitWaiting(request object, n float64) {
	s.t.Helper()
	k, ok := s.keyOf(request)
	if !ok {
		s.t.Fatalf("policy refuses %v", request)
	}
	eventually(s.t, fmt.Sprintf("%v containers wait for %+v", n, k), func() bool {
		return k.idle(s.get("/sandbox/pool")) >= n
	})
}

// served holds an answer to the way in which the server's execs are to be served.
func (s *testServer) served(prepared bool, a answer) {
	s.t.Helper()
	if s.how == "" || s.how == warm && !prepared || a.Code != http.StatusOK {
		return
	}
	result := a.json(s.t)
	if result.at("started_at") == nil {
		return
	}
	if result.at("warm") != (s.how == warm) {
		s.t.Errorf("it should have been %s: %.2000v", s.how, result)
	}
}

// waiting is how many containers the pool keeps, ready or not; none when the server is gone.
func (s *testServer) waiting() int {
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+"/sandbox/pool", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	var report object
	if err := json.NewDecoder(resp.Body).Decode(&report); err != nil || resp.StatusCode != http.StatusOK {
		return 0
	}
	return int(report.num("idle") + report.num("starting"))
}

// onlyWaiting waits until a project's artifacts/ has only the directories of execs on record and
// the directories of containers that wait. The directory of an exec that never ran must go.
func (s *testServer) onlyWaiting(project string) {
	s.t.Helper()
	var stray []string
	eventually(s.t, "no directory in artifacts/ of "+project+" is of an exec that never ran", func() bool {
		waits := 0
		for _, k := range s.get("/sandbox/pool").list("keys") {
			if k.str("project_id") == project {
				waits += int(k.num("idle") + k.num("starting"))
			}
		}
		stray = s.withoutRow(project)
		return len(stray) == waits
	})
}

// withoutRow are the names in a project's artifacts/ that are no exec's on record.
func (s *testServer) withoutRow(project string) (names []string) {
	s.t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.project(project), "artifacts"))
	if err != nil {
		s.t.Fatal(err)
	}
	known := map[string]bool{}
	for _, row := range s.records("project_id=" + project) {
		known[row.str("exec_id")] = row.str("artifacts_path") != ""
	}
	for _, e := range entries {
		if !known[e.Name()] {
			names = append(names, e.Name())
		}
	}
	return names
}
