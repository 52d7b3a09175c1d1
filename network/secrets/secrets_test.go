package secrets_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/network/secrets"
)

var hosts = []string{"api.example.org", "*.example.net:8443"}

// TestSources: values come from files, variables and commands, as they are when they are used, at
// most once a minute.
func TestSources(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	write(t, file, "one\n")
	now := time.Now()
	set := secrets.New(map[string]secrets.Source{
		"file": {File: file, Hosts: hosts}, "env": {Env: "KEY", Hosts: hosts},
		"command": {Command: []string{"/bin/sh", "-c", "echo not this >&2; test -z \"$HIDDEN$KEY\" && tr o 0 < " + file}, Hosts: hosts},
	}, []string{"KEY=from env", "OTHER=x", "HIDDEN=x"}, func() time.Time { return now }, slog.New(slog.DiscardHandler))
	expect := func(name, want string) {
		t.Helper()
		if got, err := set.Value(t.Context(), name, "api.example.org", 443); err != nil || got != want {
			t.Errorf("%s: %q %v, want %q", name, got, err, want)
		}
	}
	expect("file", "one")
	expect("env", "from env")
	write(t, file, "two\r\n")
	expect("file", "one")
	now = now.Add(time.Minute)
	expect("file", "two")
	expect("command", "tw0")
	if got := set.Without([]string{"A=b", "KEY=from env", "OTHER=x"}); !slices.Equal(got, []string{"A=b", "OTHER=x"}) {
		t.Errorf("%q", got)
	}
	if got := set.Hosts(); !slices.Equal(got, []string{"*.example.net:8443", "api.example.org"}) {
		t.Errorf("%q", got)
	}
}

// TestUnusable: the job's sentence names the secret and nothing else; the log says why, without the
// value.
func TestUnusable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct{ content, log string }{
		"empty":   {"\n", "it is empty"},
		"control": {"hunter2\x01", "control characters"},
		"lines":   {"hunter2\nhunter2\n", "more than one line"},
		"long":    {strings.Repeat("hunter2", 2000), "more than 8192 bytes"},
		"utf-8":   {"hunter2\xff", "no UTF-8"},
	} {
		file := filepath.Join(dir, name)
		write(t, file, c.content)
		unusable(t, secrets.Source{File: file}, c.log)
	}
	unusable(t, secrets.Source{File: filepath.Join(dir, "missing")}, "no such file")
	unusable(t, secrets.Source{File: dir}, "no regular file")
	unusable(t, secrets.Source{Env: "MISSING"}, "it is empty")
	unusable(t, secrets.Source{Command: []string{"/bin/sh", "-c", "echo hunter2; echo hunter2 >&2; exit 3"}}, "exit status 3")
}

func unusable(t *testing.T, source secrets.Source, want string) {
	t.Helper()
	var log bytes.Buffer
	source.Hosts = hosts
	set := secrets.New(map[string]secrets.Source{"key": source}, nil, time.Now, slog.New(slog.NewTextHandler(&log, nil)))
	for range 2 {
		value, err := set.Value(t.Context(), "key", "a.example.net", 8443)
		if value != "" || err == nil || err.Error() != "the secret key cannot be read now; tell the operator, and that the log of core-api says why" {
			t.Errorf("%+v: %q %v", source, value, err)
		}
	}
	if text := log.String(); !strings.Contains(text, want) || strings.Contains(text, "hunter2") || strings.Count(text, "\n") != 1 {
		t.Errorf("%+v: logged %s", source, text)
	}
}

// TestFor: a secret is for its hosts and tokens.
func TestFor(t *testing.T) {
	t.Parallel()
	set := secrets.New(map[string]secrets.Source{"all": {Env: "A", Hosts: hosts}, "some": {Env: "A", Hosts: hosts, Tokens: []string{"id1", "ci"}}},
		[]string{"A=v"}, time.Now, slog.New(slog.DiscardHandler))
	for _, c := range []struct {
		host string
		port uint16
		ok   bool
	}{
		{"api.example.org", 443, true},
		{"api.example.org", 8443, false},
		{"x.api.example.org", 443, false},
		{"a.example.net", 8443, true},
		{"a.example.net", 443, false},
		{"example.net", 8443, false},
		{"", 443, false},
	} {
		if _, err := set.Value(t.Context(), "all", c.host, c.port); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := set.Value(t.Context(), "gone", "api.example.org", 443); err == nil || !strings.Contains(err.Error(), "no longer") {
		t.Errorf("%v", err)
	}
	for _, c := range []struct {
		secret, id, name string
		ok               bool
	}{
		{"all", "", "", true},
		{"all", "x", "y", true},
		{"some", "id1", "", true},
		{"some", "x", "ci", true},
		{"some", "x", "y", false},
		{"some", "", "", false},
		{"gone", "id1", "ci", false},
	} {
		if got := set.Allows(c.secret, c.id, c.name); got != c.ok {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
