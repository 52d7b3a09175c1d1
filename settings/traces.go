package settings

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"secbox/internal/whole"
)

func (t Traces) check(p *problems) {
	if t.Endpoint != "" {
		const example = "write http://HOST:4318, or leave it out to export no spans"
		u, err := url.Parse(t.Endpoint)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			p.addf("traces.endpoint", "%q is no address of a collector; %s", whole.Shorten(t.Endpoint), example)
		case u.User != nil || u.RawQuery != "" || u.Fragment != "":
			p.addf("traces.endpoint", "has a user, a query or a fragment; put keys into traces.headers")
		}
	}
	if _, err := t.HeaderMap(); err != nil {
		p.addf("CORE_API_TRACES_HEADERS", "%s; write name=value, with commas between headers, and %%2C for a comma in a value", err)
	}
	if !(t.SampleRatio >= 0 && t.SampleRatio <= 1) { // not a number is neither
		p.addf("traces.sample_ratio", "%v is out of bounds; use 0 to 1", t.SampleRatio)
	}
	if t.ServiceName == "" || len(t.ServiceName) > 255 {
		p.addf("traces.service_name", "must have 1 to 255 bytes")
	}
}

// HeaderMap returns the headers for the collector. Its error never quotes a value.
func (t Traces) HeaderMap() (map[string]string, error) {
	headers := map[string]string{}
	for pair := range strings.SplitSeq(t.Headers.Reveal(), ",") {
		pair = strings.TrimSpace(pair)
		if pair == "" {
			continue
		}
		name, escaped, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(escaped))
		if !ok || err != nil || name == "" || strings.ContainsFunc(name, notToken) ||
			strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, fmt.Errorf("header %d is malformed", len(headers)+1)
		}
		headers[http.CanonicalHeaderKey(name)] = value
	}
	return headers, nil
}

// notToken reports whether a rune cannot be in the name of a header (RFC 9110).
func notToken(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}
