package settings

import (
	"log/slog"
	"net/url"
)

// Secret is text that logs, fmt and JSON do not show.
type Secret string

// Reveal returns the text.
func (s Secret) Reveal() string { return string(s) }

// String shows only whether the secret is set.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(secret)"
}

// GoString keeps %#v from showing the text.
func (s Secret) GoString() string { return s.String() }

// MarshalText keeps encoders from showing the text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue keeps slog from showing the text.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// secretParams are the parameters of a PostgreSQL URL that are secrets.
var secretParams = []string{"password", "sslpassword"}

// withoutPassword returns a database URL that may be shown. Text that is no URL is not shown at
// all, since the password could be anywhere in it.
func withoutPassword(databaseURL Secret) string {
	if databaseURL == "" {
		return ""
	}
	u, err := url.Parse(string(databaseURL))
	if err != nil || u.Scheme == "" || u.Opaque != "" {
		return databaseURL.String()
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	if u.RawQuery != "" {
		q, err := url.ParseQuery(u.RawQuery)
		if err != nil {
			return databaseURL.String()
		}
		for _, name := range secretParams {
			q.Del(name)
		}
		u.RawQuery = q.Encode()
	}
	return u.String()
}
