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

// visit is one request. Its context has the caller as the actor of administrative events.
type visit struct {
	echo.Context
	caller tokens.Token // zero: not signed in
	query  url.Values   // one value for each name; several values of a form are joined by commas, empty ones are left out
	form   url.Values   // of a form
	door   Door

	session string   // the secret of the caller's session; empty: it has none
	ended   bool     // it had one
	cookies []string // the secrets of this browser: of the first one the tokens of its forms are made, and those of the others are valid, too
	tidy    bool     // the address has parameters that say nothing

	verifyEvery time.Duration // how often the session is verified while a long answer is sent, if not every sessionInterval
}

func (v *visit) ctx() context.Context { return v.Request().Context() }

type doorKey struct{}

func withDoor(ctx context.Context, d Door) context.Context {
	return context.WithValue(ctx, doorKey{}, d)
}

// visitFrom returns the visit of a request, also of one that no route matched.
func visitFrom(e echo.Context) *visit {
	if v, ok := e.Get("visit").(*visit); ok {
		v.Context = e
		return v
	}
	door, _ := e.Request().Context().Value(doorKey{}).(Door)
	v := &visit{Context: e, door: door, query: url.Values{}}
	e.Set("visit", v)
	return v
}

// serve answers the requests of a route.
func (c *Console) serve(r route) echo.HandlerFunc {
	return func(e echo.Context) error {
		v := visitFrom(e)
		if fromElsewhere(e.Request()) && !r.arrival {
			return c.arrive(v, r)
		}
		signedIn, leave, err := c.enter(v, r.path)
		if err != nil {
			return err
		}
		defer leave()
		if r.roles != nil {
			if signedOut(signedIn) {
				return v.toSignIn()
			}
			if signedIn != nil {
				return signedIn
			}
			if !slices.Contains(r.roles, v.caller.Role) {
				return fault.New(fault.Forbidden, "the role %s may not %s; allowed are: %s", v.caller.Role, r.does(), roleNames(r.roles))
			}
		}
		if err := v.readQuery(r.query); err != nil && !r.arrival {
			return err
		}
		if r.onNode {
			if forwarded, err := c.forward(v); forwarded || err != nil {
				return err
			}
		}
		if r.form != nil || r.answer != nil {
			if err := c.readForm(v, r.fields); err != nil {
				return err
			}
		}
		switch {
		case r.answer != nil:
			page, err := r.answer(v)
			if err != nil {
				return err
			}
			return c.render(v, page)
		case r.page != nil && (r.roles == nil || r.queued):
			page, err := r.page(v)
			if err != nil {
				return err
			}
			return c.render(v, page)
		case r.page != nil:
			return c.renderInTurn(v, r.page)
		case r.form != nil:
			next, err := r.form(v)
			if err != nil || e.Response().Committed {
				return err
			}
			return e.Redirect(http.StatusSeeOther, next.String())
		default:
			return r.serve(v, e.Response())
		}
	}
}

// enter identifies the caller, and counts the request until leave is called. signedIn is why there is no caller; nil: there is one.
func (c *Console) enter(v *visit, path string) (signedIn error, leave func(), err error) {
	signedIn = c.identify(v)
	out, in, leave, err := v.door.Enter(v.Response().Writer, v.Request(), ui.Root+path, v.caller, c.stillSignedIn(v))
	if err == nil {
		v.Response().Writer = out
		v.SetRequest(in)
	}
	return signedIn, leave, err
}

func roleNames(roles []tokens.Role) string {
	names := make([]string, len(roles))
	for i, role := range roles {
		names[i] = string(role)
	}
	return strings.Join(names, ", ")
}

// readQuery refuses unknown parameters, since a misspelled filter must not list everything.
func (v *visit) readQuery(known []string) error {
	raw, err := url.ParseQuery(v.Request().URL.RawQuery)
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
			v.query.Set(name, joined)
		}
	}
	v.tidy = !canonical
	return bad.Err()
}

// here is the address of the page, without empty parameters.
func (v *visit) here() ui.Address {
	here, _ := ui.Parse(v.Request().URL.EscapedPath()) // a route has matched
	return here.WithAll(v.query)
}

// renderInTurn answers with a page that is made when it is the caller's turn.
func (c *Console) renderInTurn(v *visit, read func(*visit) (ui.Page, error)) error {
	leave, err := v.door.Turn(v.ctx())
	if err != nil {
		return err
	}
	defer leave()
	page, err := read(v)
	if err != nil {
		return err
	}
	body, err := c.draw(v, page)
	if err != nil {
		return err
	}
	leave() // a slow reader keeps no turn
	return v.send(page, body)
}

// render answers with a page in its frame. The page is complete before its first byte is sent.
func (c *Console) render(v *visit, page ui.Page) error {
	body, err := c.draw(v, page)
	if err != nil {
		return err
	}
	return v.send(page, body)
}

// draw returns a page in its frame.
func (c *Console) draw(v *visit, page ui.Page) (string, error) {
	frame := ui.Frame{Page: page, Nav: c.navigation(v), Caller: v.caller.Name, Role: string(v.caller.Role), SignOut: v.session != "", Version: c.cfg.Version}
	var b bytes.Buffer
	ctx := context.WithoutCancel(v.ctx()) // net/http ends the context of a request whose body stalls, and the client still reads why
	if err := admission.Do(ctx, func() error { return ui.Document(frame).Render(ui.WithCSRF(ctx, v.csrf()), &b) }); err != nil {
		return "", fault.Wrap(fault.Internal, err, "the page could not be made")
	}
	if err := v.door.Reserve(2 * int64(b.Len())); err != nil && page.Status == 0 {
		return "", err
	}
	return ui.Visible(b.String()), nil
}

// send sends a page that was drawn.
func (v *visit) send(page ui.Page, body string) error {
	h := v.Response().Header()
	if v.tidy && v.Request().Header.Get("HX-Request") != "" { // the address bar shows what a form really asked for
		h.Set("HX-Push-Url", v.here().String())
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	v.Response().WriteHeader(max(page.Status, http.StatusOK))
	if v.Request().Method == http.MethodHead {
		return nil
	}
	_, err := v.Response().Write([]byte(body))
	return err
}

// navigation returns the entries for the caller's role.
func (c *Console) navigation(v *visit) []ui.NavItem {
	var items []ui.NavItem
	for _, r := range c.routes {
		if r.nav == "" || !slices.Contains(r.roles, v.caller.Role) {
			continue
		}
		current := slices.ContainsFunc(append([]string{r.path}, r.covers...), func(path string) bool {
			rest, ok := strings.CutPrefix(v.Request().URL.Path, ui.Root+path)
			return ok && (rest == "" || rest[0] == '/')
		})
		items = append(items, ui.NavItem{Label: r.nav, To: ui.Link(strings.TrimPrefix(r.path, "/")), Current: current})
	}
	return items
}
