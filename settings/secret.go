package settings

import (
	"log/slog"
	"net/url"
)

// Secret is text that does not show itself: not in a log, not through fmt, not in JSON.
type Secret string

// Reveal is the text itself.
func (s Secret) Reveal() string { return string(s) }

// String says only whether there is something.
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

// withoutPassword is a database URL as it may be shown. What cannot be read as a URL is not shown at all, since nobody knows where
// in it the password is.
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
