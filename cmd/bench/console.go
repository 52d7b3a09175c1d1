//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"secbox/console"
	"secbox/fault"
	"secbox/sessions"
	"secbox/store"
	"secbox/store/planprobe"
	"secbox/store/storetest/pgcluster"
	"secbox/tokens"
)

// What the console's pages are to cost.
const (
	maxPage   = 50        // ms, the whole answer, p95 warm
	maxView   = 150 << 10 // bytes of a page and its assets, as they are sent
	maxPaint  = 500       // ms, in Chromium on loopback
	warmUps   = 2         // requests of each address before those that count
	pageLimit = 16 << 20  // bytes of a page
)

// readers are the tokens that look at pages.
var readers = []struct {
	id, name string
	role     tokens.Role
}{
	{planprobe.FewBy, "worker with few execs", tokens.Worker},
	{planprobe.MostBy, "worker with most execs", tokens.Worker},
	{"bench-auditor", "auditor", tokens.Auditor},
	{"bench-admin", "admin", tokens.Admin},
}

// lookUps are addresses that a person types or chooses, and no page links to. The others are found by following links.
func lookUps(now time.Time) []string {
	at := func(days int) string { return url.QueryEscape(now.AddDate(0, 0, -days).UTC().Format(time.RFC3339)) }
	out := []string{"/console/history?text=no+command+has+this", "/console/history?text=artifacts&status=failed", "/console/history?status=failed&until=" + at(30)}
	for _, filter := range []string{
		"status=failed", "status=running", "project_id=project-001", "project_id=none", "user_id=user-007", "agent_id=agent-03", "task_id=" + planprobe.TaskID(7), "conversation_id=conversation-00003",
		"skill_id=skill.number3", "error_reason=nonzero_exit", "backend=remote", "kind=change", "requested_by=" + planprobe.FewBy, "status=lost&project_id=project-001",
		"status=lost&user_id=user-007&skill_id=skill.number3", "error_reason=node_lost&agent_id=agent-03",
		"since=" + at(1), "since=" + at(40) + "&until=" + at(39),
	} {
		out = append(out, "/console/history?"+filter)
	}
	for _, filter := range []string{"project_id=project-001", "user_id=user-007", "error_reason=forbidden", "requested_by=" + planprobe.FewBy, "since=" + at(40) + "&until=" + at(39)} {
		out = append(out, "/console/refused?"+filter)
	}
	return out
}

// consolePages measures every page of the console over filled databases, as each role.
func (b *bench) consolePages(ctx context.Context) error {
	if b.against != "" {
		return nil
	}
	if len(b.filled) > 0 {
		var failed []error
		for _, where := range b.filled {
			state, database, _ := strings.Cut(where, ",")
			failed = append(failed, b.consoleOf(ctx, state, database))
		}
		return errors.Join(failed...)
	}
	return errors.Join(b.filledConsole(ctx, "sqlite"), b.filledConsole(ctx, "postgres"))
}

// filledConsole fills a new database for the measurement.
func (b *bench) filledConsole(ctx context.Context, kind string) (err error) {
	dir := filepath.Join(b.dir, "console-"+kind)
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	state := filepath.Join(dir, "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	database := ""
	if kind == "postgres" {
		cluster, err := pgcluster.Start(b.tmp) // not below b.dir, which PostgreSQL's user may not pass
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cluster.Remove()) }()
		if database, err = cluster.Database(); err != nil {
			return err
		}
	}
	db, err := store.Open(ctx, database, state)
	if err != nil {
		return err
	}
	b.logf("console: filling %s with %d rows", kind, b.rows)
	if err := errors.Join(fillHistories(ctx, db, state, b.rows, b.log), db.Close()); err != nil {
		return because(ctx, err)
	}
	return b.consoleOf(ctx, state, database)
}

// consoleOf measures over a database that `bench fill` has filled.
func (b *bench) consoleOf(ctx context.Context, state, database string) (err error) {
	db, err := store.Open(ctx, database, state)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	visitors := make([]*visitor, len(readers))
	for i, r := range readers {
		if visitors[i], err = signIn(ctx, db, r.id, r.name, r.role); err != nil {
			return err
		}
	}
	s, err := b.startCoreAPI(ctx, b.server, filepath.Join(b.dir, "console-workspace"), state, noPool, "DATABASE_URL="+database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	c := comparison{section: "console", title: "pages of the console, " + db.Kind(), rounds: max(1, b.pairs/2), least: 20}
	for _, v := range visitors {
		v.client = s.client
		if err := v.explore(ctx, b.addresses); err != nil {
			return because(ctx, err)
		}
		for _, p := range v.pages {
			c.sides = append(c.sides, side{name: v.name + " " + p.name, unit: ms, turn: p.turn(v)})
		}
	}
	for _, v := range visitors {
		defer func() { err = errors.Join(append(v.failed, err)...) }()
	}
	views, err := b.firstViews(ctx, visitors[len(visitors)-1])
	if err != nil {
		return because(ctx, err)
	}
	c.note = func(out *Comparison) {
		for _, v := range visitors {
			slowest := Summary{}
			for _, s := range out.Sides {
				if rest, ok := strings.CutPrefix(s.Name, v.name+" "); ok && s.P95 > slowest.P95 {
					slowest = s
					slowest.Name = rest
				}
			}
			out.Targets = append(out.Targets, fact(fmt.Sprintf("%s, %s, %d kinds of pages: p95 of the slowest, %s", db.Kind(), v.name, len(v.pages), slowest.Name), ms, slowest.P95, maxPage))
			out.Notes = append(out.Notes, v.notes...)
		}
		out.Sides = append(out.Sides, views.sides...)
		out.Targets = append(out.Targets,
			fact(fmt.Sprintf("%s: largest first view, %s", db.Kind(), views.largest), sizeBytes, views.bytes, maxView),
			fact(fmt.Sprintf("%s: first paint, p95 of the slowest, %s", db.Kind(), views.slowest), ms, views.paint, maxPaint))
	}
	return b.compare(ctx, c)
}

// visitor is a browser that is signed in.
type visitor struct {
	*client
	name    string
	session string
	pages   []*pageKind
	notes   []string
	failed  []error // of addresses, which are not measured
}

// pageKind is a page with certain parameters, such as the history with a status.
type pageKind struct {
	name      string
	addresses []string
	next      int
}

// signIn makes the token unless the database has it, and a session of it.
func signIn(ctx context.Context, db store.Database, id, name string, role tokens.Role) (*visitor, error) {
	t, err := db.Tokens().ByID(ctx, id)
	if fault.Is(err, fault.UnknownToken) {
		var unused tokens.Hash
		rand.Read(unused[:]) // never fails
		t = tokens.Token{ID: id, Name: id, Role: role, CreatedAt: time.Now()}
		err = db.Tokens().Create(ctx, t, unused)
	}
	if err != nil {
		return nil, err
	}
	session, _, err := sessions.New(db.Sessions(), given(t), time.Now).Begin(ctx, "", "127.0.0.1")
	return &visitor{name: name, session: session}, err
}

// given verifies every secret as that of one token.
type given tokens.Token

func (g given) Verify(context.Context, string) (tokens.Token, error) { return tokens.Token(g), nil }

// get requests an address of the console and returns its page; ok is false for anything else, such as a download.
func (v *visitor) get(ctx context.Context, address string) (page string, ok bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a stream would not end
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url+address, nil)
	if err != nil {
		return "", false, err
	}
	req.AddCookie(&http.Cookie{Name: "secbox_session", Value: v.session})
	resp, err := v.Do(req)
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") || resp.StatusCode == http.StatusConflict { // of the proof of an event that the log lacks yet
		return "", false, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, pageLimit))
	switch {
	case err != nil:
		return "", false, err
	case resp.StatusCode != http.StatusOK || strings.HasPrefix(resp.Request.URL.Path, "/console/sign-in"):
		return "", false, fmt.Errorf("%s: %s, at %s: %s", address, resp.Status, resp.Request.URL.Path, heading(body))
	}
	return string(body), true, nil
}

// heading returns the title of a page.
func heading(page []byte) string {
	_, rest, _ := strings.Cut(string(page), "<title>")
	title, _, _ := strings.Cut(rest, "</title>")
	return title
}

var linked = regexp.MustCompile(`\b(?:href|src|hx-get)="(/console[^"#]*)`)

// explore finds the kinds of pages that the visitor may open: those of the navigation, what they link to, and lookUps; and at most
// that many addresses of each.
func (v *visitor) explore(ctx context.Context, most int) error {
	kinds := map[string]*pageKind{}
	waiting := append([]string{"/console"}, lookUps(time.Now())...)
	seen := map[string]bool{}
	downloads := map[string]bool{} // routes
	for len(waiting) > 0 {
		at := waiting[0]
		waiting = waiting[1:]
		kind, ok := kindOf(at)
		route, _, _ := strings.Cut(kind, "?")
		if seen[at] || !ok || downloads[route] || kinds[kind] != nil && len(kinds[kind].addresses) == most {
			continue
		}
		seen[at] = true
		page, ok, err := v.get(ctx, at)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			v.failed = append(v.failed, fmt.Errorf("%s: %w", v.name, err))
		}
		if !ok {
			downloads[route] = err == nil
			continue
		}
		if kinds[kind] == nil {
			kinds[kind] = &pageKind{name: kind}
			v.pages = append(v.pages, kinds[kind])
		}
		kinds[kind].addresses = append(kinds[kind].addresses, at)
		for _, found := range linked.FindAllStringSubmatch(page, -1) {
			waiting = append(waiting, html.UnescapeString(found[1]))
		}
	}
	for _, r := range console.Routes() {
		if r.Method == http.MethodGet && slices.Contains(r.Roles, roleOf(v)) && !slices.ContainsFunc(v.pages, func(p *pageKind) bool { path, _, _ := strings.Cut(p.name, "?"); return path == r.Path }) {
			v.notes = append(v.notes, fmt.Sprintf("%s: no page links to %s, or it is no page", v.name, r.Path))
		}
	}
	return nil
}

func roleOf(v *visitor) tokens.Role {
	for _, r := range readers {
		if r.name == v.name {
			return r.role
		}
	}
	return ""
}

// kindOf returns the route of an address with the names of its parameters. Values of parameters that choose other rows are left out.
func kindOf(address string) (string, bool) {
	u, err := url.Parse(address)
	if err != nil {
		return "", false
	}
	path := strings.Split(u.Path, "/")
	for _, r := range console.Routes() {
		pattern := strings.Split(r.Path, "/")
		if r.Method != http.MethodGet || r.Roles == nil || len(path) != len(pattern) {
			continue
		}
		if slices.EqualFunc(path, pattern, func(part, want string) bool { return part == want || part != "" && strings.HasPrefix(want, ":") }) {
			if names := slices.Sorted(maps.Keys(u.Query())); len(names) > 0 {
				return r.Path + "?" + strings.Join(names, "&"), true
			}
			return r.Path, true
		}
	}
	return "", false
}

// turn measures the whole answer, of one address after the other.
func (p *pageKind) turn(v *visitor) turn {
	warm := false
	return func(ctx context.Context, _ *subject) ([]float64, error) {
		for n := 0; !warm && n < warmUps*len(p.addresses); n++ {
			if _, _, err := v.get(ctx, p.addresses[n%len(p.addresses)]); err != nil {
				return nil, err
			}
		}
		warm = true
		at := p.addresses[p.next%len(p.addresses)]
		p.next++
		begun := time.Now()
		_, _, err := v.get(ctx, at)
		return since(begun), err
	}
}
