//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"secbox/audit"
	"secbox/audit/translog"
	"secbox/sandbox/remote/machine"
	"secbox/server"
	"secbox/settings"
	"secbox/store"
	"secbox/store/storetest/planprobe"
)

// load is what clients, an auditor and a user's machine do with core-apis on one database that are
// killed, and what they know of it.
type load struct {
	t       testing.TB
	dir     string
	environ []string
	machine *cable // from the user's machine to the present core-api
	auditor *cable // the same from the witness
	witness *exec.Cmd
	words   *words // of the witness
	key     string // the log's

	mu       sync.Mutex
	answered map[string]string // status by exec id
	inDocker []string          // ids
	unheard  int               // answers without an id
}

// Users of the sandboxes none and remote.
const (
	besideUser = "beside"
	remoteUser = "far"
)

// retentionDays is the age at which records are removed. seededExecs, of 31 to 91 days old, are in
// the log before the first start.
const retentionDays = 60

func seededExecs() int { return scaled(40, 200) }

func newLoad(t *testing.T, database string) *load {
	l := &load{t: t, dir: t.TempDir(), answered: map[string]string{}, words: &words{}}
	l.environ = []string{
		"CORE_API_POOL_READY=3", "CORE_API_SANDBOXES_NONE=true", "CORE_API_SANDBOXES_RUNNER_GRACE_SECONDS=1", "CORE_API_SANDBOXES_HEARTBEAT_SECONDS=1",
		fmt.Sprint("CORE_API_AUDIT_RETENTION_DAYS=", retentionDays), "DATABASE_URL=" + database,
	}
	l.seed(database)
	p := l.serve()
	p.worksIn(besideUser, object{"backend": "none"})
	p.worksIn(remoteUser, object{"backend": "remote"})
	l.machine, l.auditor = newCable(t, p.url), newCable(t, p.url)
	l.dialIn()
	p.logged()
	l.key = strings.TrimSpace(l.cli("audit", "key"))
	l.watch()
	p.kill()
	return l
}

// seed fills the database with old execs, so that retention has something to remove.
func (l *load) seed(database string) {
	l.t.Helper()
	ctx, state := l.t.Context(), filepath.Join(l.dir, "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		l.t.Fatal(err)
	}
	db, err := store.Open(ctx, database, state)
	if err != nil {
		l.t.Fatal(err)
	}
	defer db.Close()
	until := time.Now().AddDate(0, 0, -31)
	err = db.(planprobe.Database).LoadHistories(ctx, 0, func(yield func(opened, ended audit.Record) bool) {
		for opened, ended := range planprobe.Histories(seededExecs(), until) {
			opened.ArtifactsPath, opened.ManifestDigest, ended.ArtifactsPath, ended.ManifestDigest = "", "", "", "" // there are none
			if !yield(opened, ended) {
				return
			}
		}
	})
	if err != nil {
		l.t.Fatal(err)
	}
	installation, err := db.Audit().InstallationID(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	origin := translog.Origin(installation)
	q := translog.NewSequencer(translog.SequencerConfig{
		Store: db.TransparencyLog(), Origin: origin, Holder: "seed", Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return until },
		Key: func(begun bool) (translog.Key, error) {
			return server.LogKey(settings.Settings{StateDir: state}, origin, begun)
		},
	})
	for n := 1; n > 0; {
		if n, err = q.Step(ctx); err != nil {
			l.t.Fatal(err)
		}
	}
}

// serve starts the next core-api.
func (l *load) serve() *process {
	l.t.Helper()
	p := serve(l.t, l.dir, l.environ...)
	if l.machine != nil {
		l.machine.lead(p.url)
		l.auditor.lead(p.url)
	}
	return p
}

// command is core-api with these arguments on the same database.
func (l *load) command(args ...string) *exec.Cmd {
	args = append(args, "--state-dir", filepath.Join(l.dir, "state"), "--workspace-root", filepath.Join(l.dir, "workspace"))
	return coreAPI(l.t, slices.Concat(os.Environ(), l.environ), args...)
}

// cli runs core-api with these arguments and returns what it prints.
func (l *load) cli(args ...string) string {
	l.t.Helper()
	var errs strings.Builder
	cmd := l.command(args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		l.t.Errorf("%s: %v\n%.5000s%.5000s", strings.Join(args, " "), err, out, errs.String())
	}
	return string(out)
}

// dialIn connects a machine that outlives the core-apis.
func (l *load) dialIn() {
	l.t.Helper()
	secret := strings.TrimSpace(l.cli("token", "create", "--role", "runner", "--user", remoteUser))
	m, err := machine.New(machine.Config{
		Server: l.machine.url, Token: secret, Workspace: l.t.TempDir(), Name: "desk", Allow: []string{"exec", "write"}, Version: "test",
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(l.t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = m.Run(ctx)
	}()
	l.t.Cleanup(func() { stop(); <-gone })
}

// watch starts a witness that outlives the core-apis.
func (l *load) watch() {
	l.t.Helper()
	l.witness = exec.Command(secboxBinary(l.t), "audit", "witness", "--server", l.auditor.url, "--key", l.key, "--dir", l.t.TempDir(), "--every", "1s")
	l.witness.Stdout, l.witness.Stderr = l.words, l.words
	if err := l.witness.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		if l.witness.ProcessState == nil {
			_ = l.witness.Process.Kill()
			_ = l.witness.Wait()
		}
	})
}

// endWitness ends the witness, which must have found nothing.
func (l *load) endWitness() {
	l.t.Helper()
	_ = l.witness.Process.Signal(syscall.SIGTERM)
	if err := l.witness.Wait(); err != nil {
		l.t.Errorf("the witness: %v\n%s", err, l.words)
	}
}

// verify verifies all evidence beside a core-api, in both ways.
func (l *load) verify(p *process) {
	l.t.Helper()
	begun := time.Now()
	here := l.cli("audit", "verify", "--artifacts")
	remote := exec.Command(secboxBinary(l.t), "audit", "verify", "--server", p.url, "--key", l.key)
	there, err := remote.CombinedOutput()
	if err != nil {
		l.t.Errorf("secbox audit verify: %v\n%.5000s", err, there)
	}
	l.t.Logf("%v: %s%s", time.Since(begun).Round(time.Millisecond), here, there)
}

// answers is how many requests were answered, and how many of them by containers.
func (l *load) answers() (containers, all int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.inDocker), len(l.answered) + l.unheard
}

// heard notes an answer.
func (l *load) heard(execID, status string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if execID == "" {
		l.unheard++
		return
	}
	l.answered[execID] = status
}

// check holds the answers against the rows, and returns how many were lost.
func (l *load) check(p *process) (lost int) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[string]bool{}
	for _, row := range p.records("kind=all") {
		id, status := row.str("exec_id"), row.str("status")
		seen[id] = true
		if !audit.Status(status).Final() {
			l.t.Errorf("exec %s is %s after the restart", id, status)
		}
		if want := l.answered[id]; want != "" && status != want {
			l.t.Errorf("exec %s was answered as %s and is %s", id, want, status)
		}
		if status == "lost" {
			lost++
		}
	}
	for id := range l.answered {
		if !seen[id] {
			l.t.Errorf("exec %s was answered and has no row", id)
		}
	}
	return lost
}

// start starts clients that work until the core-api is gone, or stop is called.
func (l *load) start(p *process) (stop func()) {
	var all sync.WaitGroup
	over := make(chan struct{})
	client := func(turn func(i int) error) {
		all.Go(func() {
			for i := 0; turn(i) == nil; i++ {
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	for n := range 4 {
		client(func(i int) error { return l.exec(p, fmt.Sprintf("p%d", n+4*(i%2)), i) })
	}
	client(func(i int) error { return l.sandbox(p, besideUser, i) })
	client(func(i int) error { return l.sandbox(p, remoteUser, i) })
	client(func(i int) error { return l.session(p, i) })
	client(func(i int) error { return l.change(p, i) })
	client(func(i int) error { return l.audit(p, i) })
	retention := l.command("audit", "retention", "run", "--accept-clock")
	if err := retention.Start(); err != nil {
		l.t.Error(err)
	}
	return func() {
		close(over)
		_ = retention.Process.Kill()
		_ = retention.Wait()
		all.Wait()
	}
}

// exec runs a command in a container, or one that is refused, or replays one.
func (l *load) exec(p *process, project string, i int) error {
	request := shell(project, []string{"true", "sleep 0.2; exit 3", "head -c 200000 /dev/zero; echo x > /workspace/artifacts/f"}[i%3])
	path := "/sandbox/execs"
	switch i % 7 {
	case 3:
		request["policy_overrides"] = object{"memory_mb": 1 << 30}
	case 5:
		l.mu.Lock()
		if n := len(l.inDocker); n > 0 {
			path, request = path+"/"+l.inDocker[rand.IntN(n)]+"/replay", object{}
		}
		l.mu.Unlock()
	}
	a, err := p.try(http.MethodPost, path, request)
	if err != nil {
		return err
	}
	if a.Code != http.StatusOK {
		if i%7 != 3 {
			l.t.Errorf("%s: %d %s", path, a.Code, a.Body)
		}
		l.heard("", "")
		return nil
	}
	o := a.json(l.t)
	if inner, ok := o["exec"].(map[string]any); ok {
		o = inner
	}
	l.heard(o.str("exec_id"), o.str("status"))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inDocker = append(l.inDocker, o.str("exec_id"))
	return nil
}

// session starts a session, runs some execs in it at once, and ends it or leaves it to its
// idleness.
func (l *load) session(p *process, i int) error {
	a, err := p.try(http.MethodPost, "/sandbox/sessions", object{"project_id": "sessions", "idle_ms": 1500})
	if err != nil {
		return err
	}
	if a.Code != http.StatusCreated {
		l.t.Errorf("a session: %d %s", a.Code, a.Body)
		return nil
	}
	id := a.json(l.t).str("session_id")
	var all sync.WaitGroup
	failed := make([]error, 4)
	for n := range failed {
		all.Go(func() {
			exec := object{"script": "sleep 0.1; echo x > $SECBOX_ARTIFACTS/f; sleep 1000 &"}
			if n%2 == 1 {
				exec = object{"context": "main", "code": "n = globals().get('n', 0) + 1\nn"}
			}
			a, err := p.try(http.MethodPost, "/sandbox/execs", object{"session_id": id, "exec": exec})
			if failed[n] = err; err != nil {
				return
			}
			if a.Code != http.StatusOK {
				l.t.Errorf("an exec in a session: %d %s", a.Code, a.Body)
				return
			}
			o := a.json(l.t)
			l.heard(o.str("exec_id"), o.str("status"))
		})
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	if i%2 == 0 {
		_, err = p.try(http.MethodDelete, "/sandbox/sessions/"+id, nil)
	}
	return err
}

// sandbox runs a command in a user's sandbox. The connection of the machine breaks under some of
// them, for longer than core-api waits for it.
func (l *load) sandbox(p *process, user string, i int) error {
	script := []string{"true", "exit 3", "echo hi; echo x >> log", "sleep 0.1"}[i%4]
	if cut := user == remoteUser && i%40 == 39; cut {
		script = "sleep 0.5"
		l.machine.pull()
		defer l.machine.mend()
	}
	a, err := p.try(http.MethodPost, "/v1/sandbox/"+user+"/ag/execute?command=bash", []string{"-c", script})
	if err != nil {
		return err
	}
	l.heard(a.Header.Get("X-Exec-Id"), "")
	pause := scaled(50, 5)                       // ms
	if a.Code == http.StatusServiceUnavailable { // the machine is not back yet
		pause = 50
	}
	time.Sleep(time.Duration(pause) * time.Millisecond)
	return nil
}

// change changes files of users.
func (l *load) change(p *process, i int) error {
	user := []string{besideUser, remoteUser}[i%2]
	_, err := p.try(http.MethodPut, fmt.Sprintf("/v1/sandbox/%s/ag/edit?path=f%d.txt", user, i%5), fmt.Sprintf("line %d\n", i))
	if err == nil {
		l.heard("", "")
		time.Sleep(time.Duration(scaled(50, 20)) * time.Millisecond)
	}
	return err
}

// audit reads what an auditor reads, and adds and removes holds.
func (l *load) audit(p *process, i int) error {
	a, err := p.try(http.MethodPost, "/audit/holds", object{"kind": "project", "value": fmt.Sprintf("project-%03d", rand.IntN(1000)), "reason": "case"})
	if err != nil {
		return err
	}
	if hold := a.json(l.t).str("id"); i%2 == 0 && hold != "" {
		if _, err := p.try(http.MethodDelete, "/audit/holds/"+hold, nil); err != nil {
			return err
		}
	}
	if i%5 == 0 {
		if _, err := p.try(http.MethodGet, "/audit/export?format="+[]string{"jsonl", "csv", "ocsf"}[i/5%3], nil); err != nil {
			return err
		}
	}
	time.Sleep(100 * time.Millisecond)
	return nil
}
