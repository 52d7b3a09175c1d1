package console

import (
	"net/http"

	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
)

// A link on another site, such as a mail or a chat, may lead a browser to a page. What the browser sends then is not answered with the page: it lacks the
// cookie of the session, which is SameSite=Strict, and another site asked for it. A page of ours asks for the same address again, as it would for any of our
// links. So another site reaches nothing but pages, as the top of a tab, which it can neither frame (csp) nor keep a window of (Cross-Origin-Opener-Policy).

// fromElsewhere reports whether a page of another origin made a request, as browsers tell it. Addresses that are typed, and programs, are from nowhere.
func fromElsewhere(r *http.Request) bool {
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return true
		}
	}
	return false
}

// arrive answers a request from elsewhere: of a route for pages with a page that asks again. It reads and records nothing.
func (c *Console) arrive(v *visit, r route) error {
	asked := v.Request()
	top := asked.Method == http.MethodGet && asked.Header.Get("Sec-Fetch-Mode") == "navigate" && asked.Header.Get("Sec-Fetch-Dest") == "document"
	if !top || r.page == nil && r.path != "" {
		return fault.New(fault.ForeignOrigin, "other sites can lead to pages only, not to files, streams and forms; open the console, and use its own links and forms")
	}
	address := asked.URL.RequestURI()
	v.Response().Header().Set("Refresh", "0; url="+address)
	return c.render(v, ui.Page{Title: "One moment", Body: view.CrossSite(address)})
}
