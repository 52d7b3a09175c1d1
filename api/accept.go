package api

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// isBrowser reports whether a client asks for a page: it names text/html, and does not prefer JSON.
// Programs name JSON or accept anything.
func isBrowser(r *http.Request) bool {
	html, json := 0.0, 0.0
	for entry := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		name, params, err := mime.ParseMediaType(entry)
		if err != nil {
			continue
		}
		quality := 1.0
		if q, ok := params["q"]; ok {
			quality, _ = strconv.ParseFloat(q, 64) // 0 if it is none
		}
		switch name {
		case "text/html":
			html = quality
		case "application/json":
			json = quality
		}
	}
	return html > 0 && html >= json
}
