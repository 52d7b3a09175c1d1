package webhooks

import (
	"strings"
	"testing"

	"secbox/audit/hmackey"
	"secbox/fault"
)

// TestQueriesAreSealed: an address is stored with its query sealed, for one name, and cannot be
// moved to another address. Those that an older version stored are read as they are.
func TestQueriesAreSealed(t *testing.T) {
	t.Parallel()
	s, other := Secrets{Key: hmackey.New([]byte("key"))}, Secrets{Key: hmackey.New([]byte("other"))}
	for _, url := range []string{
		"", "https://a.example", "https://a.example/x?key=hunter2", "https://a.example/?", "https://a.example/?a=?&b=ü",
		"https://a.example/?" + strings.Repeat("x", MaxURL),
	} {
		stored := s.sealQuery("e1", url)
		if got, err := s.openQuery("e1", stored); got != url || err != nil {
			t.Errorf("%.60q: %.60q, %v", url, got, err)
		}
		if got, err := s.openQuery("e1", url); got != url || err != nil {
			t.Errorf("in clear text, %.60q: %.60q, %v", url, got, err)
		}
		if got := WithoutQuery(stored); got != WithoutQuery(url) {
			t.Errorf("%.60q is shown as %q", url, got)
		}
	}
	const url = "https://a.example/x?key=hunter2"
	stored := s.sealQuery("e1", url)
	if strings.Contains(stored, "hunter2") || strings.Contains(stored, "key=") {
		t.Error(stored)
	}
	// An older version does not call the address without its password.
	if _, err := (Policy{Allow: []string{"a.example"}, AllowHTTP: true}).Check(stored); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("%q is an address: %v", stored, err)
	}
	for what, open := range map[string]func() (string, error){
		"another key":     func() (string, error) { return other.openQuery("e1", stored) },
		"another name":    func() (string, error) { return s.openQuery("e2", stored) },
		"another address": func() (string, error) { return s.openQuery("e1", strings.Replace(stored, "a.example", "b.example", 1)) },
		"no text":         func() (string, error) { return s.openQuery("e1", "sealed:https://a.example/x?%") },
		"no query":        func() (string, error) { return s.openQuery("e1", "sealed:https://a.example/x") },
	} {
		if got, err := open(); got != "" || !fault.Is(err, fault.InvalidRequest) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}
