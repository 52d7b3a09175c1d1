package console

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"secbox/access/sessions"
	"secbox/access/tokens"
	"secbox/audit/admin"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
	"secbox/runner"
)

// The cookies. Behind TLS their names begin with __Host-, so that no other host can set them.
const (
	formCookie    = "secbox_form" // begins the names of the cookies of a browser that is not signed in
	sessionCookie = "secbox_session"

	maxSessionCookies = 4 // that are looked up for a request
)

// identify sets the caller of a request: from its session, or the caller of requests that need no
// token. Its error says why there is none.
func (c *Console) identify(req *request) error {
	var ended error
	for _, session := range req.sessionCookies() {
		caller, err := c.cfg.Sessions.Caller(req.ctx(), session)
		if err == nil {
			req.caller, req.session, req.keys = caller, session, []string{session}
		}
		if !signedOut(err) {
			req.keys = []string{session} // a form of the sign-in is valid while the database does not answer
			return err
		}
		ended = err
	}
	if req.expired = ended != nil; req.expired {
		req.setCookie(req.sessionCookie(), "")
	}
	if req.keys = req.formCookies(); len(req.keys) == 0 {
		// A browser that opens several pages at once gets a cookie from each: with names of their
		// own, none replaces another.
		req.keys = []string{sessions.Secret()}
		req.setCookie(formCookie+"_"+sessions.Secret()[:8], req.keys[0])
	}
	caller, err := req.door.WithoutToken(req.Request())
	if err != nil && ended != nil {
		return ended
	}
	req.caller = caller
	return err
}

// sessionInterval is how often the session of a long answer is verified again.
const sessionInterval = time.Second

// stillSignedIn returns a function that verifies the session again while an answer is sent, at most
// once in sessionInterval. The function fails only if the session is no longer valid. It is not
// safe for concurrent use.
func (c *Console) stillSignedIn(req *request) func() error {
	next := c.cfg.Now().Add(sessionInterval)
	return func() error {
		now := c.cfg.Now()
		if req.session == "" || now.Before(next) {
			return nil
		}
		every := max(sessionInterval, req.verifyEvery)
		next = now.Add(every)
		err := c.checks.Do(req.ctx(), req.session, now, every, func(ctx context.Context) error {
			_, err := c.cfg.Sessions.Caller(ctx, req.session)
			return err
		})
		if signedOut(err) {
			return err
		}
		return nil
	}
}

// signedOut reports whether an error says that the session is no longer valid.
func signedOut(err error) bool {
	return fault.Is(err, fault.Unauthenticated) || fault.Is(err, fault.TokenRevoked)
}

// toSignIn leads the browser to the page for signing in, and from there back.
func (req *request) toSignIn() error {
	to := ui.Link("sign-in")
	if req.expired {
		to = to.With("ended", "1")
	}
	r := req.Request()
	back := req.here().WithAll(r.URL.Query()).String()
	if r.Method == http.MethodPost {
		to, back = to.With("ended", endedForm), req.formPage()
	}
	if len(back) <= maxNext && back != ui.Root {
		to = to.With("next", back)
	}
	if req.Request().Header.Get("HX-Request") != "" { // htmx would put the page into a part of another
		req.Response().Header().Set("HX-Redirect", to.String())
		return req.NoContent(http.StatusNoContent)
	}
	return req.Redirect(http.StatusSeeOther, to.String())
}

// Values of the parameter ended.
const (
	endedForm = "form" // after a form that was not obeyed
	endedHere = "here" // after a person's sign-out
)

// formPage returns the address of the page on which a form was, as the browser tells it.
func (req *request) formPage() string {
	from, err := url.Parse(req.Request().Referer())
	if err != nil || from.Host != req.Request().Host {
		return ui.Root
	}
	page, ok := ui.Parse(from.RequestURI())
	if !ok {
		return ui.Root
	}
	return page.String()
}

// maxNext is the longest address, in bytes, to which a sign-in leads back.
const maxNext = 4 << 10

// next returns the page of the console to which a sign-in leads: never another site, nor an address
// that takes only forms.
func (c *Console) next(text string) ui.Address {
	to, ok := ui.Parse(text)
	if !ok || len(text) > maxNext || c.takesOnlyForms(to) {
		return ui.Link()
	}
	return to
}

// takesOnlyForms reports whether an address has forms and no page.
func (c *Console) takesOnlyForms(to ui.Address) (only bool) {
	path, _, _ := strings.Cut(to.String(), "?")
	for _, r := range c.routes {
		if !matches(ui.Root+r.path, path) {
			continue
		}
		if r.form == nil && r.answer == nil {
			return false
		}
		only = true
	}
	return only
}

// matches reports whether a path is one of a route, in whose path a part :name is any part.
func matches(route, path string) bool {
	return slices.EqualFunc(strings.Split(route, "/"), strings.Split(path, "/"),
		func(want, part string) bool { return want == part || strings.HasPrefix(want, ":") })
}

// signInPage asks for a token.
func (c *Console) signInPage(req *request) (ui.Page, error) {
	message := ""
	if req.caller.ID == runner.Tokenless {
		return ui.Page{Title: "Signed in", Body: view.SignedIn(req.caller.Name, c.next(req.query.Get("next")))}, nil
	}
	switch req.query.Get("ended") {
	case "":
	case endedHere:
		if c.cfg.SignOn != nil {
			return c.signedOutPage(req), nil
		}
	case endedForm:
		message = "You are not signed in any more, so what you sent changed nothing. Sign in, and send it again."
	default:
		message = "Your session has ended. Sign in again."
	}
	return ui.Page{Title: "Sign in", Body: view.SignIn(req.query.Get("next"), message, c.providerName(), nil)}, nil
}

// refuseSignIn returns the error of a sign-in, which is shown on its page.
func (c *Console) refuseSignIn(err error, next string) error {
	problem := fault.From(err)
	return refusedForm{err, ui.Page{
		Title: "Sign in", Body: view.SignIn(next, "", c.providerName(), problem),
		Status: fault.HTTPStatus(problem.Code),
	}}
}

// signIn exchanges a token for a session, which always has a new secret: one that was there before
// the sign-in is ended.
func (c *Console) signIn(req *request) (ui.Address, error) {
	to := req.form.Get("next")
	session, _, err := c.cfg.Sessions.Begin(req.ctx(), strings.TrimSpace(req.form.Get("token")), req.door.ClientAddress(req.Request()))
	if fault.Is(err, fault.Unauthenticated) {
		err = fault.New(fault.Unauthenticated,
			"The token is not known. Paste the whole token, which begins with %s unless an operator chose it.", tokens.Prefix)
	}
	if err != nil {
		return ui.Address{}, c.refuseSignIn(err, to)
	}
	if req.session != "" {
		if err := c.cfg.Sessions.End(req.ctx(), req.session, req.caller); err != nil {
			return ui.Address{}, err
		}
	}
	req.setCookie(req.sessionCookie(), session)
	req.endFormCookies()
	return c.next(to), nil
}

// signOut ends the session.
func (c *Console) signOut(req *request) (ui.Address, error) {
	to := ui.Link("sign-in")
	if req.session != "" {
		if err := c.cfg.Sessions.End(req.ctx(), req.session, req.caller); err != nil {
			return ui.Address{}, err
		}
		req.setCookie(req.sessionCookie(), "")
		if strings.HasPrefix(req.caller.ID, admin.PersonPrefix) {
			to = to.With("ended", endedHere)
		}
	}
	return to, nil
}

// cookieName returns the name of a cookie for this connection.
func cookieName(name string, secure bool) string {
	if secure {
		return "__Host-" + name
	}
	return name
}

// sessionCookie is the name of the session's cookie. Browsers send cookies to all ports of a host,
// so each server there has its own.
func (req *request) sessionCookie() string {
	_, port, _ := net.SplitHostPort(req.Request().Host)
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return sessionCookie
	}
	return sessionCookie + "_" + port
}

// sessionCookies returns the sessions that the browser has cookies of. They are more than one where
// another host of the same domain has set one.
func (req *request) sessionCookies() (secrets []string) {
	for _, cookie := range req.Request().CookiesNamed(cookieName(req.sessionCookie(), req.door.Secure(req.Request()))) {
		if isSecret(cookie.Value) && len(secrets) < maxSessionCookies {
			secrets = append(secrets, cookie.Value)
		}
	}
	return secrets
}

// formCookies returns the secrets of a browser that is not signed in.
func (req *request) formCookies() (secrets []string) {
	for _, cookie := range req.Request().Cookies() {
		if strings.HasPrefix(cookie.Name, cookieName(formCookie, req.door.Secure(req.Request()))) && isSecret(cookie.Value) {
			secrets = append(secrets, cookie.Value)
		}
	}
	return secrets
}

// isSecret reports whether a text has the form of sessions.Secret.
func isSecret(s string) bool {
	return len(s) == sessions.SecretLength && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// setCookie sets a cookie until the browser is closed, or removes it with an empty value. Scripts
// cannot read it, and requests of other sites do not have it.
func (req *request) setCookie(name, value string) {
	req.sendCookie(http.Cookie{Name: name, Value: value, SameSite: http.SameSiteStrictMode})
}

// sendCookie sets a cookie, or removes it if it has no value.
func (req *request) sendCookie(cookie http.Cookie) {
	cookie.Secure = req.door.Secure(req.Request())
	cookie.Name, cookie.Path, cookie.HttpOnly = cookieName(cookie.Name, cookie.Secure), "/", true
	if cookie.Value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(req.Response(), &cookie)
}

// endFormCookies removes the cookies of a browser that was not signed in.
func (req *request) endFormCookies() {
	for _, cookie := range req.Request().Cookies() {
		if name := strings.TrimPrefix(cookie.Name, cookieName("", req.door.Secure(req.Request()))); strings.HasPrefix(name, formCookie) {
			req.setCookie(name, "")
		}
	}
}
