package console

import (
	"net/http"

	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
)

// A link on another site, such as a mail or a chat, may lead a browser to a page. The browser sends
// that request without the session's cookie, which is SameSite=Strict. The answer is a small page
// of this site, which requests the same address again as a same-site request. So another site can
// open pages at the top of a tab and nothing else, and can neither frame them (csp) nor keep a
// handle on the window (Cross-Origin-Opener-Policy).

// isCrossSite reports whether a page of another origin made a request, by the headers of browsers.
// Typed addresses and programs send no origin.
func isCrossSite(r *http.Request) bool {
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return true
		}
	}
	return false
}

// serveCrossSite answers a navigation from another site with a page that requests the same address
// again, and refuses all other cross-site requests. It reads and records nothing.
func (c *Console) serveCrossSite(req *request, r route) error {
	asked := req.Request()
	top := asked.Method == http.MethodGet && asked.Header.Get("Sec-Fetch-Mode") == "navigate" &&
		asked.Header.Get("Sec-Fetch-Dest") == "document"
	if !top || r.page == nil && r.path != "" {
		return fault.New(fault.ForeignOrigin, "other sites can lead to pages only, not to files, streams and forms; open the console, "+
			"and use its own links and forms")
	}
	address := asked.URL.RequestURI()
	req.Response().Header().Set("Refresh", "0; url="+address)
	return c.render(req, ui.Page{Title: "One moment", Body: view.CrossSite(address)})
}
