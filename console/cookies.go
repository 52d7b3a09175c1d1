package console

import (
	"net/http"
	"strings"
)

// The cookies. Behind TLS their names begin with __Host-, so that no other host can set them.
const (
	formCookie    = "secbox_form" // of a browser that is not signed in
	sessionCookie = "secbox_session"
)

// cookieName returns the name of a cookie for this connection.
func cookieName(name string, secure bool) string {
	if secure {
		return "__Host-" + name
	}
	return name
}

// readCookie returns the value of a cookie; empty without one, and for one that this server did not make.
func (v *visit) readCookie(name string) string {
	cookie, err := v.Request().Cookie(cookieName(name, v.door.Secure(v.Request())))
	if err != nil || len(cookie.Value) != len(random()) || strings.Trim(cookie.Value, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return ""
	}
	return cookie.Value
}

// setCookie sets a cookie until the browser is closed, or removes it with an empty value. Scripts cannot read it, and requests of other sites do not have it.
func (v *visit) setCookie(name, value string) {
	secure := v.door.Secure(v.Request())
	cookie := &http.Cookie{Name: cookieName(name, secure), Value: value, Path: "/", HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode}
	if value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(v.Response(), cookie)
}
