//go:build unix

package server

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/access/sessions"
	"secbox/access/tokens"
	"secbox/audit"
	"secbox/audit/retention"
	"secbox/console"
	images "secbox/images/catalog"
	"secbox/packages/catalog"
	"secbox/packages/registry"
	"secbox/settings"
	"secbox/store"
	"secbox/store/storetest/planprobe"
)

// crawl is a core-api without a Docker engine, with something in its tables, and who asks it.
type crawl struct {
	t       *testing.T
	server  *Server
	values  map[string][]string // of parameters, by name, or by the part of the path before the name
	people  map[tokens.Role]*http.Client
	visited map[string]bool // routes with a page or an answer, and those with each parameter
}

// asker is the id of the token of a role. The worker's has nine tenths of the execs.
func asker(role tokens.Role) string {
	if role == tokens.Worker {
		return planprobe.MostBy
	}
	return "the-" + string(role)
}

func secretOf(role tokens.Role) string { return "the secret of " + asker(role) }

const (
	crawledExecs  = 400
	crawledTokens = 150
)

// startCrawl starts one over a database that it fills.
func startCrawl(t *testing.T, database string) *crawl {
	t.Helper()
	dir := t.TempDir()
	environ := []string{"PATH=" + os.Getenv("PATH"), "DOCKER_HOST=unix:///nonexistent.sock"}
	cfg, err := settings.Load("", environ, settings.Overrides{
		Addr: "127.0.0.1:0", StateDir: filepath.Join(dir, "state"),
		WorkspaceRoot: filepath.Join(dir, "workspace"), DatabaseURL: database,
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Pool.Ready = 0
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	c := &crawl{t: t, people: map[tokens.Role]*http.Client{}, visited: map[string]bool{}}
	db, err := store.Open(t.Context(), database, cfg.StateDir)
	if err == nil {
		err = errors.Join(c.fill(db), db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if c.server, err = Start(context.Background(), cfg, environ, slog.New(slog.NewTextHandler(t.Output(), nil))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.server.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// fill puts something into each table that pages show, and sets the values.
func (c *crawl) fill(db store.Database) error {
	ctx, now := c.t.Context(), time.Now()
	if err := planprobe.FillHistories(ctx, db.(planprobe.Database), crawledExecs, crawledExecs, now); err != nil {
		return err
	}
	for _, role := range tokens.Roles() {
		made := tokens.Token{ID: asker(role), Name: asker(role), Role: role, CreatedAt: now}
		if role == tokens.Runner {
			made.UserID = "ann"
		}
		if err := db.Tokens().Create(ctx, made, sha256.Sum256([]byte(secretOf(role)))); err != nil {
			return err
		}
	}
	for i := range crawledTokens { // so that PostgreSQL uses the indexes of tokens
		id := fmt.Sprint("token-of-many-", i)
		if err := db.Tokens().Create(ctx, tokens.Token{ID: id, Name: id, Role: tokens.Auditor, CreatedAt: now.Add(-time.Hour)},
			sha256.Sum256([]byte(id))); err != nil {
			return err
		}
	}
	const person = "oidc:https://idp.example#1"
	if err := db.Sessions().BeginPerson(ctx, sessions.Hash{1}, sessions.Person{ID: person, Name: "Ann", Role: tokens.Auditor}, "127.0.0.1"); err != nil {
		return err
	}
	const hold = "0192f0c1-0000-7000-8000-000000000001"
	if _, err := db.Retention().AddHold(ctx, retention.Hold{
		ID: hold, Kind: retention.HoldProject, Value: "project-001", Reason: "a case",
		AddedBy: "the-admin",
	}); err != nil {
		return err
	}
	entry := registry.Entry{
		Kind: catalog.Skill, Name: "csv", Version: 1, Digest: strings.Repeat("ab", 32), Description: "Reads tables.",
		Author: registry.Owner{AgentID: "ag", UserID: "ann"}, PublishedAt: now, FirstPublishedAt: now,
	}
	event := registry.Event{
		ID: "0192f0c1-0000-7000-8000-000000000002", Kind: catalog.Skill, Name: "csv", Version: 1, Digest: entry.Digest,
		Action: registry.Published, By: entry.Author, RequestedBy: planprobe.MostBy, At: now,
	}
	if _, err := db.Registry().Publish(ctx, 0, entry, event); err != nil {
		return err
	}

	imageID := "sha256:" + strings.Repeat("ab", 32)
	if _, err := db.OwnImages().Put(ctx, images.Image{
		Name: "csv", Ref: images.Ref("csv", imageID), ImageID: imageID, Source: images.Imported, BOM: []byte(`{"bomFormat":"CycloneDX","specVersion":"1.6"}`),
	}, ""); err != nil {
		return err
	}

	var ended, opened audit.Record
	for first, last := range planprobe.Histories(crawledExecs, now) {
		if last.RequestedBy == planprobe.MostBy && last.ArtifactsPath != "" {
			opened, ended = first, last
		}
	}
	again := opened // a replay that runs; no node ends it, and no other one is asked for its output
	again.ExecID, again.ReplayOf, again.CreatedAt, again.StartedAt, again.NodeID = "0192f0c1-0000-7000-8000-000000000003", ended.ExecID, now, now, ""
	if _, err := db.Audit().Open(ctx, again); err != nil {
		return err
	}
	day := now.AddDate(0, 0, -20).UTC().Format(time.RFC3339)
	c.values = map[string][]string{
		// In paths, by the name, or by the part before it.
		"execs/": {ended.ExecID, again.ExecID}, "tokens/": {"the-admin", "the-runner"}, "events/": {"1"}, "holds/": {hold}, "skills/": {"own", "shell.run"},
		"packages/": {"ag"}, "registry/": {"skills"},
		"inputs/": {"in.csv"}, "artifacts/": {"out.txt"}, "show/": {"out.txt"}, "view/": {"out.txt"}, "show-input/": {"in.csv"}, "view-input/": {"in.csv"},
		"output/": {"stdout"}, "skill": {"own"}, "user": {"ann"}, "name": {"csv"}, "agent": {"ag"},
		// In queries, by the name, or by the route and the name.
		"?task_id": {ended.TaskID}, "?project_id": {ended.ProjectID}, "?conversation_id": {ended.ConversationID}, "?skill_id": {"skill.number3"},
		"?skill_digest": {strings.Repeat("ab", 32)}, "?user_id": {"ann"},
		"?agent_id": {"ag"}, "?backend": {"remote"}, "?runner": {"laptop"}, "?replay_of": {ended.ExecID}, "?requested_by": {planprobe.MostBy},
		"?trace_id": {strings.Repeat("a1", 16)}, "?session_id": {ended.ExecID}, "?error_reason": {"policy_denied"},
		"?exit_code_ne": {"0"}, "?network": {"denied"},
		"?status": {"failed,timeout"}, "?kind": {"change"}, "?view": {"summary"}, "?since": {day}, "?until": {day},
		"?text": {"main.py"}, "/console/history?text": {ended.TaskID}, "?output": {"on"}, "?columns": {"status,command"},
		"?format": {"csv"}, "?ocsf_version": {"1.3.0"}, "?seen": {"0"}, "?span": {"month"}, "?live": {"off"}, "?next": {"/console/history"}, "?ended": {"1"},
		"?as": {"text"}, "?of": {"stdout"}, "?source": {"built-in"}, "?path": {"SKILL.md"}, "?query": {"tables"},
		"?canceling": {"1"}, "?actor": {"the-admin"}, "?subject": {"the-admin"}, "?value": {"project-001"}, "?revoked": {"1"},
		"?after": {person}, "?node": {"another"}, "?state": {"ended"},
		"/console/audit/events?kind": {"export"}, "/console/audit/holds?kind": {"project"}, "/console/registry?kind": {"skills"},
	}
	return nil
}

// request is one that the crawl makes.
type request struct {
	route, path, query string
	role               tokens.Role
	form               url.Values // of a POST; nil: GET
}

func (r request) String() string { return fmt.Sprintf("%s%s as %s", r.path, r.query, r.role) }

// unanswered are the routes that have no page or answer here.
var unanswered = map[string]string{
	"/console/sign-in/oidc": "no provider", "/console/sign-in/oidc/callback": "no provider", "/console/history/export": "reads as the history does",
	"/console/audit/export": "reads as the history does",
}

// ofFiles are routes to files of execs, which the execs here do not have: what is read of the
// database comes before.
var ofFiles = regexp.MustCompile(`^/console/execs/[^/]+/(output|stdout|stderr|artifacts|artifacts.zip|inputs|show|view|` +
	`show-input|view-input|manifest|meta|cast|comparison|differences|attestation)\b`)

var placeholder = regexp.MustCompile(`([\w-]+)/(:\w+|\*|\{\w+\})`)

// paths fills the parameters of a route's path. An unknown one fails the test.
func (c *crawl) paths(route string) []string {
	at := placeholder.FindStringSubmatchIndex(route)
	if at == nil {
		return []string{route}
	}
	before, name := route[at[2]:at[3]], strings.Trim(route[at[4]:at[5]], ":{}")
	values := c.values[name]
	if values == nil {
		values = c.values[before+"/"]
	}
	if values == nil {
		c.t.Errorf("%s: the test has no value for %s", route, name)
	}
	var out []string
	for _, value := range values {
		out = append(out, c.paths(route[:at[4]]+value+route[at[5]:])...)
	}
	return out
}

// cursors are parameters whose values come from the pages before.
var cursors = []string{"cursor", "before", "newest", "from", "shown", "released"}

// queries returns queries of a route without a parameter, with each alone, and with all. An unknown
// one fails the test.
func (c *crawl) queries(route string, names []string) []string {
	out, all := []string{""}, url.Values{}
	for _, name := range names {
		if slices.Contains(cursors, name) || unanswered[route] != "" {
			continue
		}
		values := c.values[route+"?"+name]
		if values == nil {
			values = c.values["?"+name]
		}
		if values == nil {
			c.t.Errorf("%s: the test has no value for %s", route, name)
			continue
		}
		all.Set(name, values[0])
		out = append(out, "?"+url.Values{name: values}.Encode())
	}
	if len(all) > 1 {
		out = append(out, "?"+all.Encode())
	}
	return out
}

// requests returns one request for each page of the console, its parameters, and the roles that may
// use it.
func (c *crawl) requests() (all []request) {
	add := func(r request, names []string) {
		for _, path := range c.paths(r.route) {
			for _, query := range c.queries(r.route, names) {
				r.path, r.query = path, query
				all = append(all, r)
			}
		}
	}
	for _, r := range console.Routes() {
		for _, role := range append(r.Roles, tokens.Auditor)[:max(len(r.Roles), 1)] {
			// others see what an auditor sees
			if r.Method == http.MethodGet && (role == tokens.Worker || role == tokens.Auditor || !slices.Contains(r.Roles, tokens.Auditor)) {
				add(request{route: r.Path, role: role}, r.Query)
			}
		}
	}
	return all
}

// forms returns a request for each form of the console, by an admin. An unknown one fails the test.
func (c *crawl) forms() (all []request) {
	fields := map[string]url.Values{
		"/console/execs/:id/cancel": {}, "/console/execs/:id/replay": {"key": {"key of a replay"}},
		"/console/audit/holds":             {"kind": {"project"}, "value": {"project-002"}, "reason": {"another case"}},
		"/console/audit/holds/:id/release": {}, "/console/people/block": {"id": c.values["?after"]},
		"/console/tokens":               {"id": {"0192f0c1-0000-7000-8000-000000000004"}, "name": {"new"}, "role": {"worker"}},
		"/console/tokens/:id/revoke":    {},
		"/console/history/views":        {"name": {"a view"}, "query": {"status=failed"}},
		"/console/history/views/remove": {"name": {"a view"}, "query": {"status=failed"}},
	}
	for _, r := range console.Routes() {
		switch form := fields[r.Path]; {
		case r.Method != http.MethodPost || r.Path == "/console/sign-in" || r.Path == "/console/sign-out":
		case form == nil:
			c.t.Errorf("the test has no values for the form of %s", r.Path)
		default:
			paths := c.paths(r.Path)
			all = append(all, request{route: r.Path, path: paths[len(paths)-1], role: tokens.Admin, form: form})
		}
	}
	return append(all, request{route: "/console/sign-out", path: "/console/sign-out", role: tokens.Admin, form: url.Values{}})
}

var (
	nextCursor = regexp.MustCompile(`"next_cursor": ?"([^"]+)"`)
	linked     = regexp.MustCompile(`\b(?:href|hx-get)="(/console[^"#]*[?&;](?:cursor|before|newest)=[^"#]*)`)
)

// unvisited returns routes, and parameters of routes, that never had an answer. Of the cursors,
// some need more rows than there are.
func (c *crawl) unvisited() (out []string) {
	for _, r := range append(c.requests(), c.forms()...) {
		missing := []string{}
		if !c.visited[r.route] {
			missing = append(missing, r.route)
		}
		asked, err := url.ParseQuery(strings.TrimPrefix(r.query, "?"))
		if err != nil {
			c.t.Fatal(err)
		}
		for name := range asked {
			if unanswered[r.route] == "" && !ofFiles.MatchString(r.path) && !c.visited[r.route+"?"+name] {
				missing = append(missing, r.route+"?"+name)
			}
		}
		for _, m := range missing {
			if !slices.Contains(out, m) {
				out = append(out, m)
			}
		}
	}
	return out
}

// ask makes a request, and then the one for the next page.
func (c *crawl) ask(r request) error {
	body, err := c.get(r)
	if err != nil {
		return err
	}
	if m := nextCursor.FindStringSubmatch(body); m != nil {
		next, sep := r, "&"
		if r.query == "" {
			sep = "?"
		}
		next.query += sep + "cursor=" + url.QueryEscape(m[1])
		if _, err := c.get(next); err != nil {
			return err
		}
	}
	for _, m := range linked.FindAllStringSubmatch(body, -1) {
		next := r
		next.path, next.query = html.UnescapeString(m[1]), ""
		if _, err := c.get(next); err != nil {
			return err
		}
	}
	return nil
}

// get makes one request. An answer that says that the request is wrong, or that something broke, is
// an error.
func (c *crawl) get(r request) (string, error) {
	who, err := c.signedIn(r.role)
	if err != nil {
		return "", err
	}
	method := http.MethodGet
	if r.form != nil {
		method = http.MethodPost
		page, _, err := c.send(who, http.MethodGet, "/console/audit/holds", nil, "")
		if err != nil {
			return "", err
		}
		r.form.Set("csrf_token", csrfOf(page))
	}
	body, status, err := c.send(who, method, r.path+r.query, r.form, "")
	switch {
	case err != nil:
		return "", err
	case status < 400:
		c.visited[r.route] = true
		asked, err := url.Parse(r.path + r.query)
		if err != nil {
			return "", err
		}
		for name := range asked.Query() {
			c.visited[r.route+"?"+name] = true
		}
		return body, nil
	case unanswered[r.route] != "" || strings.HasSuffix(r.route, "/cancel") || strings.HasSuffix(r.route, "/replay"): // without an engine
		c.visited[r.route] = true
	case status == http.StatusNotFound || status == http.StatusConflict || status == http.StatusGone:
		c.visited[r.route] = c.visited[r.route] || ofFiles.MatchString(r.path) || r.form != nil
	case status == http.StatusBadRequest: // it needs other parameters
	default:
		return "", fmt.Errorf("%v: %d: %.300s", r, status, body)
	}
	return "", nil
}

func csrfOf(page string) string {
	if m := regexp.MustCompile(`name="csrf_token" value="([^"]*)"`).FindStringSubmatch(page); m != nil {
		return html.UnescapeString(m[1])
	}
	return ""
}

// signedIn returns the browser of a role.
func (c *crawl) signedIn(role tokens.Role) (*http.Client, error) {
	if c.people[role] != nil {
		return c.people[role], nil
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	who := &http.Client{Jar: jar, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	page, _, err := c.send(who, http.MethodGet, "/console/sign-in", nil, "")
	if err != nil {
		return nil, err
	}
	_, status, err := c.send(who, http.MethodPost, "/console/sign-in", url.Values{"token": {secretOf(role)}, "csrf_token": {csrfOf(page)}}, "")
	if err == nil && status != http.StatusSeeOther {
		err = fmt.Errorf("sign-in as %s: %d", role, status)
	}
	c.people[role] = who
	return who, err
}

func (c *crawl) send(who *http.Client, method, path string, form url.Values, secret string) (body string, status int, err error) {
	return c.sendBody(who, method, path, strings.NewReader(form.Encode()), "application/x-www-form-urlencoded", secret)
}

func (c *crawl) sendBody(who *http.Client, method, path string, content io.Reader, kind, secret string) (body string, status int, err error) {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel() // a stream would not end
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.server.Addr()+path, content)
	if err != nil {
		return "", 0, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", kind)
	}
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := who.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return "", resp.StatusCode, nil
	}
	answer, err := io.ReadAll(resp.Body)
	return string(answer), resp.StatusCode, err
}

// upload uploads a skill, as the worker.
func (c *crawl) upload() error {
	var archive, content bytes.Buffer
	z := zip.NewWriter(&archive)
	f, err := z.Create("own/SKILL.md")
	if err == nil {
		_, err = io.WriteString(f, "---\nname: own\ndescription: does things\n---\n")
	}
	if err := errors.Join(err, z.Close()); err != nil {
		return err
	}
	m := multipart.NewWriter(&content)
	part, err := m.CreateFormFile("file", "own.zip")
	if err == nil {
		_, err = part.Write(archive.Bytes())
	}
	if err := errors.Join(err, m.Close()); err != nil {
		return err
	}
	for _, step := range []struct {
		path, kind string
		body       io.Reader
	}{{"/v1/skills/ann/ag/upload", m.FormDataContentType(), &content}, {"/v1/skills/ann/ag/own/baseline", "application/json", strings.NewReader("{}")}} {
		body, status, err := c.sendBody(http.DefaultClient, http.MethodPost, step.path, step.body, step.kind, secretOf(tokens.Admin))
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%s: %d: %s", step.path, status, body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
