package console

import (
	"net/http"

	"secbox/access/tokens"
	"secbox/api/visible"
	"secbox/console/ui"
	"secbox/fault"
)

// route is a page, a form or another answer of the console. Exactly one of page, form, answer and
// serve is set.
type route struct {
	path   string        // below /console, in echo's form: /execs/:id
	roles  []tokens.Role // may use it, as in openapi.yaml; nil: no one needs to be signed in
	query  []string      // its parameters; it refuses others
	queued bool          // the work for its page waits in a queue of its own, so that it takes no turn; see Door.Turn
	fields []string      // of a form; it refuses others, and repeated ones. A name that ends in * stands for all names that begin so
	onNode bool          // the node that runs the exec answers, also for requests to other nodes

	// serves cross-site requests with any query, as the callback of a sign-in; other routes get
	// them as serveCrossSite allows
	crossSite bool

	nav    string   // its label in the navigation; empty: it is not there
	covers []string // the paths of other pages that belong to this entry of the navigation

	page   func(*request) (ui.Page, error)
	form   func(*request) (next ui.Address, err error) // changes something; the answer leads to next
	answer func(*request) (ui.Page, error)             // a form whose answer is a page that no address has
	serve  func(*request, http.ResponseWriter) error   // anything else, such as a file or a stream
}

// does says what a request of the route does, after "may not".
func (r route) does() string {
	switch {
	case r.form != nil || r.answer != nil:
		return "do this"
	case r.page != nil:
		return "open this page"
	}
	return "get this"
}

// Roles that several routes have.
var (
	readers  = []tokens.Role{tokens.Worker, tokens.Auditor, tokens.Admin}
	auditors = []tokens.Role{tokens.Auditor, tokens.Admin}
	workers  = []tokens.Role{tokens.Worker, tokens.Admin}
	admins   = []tokens.Role{tokens.Admin}

	healthReaders = []tokens.Role{tokens.Worker, tokens.Auditor, tokens.AgentAdmin, tokens.Admin} // see the banner
)

// table lists every page, in the order of the navigation. PagesUnderTest in pages_test.go has an
// address of each.
func (c *Console) table() []route {
	return []route{
		{path: "", roles: skillReaders, serve: c.start},
		{path: "/sign-in", query: []string{"next", "ended"}, page: c.signInPage},
		{path: "/sign-in", fields: []string{"token", "next"}, form: c.signIn},
		{path: "/sign-in/oidc", query: []string{"next"}, serve: c.beginSignOn},
		{path: "/sign-in/oidc/callback", crossSite: true, serve: c.finishSignOn},
		{path: "/sign-out", roles: tokens.Roles(), form: c.signOut},
		{path: "/overview", nav: "Overview", roles: readers, query: []string{"span", "live"}, page: c.overview},
		{path: "/history", nav: "History", covers: []string{"/execs"}, roles: readers, query: historyQuery, page: c.history},
		{path: "/history/views", roles: readers, fields: []string{"name", "query"}, form: c.saveView},
		{path: "/history/views/remove", roles: readers, fields: []string{"name", "query"}, form: c.removeView},
		{path: "/history/newer", roles: readers, query: newerQuery, serve: c.newer},
		{path: "/history/export", roles: auditors, query: historyExportQuery, serve: c.exportHistory},
		{path: "/sessions", nav: "Sessions", roles: readers, query: sessionsQuery, page: c.sessions},
		{path: "/refused", nav: "Refused", roles: readers, query: refusedQuery, page: c.refused},
		{
			path: "/skills", nav: "Skills", covers: []string{"/packages", "/baselines", "/registry"}, roles: skillReaders,
			query: skillsQuery, page: c.skills,
		},
		{path: "/skills/:id", roles: skillReaders, query: []string{"agent_id", "user_id"}, page: c.skill},
		{path: "/packages", roles: skillReaders, query: []string{"agent_id", "user_id", "cursor"}, page: c.packages},
		{path: "/packages/:agent/:user/:skill", roles: skillReaders, page: c.onePackage},
		{path: "/packages/:agent/:user/:skill/file", roles: skillReaders, query: []string{"path"}, page: c.packageFile},
		{path: "/packages/:agent/:user/:skill/diff", roles: skillReaders, queued: true, page: c.packageDiff},
		{path: "/packages/:agent/:user/:skill/download", roles: skillReaders, serve: c.downloadPackage},
		{path: "/baselines/:agent/:skill", roles: skillReaders, page: c.baseline},
		{path: "/baselines/:agent/:skill/file", roles: skillReaders, query: []string{"path"}, page: c.baselineFile},
		{path: "/registry", roles: skillReaders, query: []string{"kind", "query", "cursor"}, page: c.registry},
		{path: "/registry/:kind/:name", roles: skillReaders, query: []string{"cursor"}, page: c.entry},
		{path: "/images", nav: "Images", roles: readers, page: c.images},
		{path: "/images/:name", roles: readers, page: c.image},
		{path: "/runners", nav: "Runners", roles: auditors, query: []string{"user_id", "live"}, page: c.runners},
		{path: "/operations", nav: "Operations", roles: auditors, query: []string{"node", "live"}, page: c.operations},
		{path: "/execs", roles: readers, serve: c.toHistory},
		{path: "/execs/:id", roles: readers, query: []string{"shown", "canceling"}, page: c.exec},
		{path: "/execs/:id/live", roles: readers, query: []string{"from"}, serve: c.streamLive},
		{path: "/execs/:id/output/:stream", roles: readers, onNode: true, query: []string{"from"}, page: c.outputPage},
		{path: "/execs/:id/output/:stream/file", roles: readers, onNode: true, serve: c.downloadOutput},
		{path: "/execs/:id/cast", roles: readers, serve: c.downloadCast},
		{path: "/execs/:id/artifacts", roles: readers, query: []string{"from"}, page: c.artifactsPage},
		{path: "/execs/:id/artifacts.zip", roles: readers, serve: c.downloadArtifacts},
		{path: "/execs/:id/artifacts/*", roles: readers, serve: c.downloadFile(artifactKind)},
		{path: "/execs/:id/show/*", roles: readers, query: []string{"as"}, page: c.showFile(artifactKind)},
		{path: "/execs/:id/view/*", roles: readers, query: []string{"as"}, serve: c.viewFile(artifactKind)},
		{path: "/execs/:id/inputs", roles: readers, query: []string{"from"}, page: c.inputsPage},
		{path: "/execs/:id/inputs/*", roles: readers, serve: c.downloadFile(inputKind)},
		{path: "/execs/:id/show-input/*", roles: readers, query: []string{"as"}, page: c.showFile(inputKind)},
		{path: "/execs/:id/view-input/*", roles: readers, query: []string{"as"}, serve: c.viewFile(inputKind)},
		{path: "/execs/:id/differences", roles: readers, query: []string{"of"}, page: c.differences},
		{path: "/execs/:id/proof", roles: readers, serve: c.downloadProof},
		{path: "/execs/:id/cancel", roles: workers, onNode: true, form: c.cancel},
		{path: "/execs/:id/replay", roles: workers, fields: []string{"key", "stdin", "env.*"}, form: c.replay},
		{path: "/audit", nav: "Audit log", roles: auditors, page: c.auditLog},
		{path: "/audit/report", roles: auditors, query: reportQuery, page: c.auditReport},
		{path: "/audit/report/file", roles: auditors, query: reportQuery, serve: c.downloadReport},
		{path: "/audit/checkpoint", roles: auditors, serve: c.downloadCheckpoint},
		{path: "/audit/key", roles: auditors, serve: c.downloadKey},
		{path: "/audit/events", roles: auditors, query: visible.EventParams, page: c.events},
		{path: "/audit/events/:id/proof", roles: auditors, serve: c.downloadEventProof},
		{path: "/audit/holds", roles: auditors, query: []string{"cursor", "released", "kind", "value"}, page: c.holds},
		{path: "/audit/holds", roles: admins, fields: []string{"id", "kind", "value", "reason"}, form: c.addHold},
		{path: "/audit/holds/:id/release", roles: admins, form: c.releaseHold},
		{path: "/audit/retention", roles: auditors, page: c.retention},
		{path: "/audit/export", roles: auditors, query: exportQuery, page: c.exportForm},
		{path: "/audit/export/file", roles: auditors, query: exportQuery, serve: c.downloadExport},
		{path: "/people", nav: c.navIfSignOn("People"), roles: admins, query: []string{"after"}, page: c.people},
		{path: "/people/block", roles: admins, fields: []string{"id", "unblock"}, form: c.blockPerson},
		{path: "/tokens", nav: "Tokens", roles: admins, query: []string{"revoked", "before"}, page: c.tokens},
		{
			path: "/tokens", roles: admins, fields: []string{"id", "name", "role", "projects", "agents", "users", "user_id"},
			answer: c.createToken,
		},
		{path: "/tokens/:id", roles: admins, page: c.token},
		{path: "/tokens/:id/revoke", roles: admins, form: c.revokeToken},
	}
}

// toHistory redirects /console/execs to the list of execs.
func (c *Console) toHistory(req *request, w http.ResponseWriter) error {
	http.Redirect(w, req.Request(), ui.Link("history").String(), http.StatusSeeOther)
	return nil
}

// start leads to the first page of the navigation.
func (c *Console) start(req *request, w http.ResponseWriter) error {
	for _, item := range c.navigation(req) {
		http.Redirect(w, req.Request(), item.To.String(), http.StatusSeeOther)
		return nil
	}
	return fault.New(fault.Forbidden, "the role %s has no pages here; sign in with a token of another role", req.caller.Role)
}

// Route is an address of the console.
type Route struct {
	Method string        // GET, which includes HEAD, or POST
	Path   string        // from the server's root; :name stands for a part of any content: /console/execs/:id
	Roles  []tokens.Role // may use it; nil: everyone
	Query  []string      // its parameters
}

// Routes lists the addresses of the console without its assets, for tests and measurements that go
// through all of them.
func Routes() []Route {
	var out []Route
	for _, r := range (&Console{}).table() {
		method := http.MethodGet
		if r.form != nil || r.answer != nil {
			method = http.MethodPost
		}
		out = append(out, Route{method, ui.Root + r.path, r.roles, r.query})
	}
	return out
}
