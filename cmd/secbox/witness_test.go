package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// oneEntry returns the public key and the checkpoint of a log with one entry.
func oneEntry(t *testing.T, entry string) (key string, point []byte) {
	t.Helper()
	secret, key, err := note.GenerateKey(strings.NewReader(strings.Repeat("k", 100)), "secbox/a")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	root := tlog.RecordHash([]byte(entry))
	if point, err = note.Sign(&note.Note{Text: string(log.Checkpoint{Origin: "secbox/a", Size: 1, Hash: root[:]}.Marshal())}, signer); err != nil {
		t.Fatal(err)
	}
	return key, point
}

func TestAuditWitness(t *testing.T) {
	t.Parallel()
	key, good := oneEntry(t, "e")
	_, other := oneEntry(t, "x")
	var handler atomic.Pointer[http.HandlerFunc]
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/audit/log/checkpoint" || r.Header.Get("Authorization") != "Bearer right" {
			t.Errorf("%s with %q", r.URL.Path, r.Header.Get("Authorization"))
		}
		(*handler.Load())(w, r)
	}))
	t.Cleanup(web.Close)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("a redirect was followed, with %v", r.Header) }))
	t.Cleanup(elsewhere.Close)
	shows := func(text []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) }
	}
	dir := filepath.Join(t.TempDir(), "witness")
	saved := filepath.Join(t.TempDir(), "saved")
	if err := os.WriteFile(saved, other, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		args  []string
		shows http.HandlerFunc
		code  int
		says  []string
	}{
		{"the first time", nil, shows(good), 0, []string{"witness ", "/w1+", "extends all that was seen before: 1 entry"}},
		{"again", nil, shows(good), 0, []string{"/w1+"}},
		{"a page", nil, shows([]byte("<html>")), 2, []string{"no checkpoint of a transparency log"}},
		{"an endless answer", nil, func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}, 2, []string{"more than 65536 bytes"}},
		{"a redirect", nil, http.RedirectHandler(elsewhere.URL, http.StatusFound).ServeHTTP, 2, []string{"302"}},
		{"a refused token", nil, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"code":"forbidden","detail":"the role worker may not"}`)
		}, 2, []string{"the role worker may not"}},
		{"no pause", []string{"--every", "1ms"}, shows(good), 2, []string{"at least 1s"}},
		{"an emptied log", nil, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"code":"not_logged","detail":"empty"}`)
		}, 1, []string{"cut: ", string(good), "is empty"}},
		{"another log", nil, shows(other), 1, []string{"forked: ", string(good), string(other), "evidence"}},
		{"a page, after a finding", nil, shows([]byte("<html>")), 1, []string{"no checkpoint of a transparency log", string(good), "an earlier look", "away"}},
		{"the right log, after a finding", nil, shows(good), 1, []string{string(good), "an earlier look"}},
	} {
		handler.Store(&tc.shows)
		var stdout, stderr bytes.Buffer
		args := append([]string{"audit", "witness", "--server", web.URL, "--key", key, "--dir", dir, "--name", "example.com/w1", "--once"}, tc.args...)
		code := run(t.Context(), args, environment(envToken, "right"), strings.NewReader(""), &stdout, &stderr)
		said := stdout.String() + stderr.String()
		if code != tc.code {
			t.Errorf("%s: exit code %d: %s", tc.name, code, said)
		}
		for _, want := range tc.says {
			if !strings.Contains(said, want) {
				t.Errorf("%s: no %q in %s", tc.name, want, said)
			}
		}
	}
	evidence, err := filepath.Glob(filepath.Join(dir, "evidence", "forked-*.txt"))
	if err != nil || len(evidence) != 1 {
		t.Fatal(evidence, err)
	}
	for name, tc := range map[string]struct {
		other string
		code  int
		says  string
	}{
		"with evidence":    {evidence[0], 1, "forked"},
		"with itself":      {dir, 0, "checkpoints of the same size: 1;"},
		"with another log": {saved, 1, "forked"},
		"with nothing":     {filepath.Join(dir, "none"), 2, "cannot open"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), []string{"audit", "witness", "compare", dir, tc.other, "--key", key}, environment(envToken, ""), strings.NewReader(""),
			&stdout, &stderr)
		if code != tc.code || !strings.Contains(stdout.String()+stderr.String(), tc.says) {
			t.Errorf("compare %s: exit code %d: %s%s", name, code, &stdout, &stderr)
		}
	}
}
