package ports

import (
	"crypto/hmac"
	"net/http"
	"strconv"
	"strings"
	"time"

	"secbox/audit/hmackey"
)

// Param is the parameter of a URL that has a Link.
const Param = "secbox_link"

// Lifetimes of links.
const (
	DefaultLifetime = time.Hour
	MaxLifetime     = 24 * time.Hour
)

// Link lets its holder use one port of one session in the name of a token, as long as the token is
// valid.
type Link struct {
	Address

	ID      string // without dots; random
	Token   string // id
	Expires time.Time
}

// purpose has a key of its own.
const purpose = "session port link"

func (l Link) signature(k hmackey.Key) string {
	// A NUL is in none of the texts.
	return k.Sign(purpose, strings.Join([]string{
		l.Session, strconv.Itoa(int(l.Port)), l.ID, strconv.FormatInt(l.Expires.Unix(), 10), l.Token,
	}, "\x00"))
}

// Text returns the link, signed. It has no session and no port: those are the host's.
func (l Link) Text(k hmackey.Key) string {
	return l.Token + "." + l.ID + "." + strconv.FormatInt(l.Expires.Unix(), 10) + "." + l.signature(k)
}

// maxText is longer than any Text.
const maxText = 400

// Open returns the link of a text that was signed for the address and has not expired.
func Open(k hmackey.Key, a Address, text string, now time.Time) (Link, bool) {
	if len(text) > maxText {
		return Link{}, false
	}
	l := Link{Address: a}
	var ends, signed string
	var found [3]bool
	text, signed, found[0] = cutLast(text)
	text, ends, found[1] = cutLast(text)
	l.Token, l.ID, found[2] = cutLast(text)
	seconds, err := strconv.ParseInt(ends, 10, 64)
	if found != [3]bool{true, true, true} || err != nil {
		return Link{}, false
	}
	l.Expires = time.Unix(seconds, 0).UTC()
	return l, hmac.Equal([]byte(l.signature(k)), []byte(signed)) && now.Before(l.Expires)
}

func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// Take returns the links in a query, and the query without them, otherwise as it is.
func Take(rawQuery string) (texts []string, rest string) {
	var kept []string
	for part := range strings.SplitSeq(rawQuery, "&") {
		if text, ok := strings.CutPrefix(part, Param+"="); ok {
			texts = append(texts, text)
		} else {
			kept = append(kept, part)
		}
	}
	return texts, strings.Join(kept, "&")
}

// Target returns the target of a redirect to the same host: a path that begins with one slash only,
// since two would begin another host.
func Target(escapedPath, rawQuery string) string {
	target := "/" + strings.TrimLeft(escapedPath, `/\`)
	if rawQuery != "" {
		target += "?" + rawQuery
	}
	return target
}

// Cookies of this server, with all their names, begin with one of these.
const (
	cookiePrefix = "secbox_"
	hostPrefix   = "__Host-"
)

func cookieName(secure bool) string {
	if secure {
		return hostPrefix + cookiePrefix + "port" // no other host can set it
	}
	return cookiePrefix + "port"
}

// maxCookies are looked up of a request: pages of other sessions may set some for this host.
const maxCookies = 8

// OfCookies returns the link that a request has in a cookie.
func OfCookies(k hmackey.Key, a Address, r *http.Request, secure bool, now time.Time) (Link, bool) {
	for i, cookie := range r.CookiesNamed(cookieName(secure)) {
		if i == maxCookies {
			break
		}
		if l, ok := Open(k, a, cookie.Value, now); ok {
			return l, true
		}
	}
	return Link{}, false
}

// SetCookie keeps a link in the browser, for its host alone.
func (l Link) SetCookie(w http.ResponseWriter, k hmackey.Key, secure bool) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(secure), Value: l.Text(k), Path: "/", Expires: l.Expires, Secure: secure, HttpOnly: true,
		SameSite: http.SameSiteLaxMode,
	})
}

// isOurs reports whether a cookie has a name of this server, such as the console's.
func isOurs(name string) bool {
	name = strings.ToLower(strings.TrimSpace(name))
	return strings.HasPrefix(strings.TrimPrefix(name, strings.ToLower(hostPrefix)), cookiePrefix)
}
