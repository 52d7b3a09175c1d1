package ports

import (
	"net/http"
	"net/url"
)

// FromOwnPage reports whether a request that is allowed by its cookie may have been caused by the
// user, or by a page of the same session. A page of another session is of the same site, so the
// cookie comes with its requests; it may only lead the user here, as a link does.
func (d Domain) FromOwnPage(r *http.Request, a Address, secure bool) bool {
	origins := r.Header.Values("Origin")
	for _, origin := range origins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "https" && (secure || u.Scheme != "http") {
			return false
		}
		if from, _, ok := d.Find(u.Host); !ok || from.Session != a.Session {
			return false
		}
	}
	if len(origins) > 0 {
		return true
	}
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
				r.Header.Get("Sec-Fetch-Dest") == "document"
		}
	}
	return true
}
