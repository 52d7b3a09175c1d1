package console

import (
	"net/http"

	"secbox/access/tokens"
	"secbox/console/ui"
)

// Route is an address of the console.
type Route struct {
	Method string        // GET, which includes HEAD, or POST
	Path   string        // from the server's root; :name stands for a part of any content: /console/execs/:id
	Roles  []tokens.Role // may use it; nil: everyone
	Query  []string      // its parameters
}

// Routes lists the addresses of the console without those of its assets, for tests and measurements that go through all of them.
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
