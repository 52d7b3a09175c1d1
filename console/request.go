package console

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"secbox/access/tokens"
	"secbox/console/ui"
	"secbox/fault"
	"secbox/internal/admission"
)

// request is one HTTP request. Its context has the caller as the actor of administrative events.
type request struct {
	echo.Context
	door   Door
	caller tokens.Token // zero: not signed in
	query  url.Values   // one value for each name: repeated values are joined by commas, empty values are left out
	form   url.Values   // the fields of a POST

	session string   // the secret of the caller's session; empty: there is none
	expired bool     // the browser sent the cookie of a session that has ended
	keys    []string // secrets from the browser's cookies: keys[0] signs new form tokens; the other keys only verify
	pushURL bool     // the address has empty or repeated parameters: htmx shows the address with query instead

	verifyEvery time.Duration // how often to verify the session while a long answer is sent, if not every sessionInterval
}

func (req *request) ctx() context.Context { return req.Request().Context() }

// may reports whether the caller has one of the roles.
func (req *request) may(roles []tokens.Role) bool { return slices.Contains(roles, req.caller.Role) }

// server is the address of this server as the browser knows it.
func (req *request) server() string {
	if req.door.Secure(req.Request()) {
		return "https://" + req.Request().Host
	}
	return "http://" + req.Request().Host
}

type doorKey struct{}

func withDoor(ctx context.Context, d Door) context.Context {
	return context.WithValue(ctx, doorKey{}, d)
}

// requestFrom returns the request of an echo context, also when no route matched.
func requestFrom(e echo.Context) *request {
	if req, ok := e.Get("request").(*request); ok {
		req.Context = e
		return req
	}
	door, _ := e.Request().Context().Value(doorKey{}).(Door)
	req := &request{Context: e, door: door, query: url.Values{}}
	e.Set("request", req)
	return req
}

// serve answers the requests of a route.
func (c *Console) serve(r route) echo.HandlerFunc {
	return func(e echo.Context) error {
		req := requestFrom(e)
		if isCrossSite(e.Request()) && !r.crossSite {
			return c.serveCrossSite(req, r)
		}
		signedIn, leave, err := c.enter(req, r.path)
		if err != nil {
			return err
		}
		defer leave()
		if r.roles != nil {
			if signedOut(signedIn) {
				return req.toSignIn()
			}
			if signedIn != nil {
				return signedIn
			}
			if !req.may(r.roles) {
				return fault.New(fault.Forbidden, "the role %s may not %s; allowed are: %s", req.caller.Role, r.does(),
					strings.Join(ui.Strings(r.roles), ", "))
			}
		}
		if err := req.readQuery(r.query); err != nil && !r.crossSite {
			return err
		}
		if r.onNode {
			if forwarded, err := c.forward(req); forwarded || err != nil {
				return err
			}
		}
		if r.form != nil || r.answer != nil {
			if err := c.readForm(req, r.fields); err != nil {
				return err
			}
		}
		switch {
		case r.answer != nil:
			page, err := r.answer(req)
			if err != nil {
				return err
			}
			return c.render(req, page)
		case r.page != nil && (r.roles == nil || r.queued):
			page, err := r.page(req)
			if err != nil {
				return err
			}
			return c.render(req, page)
		case r.page != nil:
			return c.renderInTurn(req, r.page)
		case r.form != nil:
			next, err := r.form(req)
			if err != nil || e.Response().Committed {
				return err
			}
			return e.Redirect(http.StatusSeeOther, next.String())
		default:
			return r.serve(req, e.Response())
		}
	}
}

// enter identifies the caller, and counts the request until leave is called. signedIn is why there
// is no caller; nil: there is one.
func (c *Console) enter(req *request, path string) (signedIn error, leave func(), err error) {
	signedIn = c.identify(req)
	out, in, leave, err := req.door.Enter(req.Response().Writer, req.Request(), ui.Root+path, req.caller, c.stillSignedIn(req))
	if err == nil {
		req.Response().Writer = out
		req.SetRequest(in)
	}
	return signedIn, leave, err
}

// readQuery refuses unknown parameters, since a misspelled filter must not list everything.
func (req *request) readQuery(known []string) error {
	raw, err := url.ParseQuery(req.Request().URL.RawQuery)
	if err != nil {
		return fault.New(fault.InvalidRequest, "the address has a malformed query; open the page from the navigation")
	}
	var bad fault.Fields
	canonical := true
	for name, values := range raw {
		if !slices.Contains(known, name) {
			bad.Add(ui.Cut(name, 40), "there is no such parameter")
			continue
		}
		joined := strings.Join(slices.DeleteFunc(slices.Clone(values), func(s string) bool { return s == "" }), ",")
		canonical = canonical && len(values) == 1 && joined != ""
		if joined != "" {
			req.query.Set(name, joined)
		}
	}
	req.pushURL = !canonical
	return bad.Err()
}

// here is the address of the page, without empty parameters.
func (req *request) here() ui.Address {
	here, _ := ui.Parse(req.Request().URL.EscapedPath()) // a route has matched
	return here.WithAll(req.query)
}

// renderInTurn answers with a page that is made when it is the caller's turn.
func (c *Console) renderInTurn(req *request, read func(*request) (ui.Page, error)) error {
	leave, err := req.door.Turn(req.ctx())
	if err != nil {
		return err
	}
	defer leave()
	page, err := read(req)
	if err != nil {
		return err
	}
	body, err := c.html(req, page)
	if err != nil {
		return err
	}
	leave() // a slow reader keeps no turn
	return req.send(page, body)
}

// render answers with a page in its frame. The page is complete before its first byte is sent.
func (c *Console) render(req *request, page ui.Page) error {
	body, err := c.html(req, page)
	if err != nil {
		return err
	}
	return req.send(page, body)
}

// html returns a page in its frame.
func (c *Console) html(req *request, page ui.Page) (string, error) {
	frame := ui.Frame{
		Page: page, Nav: c.navigation(req), Caller: req.caller.Name, Role: string(req.caller.Role),
		SignOut: req.session != "", Version: c.cfg.Version, Banner: c.banner(req),
	}
	var b bytes.Buffer
	ctx := context.WithoutCancel(req.ctx()) // net/http ends the context of a request whose body stalls, and the client still reads why
	if err := admission.Do(ctx, func() error { return ui.Document(frame).Render(ui.WithCSRF(ctx, req.csrf()), &b) }); err != nil {
		return "", fault.Wrap(fault.Internal, err, "the page could not be made")
	}
	if err := req.door.Reserve(2 * int64(b.Len())); err != nil && page.Status == 0 {
		return "", err
	}
	return ui.Visible(b.String()), nil
}

// send sends the HTML of a page.
func (req *request) send(page ui.Page, body string) error {
	h := req.Response().Header()
	if req.pushURL && req.Request().Header.Get("HX-Request") != "" { // the address bar shows what a form really asked for
		h.Set("HX-Push-Url", req.here().String())
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	req.Response().WriteHeader(max(page.Status, http.StatusOK))
	if req.Request().Method == http.MethodHead {
		return nil
	}
	_, err := req.Response().Write([]byte(body))
	return err
}

// navigation returns the entries for the caller's role.
func (c *Console) navigation(req *request) []ui.NavItem {
	var items []ui.NavItem
	for _, r := range c.routes {
		if r.nav == "" || !req.may(r.roles) {
			continue
		}
		current := slices.ContainsFunc(append([]string{r.path}, r.covers...), func(path string) bool {
			rest, ok := strings.CutPrefix(req.Request().URL.Path, ui.Root+path)
			return ok && (rest == "" || rest[0] == '/')
		})
		items = append(items, ui.NavItem{Label: r.nav, To: ui.Link(strings.TrimPrefix(r.path, "/")), Current: current})
	}
	return items
}

// isLive reports whether the page refreshes itself, which its address can turn off.
func (req *request) isLive(bad *fault.Fields) bool {
	live := req.query.Get("live")
	if live != "" && live != "off" {
		bad.Add("live", "must be off or left out")
	}
	return live == ""
}
