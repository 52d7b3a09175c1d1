package ui

import (
	"net/url"
	"strings"

	"github.com/a-h/templ"
)

// Root is the path of the console.
const Root = "/console"

// Link returns the address of a page of the console: each part is one element of its path, of any
// content. Query follows in pairs of name and value; empty values are left out.
func Link(parts ...string) Address { return Address{parts: parts} }

// Parse returns the address of a path of the console with its query, without empty parts of the
// path; false if it is anything else, such as the address of another site, or one that a browser or
// a proxy may read as leading elsewhere: with a part . or .. or a slash in a part, also escaped.
func Parse(text string) (Address, bool) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" || u.Fragment != "" {
		return Address{}, false
	}
	path, ok := strings.CutPrefix(u.EscapedPath(), Root)
	if !ok || path != "" && path[0] != '/' {
		return Address{}, false
	}
	var out Address
	for part := range strings.SplitSeq(path, "/") {
		plain, err := url.PathUnescape(part)
		if err != nil || plain == "." || plain == ".." || strings.ContainsAny(plain, `/\`) {
			return Address{}, false
		}
		if plain != "" {
			out.parts = append(out.parts, plain)
		}
	}
	return out.WithAll(u.Query()), true
}

// An Address is the address of a page of the console. Its text is safe in a href whatever its parts
// contain.
type Address struct {
	parts []string
	query url.Values
}

// With returns the address with a parameter of its query set, or removed if the value is empty.
func (a Address) With(name, value string) Address {
	query := url.Values{}
	for n, v := range a.query {
		query[n] = v
	}
	if query.Del(name); value != "" {
		query.Set(name, value)
	}
	a.query = query
	return a
}

// WithAll returns the address with all parameters of query.
func (a Address) WithAll(query url.Values) Address {
	for name := range query {
		a = a.With(name, query.Get(name))
	}
	return a
}

// String returns the address as path and query.
func (a Address) String() string {
	var b strings.Builder
	b.WriteString(Root)
	for _, part := range a.parts {
		b.WriteByte('/')
		switch part {
		case ".", "..": // browsers resolve them, and %2E as well: no address has such a part, and this one leads to no page
			b.WriteString(strings.ReplaceAll(part, ".", "%252E"))
		default:
			b.WriteString(url.PathEscape(part))
		}
	}
	if query := a.query.Encode(); query != "" {
		b.WriteString("?" + query)
	}
	return b.String()
}

// URL returns the address for an attribute of a template.
func (a Address) URL() templ.SafeURL { return templ.SafeURL(a.String()) }
