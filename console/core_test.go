package console_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/access/sessions"
	"secbox/access/sso"
	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/visible"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/export"
	"secbox/audit/retention"
	"secbox/audit/translog"
	"secbox/console"
	"secbox/engine/memengine"
	"secbox/pathadapter"
	"secbox/policy"
	"secbox/replay"
	"secbox/runner"
	"secbox/runner/diskwatch"
	"secbox/runner/follow"
	"secbox/runner/inputstore"
	"secbox/runner/webhooks"
	"secbox/skills"
	"secbox/store/sqlite"
	"secbox/store/storetest/sqlitetest"
	"secbox/workspace"
	"secbox/workspace/diskspace"
)

// core is a core-api with a real database, whose execs run in an engine without containers; see
// memengine.Shell for the commands.
type core struct {
	t      *testing.T
	url    string
	dir    string // with the workspace
	db     *sqlite.DB
	tokens *tokens.Service
	log    *translog.Sequencer
	pages  *console.Console
	prints chan printed // by the command listen
	later  atomic.Int64 // how many nanoseconds the console's clock is ahead
}

// startCore starts one, whose shell knows more commands. Parts that pages do not need are missing.
func startCore(t *testing.T, more ...map[string]memengine.Command) *core {
	t.Helper()
	return startCoreWith(t, nil, more...)
}

// startCoreWith is startCore with single sign-on at the provider that signOn makes, if any, for a
// console with this address.
func startCoreWith(t *testing.T, signOn func(url string) *sso.Provider, more ...map[string]memengine.Command) *core {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	dir, quiet := t.TempDir(), slog.New(slog.DiscardHandler)
	db, err := sqlite.Open(t.Context(), sqlitetest.Migrated(t, filepath.Join(dir, "core.db")))
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	owner := -1
	if os.Geteuid() == 0 {
		owner = 1000
	}
	adapter, err := pathadapter.New(pathadapter.Config{Root: filepath.Join(dir, "workspace")})
	must(t, err)
	files, err := workspace.Open(workspace.Options{Adapter: adapter, UID: owner, GID: owner})
	must(t, err)
	t.Cleanup(func() { must(t, files.Close()) })
	resolver, err := policy.New(policy.Config{SettingsDigest: "sha256:s"})
	must(t, err)
	history, err := audit.NewLog(audit.Config{Store: db.Audit(), Dir: filepath.Join(dir, "spool"), NodeID: "n", Logger: quiet})
	must(t, err)
	prints := make(chan printed)
	words := map[string]memengine.Command{"listen": listen(prints)}
	for _, m := range more {
		maps.Copy(words, m)
	}
	jobs := memengine.New(memengine.Options{Run: memengine.Shell(words)})
	inputs, err := inputstore.Open(inputstore.Config{Root: files.Root(), MaxBytes: 1 << 20, MaxBytesPerToken: 1 << 20, Now: time.Now, Logger: quiet})
	must(t, err)
	t.Cleanup(func() { must(t, inputs.Close()) })
	newID := func() string { return uuid.Must(uuid.NewV7()).String() }
	runs, err := runner.New(runner.Config{
		Log: history, Inputs: inputs, Engine: jobs, Images: &memengine.Images{}, Policy: resolver, Workspace: files,
		Host:     func() policy.Host { return policy.Host{} },
		StateDir: filepath.Join(dir, "state"), NodeID: "n", User: "1000:1000", Disk: diskwatch.New(roomyDisk{}, diskwatch.Limits{}, quiet),
		Slots: 4, Queue: 8, Now: time.Now, NewID: newID, Logger: quiet,
	})
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		runs.Drain(ctx)
		must(t, jobs.Close())
	})
	catalog, err := skills.Open(skills.Config{Dir: t.TempDir(), Logger: quiet})
	must(t, err)

	keyFile := filepath.Join(dir, "log.key")
	key, err := translog.MakeKey(keyFile, "secbox/test")
	must(t, err)
	evidence := translog.Log{Store: db.TransparencyLog(), Key: func() (translog.Key, error) { return key, nil }}
	c := &core{t: t, dir: dir, db: db, tokens: tokens.NewService(db.Tokens(), time.Now), prints: prints}
	c.log = translog.NewSequencer(translog.SequencerConfig{
		Store: evidence.Store, Origin: "secbox/test", Holder: "n", Logger: quiet, Key: func(bool) (translog.Key, error) { return key, nil },
	})
	replayer := replay.New(runs, inputs, struct{ replay.Skills }{}) // no exec of a skill is replayed
	downloads := admin.Downloads{Store: db.AdminEvents(), Limits: db.Limits()}
	signIns := sessions.New(db.Sessions(), c.tokens, time.Now)
	var provider console.SignOn
	if signOn != nil {
		p := signOn("http://" + server.Listener.Addr().String())
		t.Cleanup(p.Close)
		provider = p
		signIns.Trust(p.Issuer())
	}
	live := follow.New(runs, history)
	activity := audit.NewActivity(db.Audit(), nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); activity.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended }) // before the database is closed
	pages, err := console.New(console.Config{
		Execs:  visible.Execs{History: history, Tombstones: db.Retention(), Tokens: c.tokens, Downloads: downloads, Activity: activity, Commands: history},
		Events: history, Callbacks: db.Webhooks(), Connections: db.Connections(), Runner: runs,
		Live: live, Replayer: replayer, Proofs: evidence, Nodes: db.Nodes(),
		Samples: db.Samples(), Health: newFake(), Pool: newFake(), Runners: newFake(),
		Reports:  export.Reports{Log: evidence, Records: db.Audit(), Events: db.AdminEvents(), Patience: time.Millisecond},
		Registry: struct{ console.Registry }{}, AdminEvents: db.AdminEvents(), Images: db.OwnImages(), Holds: visible.Holds{Store: db.Retention()},
		Retention: retention.New(retention.Config{Store: db.Retention(), RecordDays: 30}),
		Sessions:  signIns, Views: db.Views(), SignOn: provider, Tokens: c.tokens, Version: "test", Logger: quiet,
		Now: func() time.Time { return time.Now().Add(time.Duration(c.later.Load())) },
	})
	must(t, err)
	c.pages = pages
	handler, err := api.New(api.Config{
		Console: func(w http.ResponseWriter, r *http.Request, door api.Door) { pages.ServeHTTP(w, r, door) },
		Needs: api.Needs{
			Runner: runs, Live: live, Changes: db.Audit(), Webhooks: webhooks.Registry{}, Connections: db.Connections(),
			History: history, TransparencyLog: evidence,
			Retention: db.Retention(), Exports: export.Exporter{Records: db.Audit(), Log: evidence, Events: db.AdminEvents(), Patience: time.Millisecond},
			Reports:     export.Reports{Log: evidence, Records: db.Audit(), Events: db.AdminEvents(), Patience: time.Millisecond},
			AdminEvents: db.AdminEvents(), Downloads: downloads,
			Health: struct{ api.Health }{}, Pool: struct{ api.Pool }{}, Skills: catalog, Invoker: struct{ api.Invoker }{}, Replayer: replayer, Tokens: c.tokens,
			Library: struct{ api.Library }{}, View: struct{ visible.View }{}, Sandboxes: struct{ api.Sandboxes }{},
			Projects: struct{ api.Projects }{}, Catalog: struct{ api.Catalog }{},
			Registry: struct{ api.Registry }{}, Images: db.OwnImages(),
			UploadDir: filepath.Join(dir, "uploads"),
		},
		ListenAddr: server.Listener.Addr().String(), Logger: quiet,
	})
	must(t, err)
	server.Config.Handler = handler
	server.Start()
	t.Cleanup(func() {
		pages.Close() // the server waits for answers
		server.Close()
	})
	c.url = server.URL
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// roomyDisk always has room.
type roomyDisk struct{}

func (roomyDisk) Free() (diskspace.Space, error) {
	return diskspace.Space{Bytes: 1 << 40, Inodes: 1 << 30}, nil
}

// token makes a token and returns its secret.
func (c *core) token(name string, role tokens.Role) (secret string) {
	c.t.Helper()
	_, secret, err := c.tokens.Create(c.t.Context(), tokens.Spec{Name: name, Role: role})
	must(c.t, err)
	return secret
}

// run runs a script with a token, which may be empty, and returns the exec's id.
func (c *core) run(secret, script string) string {
	c.t.Helper()
	return c.post(secret, map[string]any{"project_id": "demo", "exec": map[string]any{"script": script}})
}

// post runs an exec with a token, which may be empty, and returns its id.
func (c *core) post(secret string, exec map[string]any) string {
	c.t.Helper()
	body, err := json.Marshal(exec)
	must(c.t, err)
	req, err := http.NewRequestWithContext(c.t.Context(), "POST", c.url+"/sandbox/execs", strings.NewReader(string(body)))
	must(c.t, err)
	req.Header.Set("Content-Type", "application/json")
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := http.DefaultClient.Do(req)
	must(c.t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	must(c.t, err)
	var out struct {
		ExecID string `json:"exec_id"`
	}
	if err := json.Unmarshal(answer, &out); err != nil || resp.StatusCode != http.StatusOK {
		c.t.Fatalf("%d: %s", resp.StatusCode, answer)
	}
	return out.ExecID
}

// events returns the administrative events, oldest first, as kind and subject.
func (c *core) events() []string {
	c.t.Helper()
	list, err := c.db.AdminEvents().List(c.t.Context(), admin.Filter{}, nil, 500)
	must(c.t, err)
	var out []string
	for i := len(list) - 1; i >= 0; i-- {
		out = append(out, string(list[i].Kind)+" by "+list[i].Actor.Name)
	}
	return out
}
