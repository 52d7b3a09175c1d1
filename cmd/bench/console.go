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
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"secbox/access/sessions"
	"secbox/access/tokens"
	"secbox/console"
	"secbox/fault"
	"secbox/store"
	"secbox/store/storetest/planprobe"
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

// consolePages measures every page of the console over filled databases, as each role. The databases take turns, too.
func (b *bench) consolePages(ctx context.Context) (err error) {
	if b.against != "" {
		return nil
	}
	filled := b.filled
	if len(filled) == 0 {
		var remove func() error
		filled, remove, err = b.fillBoth(ctx)
		defer func() { err = errors.Join(err, remove()) }()
		if err != nil {
			return because(ctx, err)
		}
	}
	c := comparison{section: "console", title: "pages of the console", rounds: max(1, b.pairs/2), least: 20}
	var consoles []*filledConsole
	for i, where := range filled {
		one, err := b.openConsole(ctx, fmt.Sprintf("console-%d", i), where)
		if err != nil {
			return because(ctx, err)
		}
		defer func() { err = errors.Join(err, one.close()) }()
		consoles = append(consoles, one)
		for _, p := range one.pages() {
			c.sides = append(c.sides, side{name: p.title, unit: ms, turn: p.turn()})
		}
	}
	c.note = func(out *Comparison) {
		at := 0
		for _, one := range consoles {
			n := len(one.pages())
			one.report(out, out.Sides[at:at+n])
			at += n
		}
		for _, one := range consoles {
			one.views.report(out, one.kind)
		}
	}
	return b.compare(ctx, c)
}

// filledConsole is a core-api over a filled database, and who looks at its pages.
type filledConsole struct {
	kind     string
	db       store.Database
	server   *server
	visitors []*visitor
	views    views
}

// openConsole starts a core-api over a database that `bench fill` has filled, and finds the pages.
func (b *bench) openConsole(ctx context.Context, name, where string) (out *filledConsole, err error) {
	state, database, _ := strings.Cut(where, ",")
	out = &filledConsole{}
	defer func() {
		if err != nil {
			err = errors.Join(err, out.close())
		}
	}()
	if out.db, err = store.Open(ctx, database, state); err != nil {
		return out, err
	}
	out.kind = out.db.Kind()
	for _, r := range readers {
		v, err := signIn(ctx, out.db, r.id, r.name, r.role)
		if err != nil {
			return out, err
		}
		out.visitors = append(out.visitors, v)
	}
	if out.server, err = b.startCoreAPI(ctx, b.server, filepath.Join(b.dir, name), state, noPool, "DATABASE_URL="+database); err != nil {
		return out, err
	}
	for _, v := range out.visitors {
		v.client = out.server.client
		if err := v.explore(ctx, b.addresses); err != nil {
			return out, err
		}
	}
	if out.views, err = b.firstViews(ctx, out.visitors[len(out.visitors)-1]); err != nil {
		return out, err
	}
	m, err := meterOf(out.server.pid(), database)
	for _, p := range out.pages() {
		p.title, p.meter = out.kind+", "+p.visitor.name+" "+p.name, m
	}
	return out, err
}

// close stops the core-api. The error has what a page was refused with.
func (c *filledConsole) close() (err error) {
	for _, v := range c.visitors {
		err = errors.Join(append(v.failed, err)...)
	}
	if c.server != nil {
		err = errors.Join(err, c.server.stop())
	}
	if c.db != nil {
		err = errors.Join(err, c.db.Close())
	}
	return err
}

func (c *filledConsole) pages() (all []*pageKind) {
	for _, v := range c.visitors {
		all = append(all, v.pages...)
	}
	return all
}

// report adds what was measured of pages(), whose sides these are.
func (c *filledConsole) report(out *Comparison, sides []Summary) {
	pages := c.pages()
	for _, v := range c.visitors {
		slowest, dearest := 0, 0
		for i, p := range pages {
			sides[i].CPU = milliseconds(p.cpu) / float64(max(p.asked, 1))
			if p.visitor != v {
				continue
			}
			if pages[slowest].visitor != v || sides[i].P95 > sides[slowest].P95 {
				slowest = i
			}
			if pages[dearest].visitor != v || sides[i].CPU > sides[dearest].CPU {
				dearest = i
			}
		}
		who := fmt.Sprintf("%s, %s", c.kind, v.name)
		out.Targets = append(out.Targets, fact(fmt.Sprintf("%s, %d kinds of pages: p95 of the slowest, %s", who, len(v.pages), pages[slowest].name), ms, sides[slowest].P95, maxPage))
		out.Notes = append(out.Notes, fmt.Sprintf("%s: the page with the most CPU time, %.1f ms in the mean, is %s", who, sides[dearest].CPU, pages[dearest].name))
		for _, note := range v.notes {
			out.Notes = append(out.Notes, c.kind+", "+note)
		}
	}
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
	visitor   *visitor
	name      string
	title     string // with the database and the visitor
	addresses []string
	meter     *meter

	asked int           // how often, after the warm-up
	cpu   time.Duration // of core-api and of the database, for all of them
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

// sessionCookie is the name of the session's cookie of a server.
func sessionCookie(server string) string {
	return "secbox_session_" + server[strings.LastIndexByte(server, ':')+1:]
}

// get requests an address of the console and returns its page; ok is false for anything else, such as a download.
func (v *visitor) get(ctx context.Context, address string) (page string, ok bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a stream would not end
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url+address, nil)
	if err != nil {
		return "", false, err
	}
	req.AddCookie(&http.Cookie{Name: sessionCookie(v.url), Value: v.session})
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
			kinds[kind] = &pageKind{visitor: v, name: kind}
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

// turn measures the whole answer, of one address after the other, and the CPU time for it.
func (p *pageKind) turn() turn {
	warm := false
	return func(ctx context.Context, _ *subject) ([]float64, error) {
		for n := 0; !warm && n < warmUps*len(p.addresses); n++ {
			if _, _, err := p.visitor.get(ctx, p.addresses[n%len(p.addresses)]); err != nil {
				return nil, err
			}
		}
		warm = true
		at := p.addresses[p.asked%len(p.addresses)]
		p.asked++
		before, err := p.meter.read()
		if err != nil {
			return nil, err
		}
		begun := time.Now()
		_, _, err = p.visitor.get(ctx, at)
		took := since(begun)
		after, meterErr := p.meter.read()
		p.cpu += after - before
		return took, errors.Join(err, meterErr)
	}
}
