package console

import (
	"context"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"secbox/access/sessions"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
)

// pendingCookie is a sign-in that has begun at a provider: the secret from which its state, nonce
// and verifier are computed, when it began, and where it leads. The server keeps nothing of it.
const pendingCookie = "secbox_oidc"

// Bounds of a sign-in that has begun.
const (
	maxPending     = 10 * time.Minute
	maxPendingNext = 2 << 10 // bytes: browsers keep cookies of 4 KiB
)

func (c *Console) providerName() string {
	if c.cfg.SignOn == nil {
		return ""
	}
	return c.cfg.SignOn.Name()
}

// noSignOn is the error of its pages while it is turned off.
func noSignOn() error {
	return fault.New(fault.NotFound,
		"single sign-on is not set up here; sign in with a token, or see console.oidc in the documentation of the settings")
}

// beginSignOn leads the browser to the provider. A session that it has ends: the answer of the
// provider comes without the session's cookie.
func (c *Console) beginSignOn(req *request, w http.ResponseWriter) error {
	if c.cfg.SignOn == nil {
		return noSignOn()
	}
	if dest := req.Request().Header.Get("Sec-Fetch-Dest"); dest != "" && dest != "document" {
		return fault.New(fault.ForeignOrigin,
			"a sign-in begins in a tab of its own, not in a part of another page; open the page for signing in")
	}
	to := req.query.Get("next")
	secret := sessions.Secret()
	address, err := c.cfg.SignOn.Begin(req.ctx(), secret)
	if err != nil {
		return c.refuseSignIn(err, to)
	}
	if req.session != "" {
		if err := c.cfg.Sessions.End(req.ctx(), req.session, req.caller); err != nil {
			return err
		}
		req.setCookie(req.sessionCookie(), "")
	}
	if len(to) > maxPendingNext {
		to = ""
	}
	req.setPending(strings.Join([]string{
		secret, strconv.FormatInt(c.cfg.Now().Unix(), 10),
		base64.RawURLEncoding.EncodeToString([]byte(to)),
	}, "."))
	http.Redirect(w, req.Request(), address, http.StatusSeeOther)
	return nil
}

// finishSignOn signs in the person whom the provider names. The session's cookie is
// SameSite=Strict, so a redirect from here, which the provider's page has begun, would not have it;
// a page of ours that refreshes itself has it.
func (c *Console) finishSignOn(req *request, w http.ResponseWriter) error {
	if c.cfg.SignOn == nil {
		return noSignOn()
	}
	secret, to, ok := req.pending(c.cfg.Now())
	req.setPending("")
	session, caller, err := c.cfg.Sessions.BeginPerson(req.ctx(), req.door.ClientAddress(req.Request()),
		func(ctx context.Context) (sessions.Person, error) {
			if !ok {
				return sessions.Person{}, fault.New(fault.Unauthenticated,
					"This browser has begun no sign-in in the last %d minutes, or not at %s. Open the console there, and sign in again.",
					int(maxPending.Minutes()), c.cfg.SignOn.Origin())
			}
			return c.cfg.SignOn.Finish(ctx, secret, req.Request().URL.Query())
		})
	if err != nil {
		return c.refuseSignIn(err, to)
	}
	req.setCookie(req.sessionCookie(), session)
	req.setCookie(formCookie, "")
	w.Header().Set("Refresh", "0; url="+c.next(to).String())
	return c.render(req, ui.Page{Title: "Signed in", Body: view.SignedIn(caller.Name, c.next(to))})
}

// signedOutPage leads a person who has signed out here to the sign-out at the provider, whose
// session goes on. It is a link and not a form, since browsers send our forms nowhere else (csp).
func (c *Console) signedOutPage(req *request) ui.Page {
	address, err := c.cfg.SignOn.EndAddress(req.ctx())
	if err != nil {
		c.log.Info("the provider does not tell where its sessions end", "error", err)
	}
	return ui.Page{Title: "Signed out", Body: view.SignedOut(c.providerName(), address)}
}

// setPending sets the cookie of a sign-in that has begun, or removes it with an empty value. It is
// SameSite=Lax: the provider's page leads back to us.
func (req *request) setPending(value string) {
	req.sendCookie(http.Cookie{Name: pendingCookie, Value: value, SameSite: http.SameSiteLaxMode, MaxAge: int(maxPending.Seconds())})
}

// pending returns the sign-in that this browser has begun; false if there is none, or only an old
// one.
func (req *request) pending(now time.Time) (secret, next string, ok bool) {
	cookie, err := req.Request().Cookie(cookieName(pendingCookie, req.door.Secure(req.Request())))
	if err != nil {
		return "", "", false
	}
	parts := strings.Split(cookie.Value, ".")
	if len(parts) != 3 || !isSecret(parts[0]) {
		return "", "", false
	}
	begun, err := strconv.ParseInt(parts[1], 10, 64)
	if age := now.Sub(time.Unix(begun, 0)); err != nil || age < -time.Minute || age > maxPending {
		return "", "", false
	}
	to, err := base64.RawURLEncoding.DecodeString(parts[2])
	return parts[0], string(to), err == nil
}
