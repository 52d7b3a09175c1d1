package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit/admin"
	"secbox/audit/translog/proof"
	"secbox/audit/translog/verify"
	"secbox/fault"
)

// smallLog is a log of administrative events, which a test serves.
type smallLog struct {
	key    string
	signer note.Signer
	events []verify.Document
	shown  atomic.Int64                      // entries
	lists  func(at string) []verify.Document // nil: all events
}

// newSmallLog returns a log of two events, and others that it does not show yet.
func newSmallLog(t *testing.T, more ...proof.AdminDocument) *smallLog {
	t.Helper()
	secret, key, err := note.GenerateKey(strings.NewReader(strings.Repeat("k", 100)), "secbox/a")
	if err != nil {
		t.Fatal(err)
	}
	l := &smallLog{key: key}
	if l.signer, err = note.NewSigner(secret); err != nil {
		t.Fatal(err)
	}
	for i, e := range append([]proof.AdminDocument{{Kind: admin.NodeStarted, Data: "{}"}, {Kind: admin.NodeEnded, Data: "{}"}}, more...) {
		e.Seq = int64(i) + 1
		l.events = append(l.events, verify.Document{Seq: e.Seq, Index: int64(i), Salt: bytes.Repeat([]byte{byte(i)}, proof.SaltSize), Canonical: e.Canonical()})
	}
	l.shown.Store(2)
	return l
}

// ServeHTTP answers as core-api does.
func (l *smallLog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	size := l.shown.Load()
	var bundle, tile, page []byte
	var hashes []tlog.Hash
	read := tlog.HashReaderFunc(func(at []int64) (found []tlog.Hash, err error) {
		for _, index := range at {
			found = append(found, hashes[index])
		}
		return found, nil
	})
	for i, e := range l.events[:size] {
		entry := proof.Entry(e.Salt, e.Canonical)
		bundle = append(binary.BigEndian.AppendUint16(bundle, uint16(len(entry))), entry[:]...)
		stored, err := tlog.StoredHashes(int64(i), entry[:], read)
		if err != nil {
			panic(err)
		}
		hashes, tile = append(hashes, stored...), append(tile, stored[0][:]...)
	}
	switch r.URL.Path {
	case "/audit/log/checkpoint":
		root, err := tlog.TreeHash(size, read)
		if err != nil {
			panic(err)
		}
		point, err := note.Sign(&note.Note{Text: string(log.Checkpoint{Origin: "secbox/a", Size: uint64(size), Hash: root[:]}.Marshal())}, l.signer)
		if err != nil {
			panic(err)
		}
		_, _ = w.Write(point)
	case fmt.Sprintf("/audit/log/tile/0/000.p/%d", size):
		_, _ = w.Write(tile)
	case fmt.Sprintf("/audit/log/tile/entries/000.p/%d", size):
		_, _ = w.Write(bundle)
	case "/audit/log/documents":
		events := l.events[:size]
		if l.lists != nil {
			events = l.lists(r.FormValue("at"))
		}
		for _, e := range events {
			page, _ = verify.AppendSubject(page, verify.Subject{Source: verify.SourceAdmin, Key: fmt.Sprintf("%019d", e.Seq), Documents: []verify.Document{e}})
		}
		_, _ = w.Write(verify.AppendEnd(page, ""))
	default:
		http.NotFound(w, r)
	}
}

// endless writes until the client hangs up.
func endless(w io.Writer, text string) {
	text = strings.Repeat(text, 1+(64<<10)/len(text))
	for {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

// TestAuditVerifyOfAHostileServer: every answer and the whole run end, with exit code 2 unless the
// log itself is wrong.
func TestAuditVerifyOfAHostileServer(t *testing.T) {
	t.Parallel()
	l := newSmallLog(t)
	page := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	pending := func(source, key string) string {
		return fmt.Sprintf(`{"source":%q,"key":%q,"documents":[{"seq":1,"index":-1,"document":"{}"}]}`+"\n", source, key)
	}
	for name, c := range map[string]struct {
		path   string // whose answer is hostile
		answer http.HandlerFunc
		code   int
		says   string
	}{
		"honest":                {"none", nil, 0, "0 differences: the log has 2 entries"},
		"no documents":          {"/audit/log/documents", page(`{"next":""}` + "\n"), 1, "entries 0 to 1: expected 2 events, found none"},
		"an endless checkpoint": {"/audit/log/checkpoint", func(w http.ResponseWriter, _ *http.Request) { endless(w, "x") }, 2, "has more than 65536 bytes"},
		"an endless tile":       {"/audit/log/tile/0/000.p/2", func(w http.ResponseWriter, _ *http.Request) { endless(w, "x") }, 2, "has more than 8704 bytes"},
		"a tile that is large once it is decompressed": {"/audit/log/tile/entries/000.p/2", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			endless(z, "x")
		}, 2, "has more than 8704 bytes"},
		"an endless error": {"/audit/log/checkpoint", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			endless(w, "x")
		}, 2, "has more than 65536 bytes"},
		"an endless line": {"/audit/log/documents", func(w http.ResponseWriter, _ *http.Request) { endless(w, "x") }, 2, "has more than 67108864 bytes"},
		"too many subjects": {"/audit/log/documents", func(w http.ResponseWriter, _ *http.Request) {
			for i := range 10_000 {
				_, _ = io.WriteString(w, pending("admin", fmt.Sprintf("%019d", i)))
			}
		}, 2, "more than 5120 subjects and documents"},
		"documents without an end": {"/audit/log/documents", func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.FormValue("at"))
			for i := range 2000 {
				fmt.Fprintf(w, `{"source":"admin","key":"%019d","documents":[{"seq":1,"index":%d,"document":"{}"}]}`+"\n", n+i, i%2)
			}
			fmt.Fprintf(w, `{"next":"%d"}`+"\n", n+2000)
		}, 2, "more than a log of 2 entries can have"},
		"too many differences": {"/audit/log/documents", func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.FormValue("at"))
			for i := range 2000 {
				fmt.Fprintf(w, `{"source":"admin","key":"%019d","documents":[{"seq":1,"index":-1,"overdue":true,"document":"{}"}]}`+"\n", n+i)
			}
			fmt.Fprintf(w, `{"next":%q}`+"\n", map[bool]string{true: strconv.Itoa(n + 2000)}[n < 12_000])
		}, 1, "14001 differences, of which the last 4001 are not printed: the log has 2 entries"},
		"too many documents": {
			"/audit/log/documents", page(`{"source":"admin","key":"1","documents":[` + strings.Repeat("{},", 2_000_000) + `{}]}` + "\n"), 2,
			"more than 5120 subjects and documents",
		},
		"a giant record": {"/audit/log/documents", page(`{"source":"exec","key":"1","row":{"args":[` + strings.Repeat(`"",`, 1_000_000) +
			`""]},"documents":[]}` + "\n"), 2, "more than a log of 2 entries can have"},
		"pages in a circle": {"/audit/log/documents", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"next":%q}`+"\n", map[string]string{"a": "b"}[r.FormValue("at")]+"a")
		}, 2, "does not go on"},
		"subjects in a circle": {"/audit/log/documents", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, pending("exec", "b"), `{"next":"`+r.FormValue("at")+`a"}`+"\n")
		}, 2, "the document of event 1 of exec b cannot be read"},
		"the same page again": {"/audit/log/documents", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, pending("admin", "1"), `{"next":"`+r.FormValue("at")+`a"}`+"\n")
		}, 2, "not in order: admin 1 comes after admin 1"},
		"a document that is said to be removed": {
			"/audit/log/documents",
			page(`{"source":"admin","key":"1","documents":[{"seq":1,"index":0,"removed":true}]}` + "\n" + `{"next":""}`), 1,
			"event 1: expected a salt of 32 bytes",
		},
		"another source": {
			"/audit/log/documents",
			page(`{"source":"removed","key":"1","documents":[{"seq":1,"index":0,"removed":true}]}` + "\n"), 2, "unknown source removed",
		},
		"a member twice": {"/audit/log/documents", page(`{"source":"admin","key":"1","documents":[],"key":"2"}` + "\n"), 2, "duplicate"},
		"an error that is hostile to terminals": {"/audit/log/checkpoint", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"code":"forbidden","detail":"x\u001b[2J"}`)
		}, 2, `x\x1b[2J`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == c.path {
					c.answer(w, r)
					return
				}
				l.ServeHTTP(w, r)
			}))
			t.Cleanup(web.Close)
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), []string{"audit", "verify", "--server", web.URL, "--key", l.key}, environment(), nil, &stdout, &stderr)
			if code != c.code || !strings.Contains(stdout.String()+stderr.String(), c.says) {
				t.Errorf("exit code %d, %q %q", code, stdout.String(), stderr.String())
			}
		})
	}
}

// TestAuditVerifyGoesOnFromItsPlace: pages that do not advance end a run that goes on from a
// verified log.
func TestAuditVerifyGoesOnFromItsPlace(t *testing.T) {
	t.Parallel()
	l, dir := newSmallLog(t), t.TempDir()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.FormValue("at"), verify.FromPrefix) {
			fmt.Fprintln(w, `{"next":"from:1"}`)
			return
		}
		l.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	for _, c := range []struct {
		arg  string
		code int
		says string
	}{
		{"--since=7d", 0, "0 differences"},
		{"--since=7x", 2, `--since "7x" must be a date like 2026-11-21`},
		{"--json=false", 0, "0 differences: the log has 2 entries"},
		{"--new-only", 2, "does not go on after from:2"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), []string{"audit", "verify", "--server", web.URL, "--key", l.key, "--dir", dir, c.arg}, environment(), nil, &stdout, &stderr)
		if code != c.code || !strings.Contains(stdout.String()+stderr.String(), c.says) {
			t.Errorf("exit code %d, %q %q", code, stdout.String(), stderr.String())
		}
	}
}

// slowBody sends a byte after each pause, without an end.
type slowBody struct {
	ctx   context.Context // of the request
	pause time.Duration
}

func (b slowBody) Read(p []byte) (int, error) {
	select {
	case <-time.After(b.pause):
		return copy(p, "x"), nil
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestEvidenceOfAServerThatStalls: a server cannot keep the client for long, with silence or with
// single bytes.
func TestEvidenceOfAServerThatStalls(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]roundTripper{
		"no answer": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
		"a body that never comes": func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(slowBody{r.Context(), time.Hour})}, nil
		},
		"single bytes": func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(slowBody{r.Context(), stallTimeout - time.Second})}, nil
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			e := newEvidence(&endpoint{url: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, client: &http.Client{Transport: answer}})
			if _, err := e.Tile(t.Context(), "0/000"); !fault.Is(err, fault.OutcomeUnknown) || time.Since(began) > 5*time.Minute {
				t.Errorf("%s: after %s: %v", name, time.Since(began), err)
			}
		})
	}
}

// TestExecsRemovedDuringAVerification: an event that the log does not have excuses no missing
// document, unless the log gets it soon.
func TestExecsRemovedDuringAVerification(t *testing.T) {
	t.Parallel()
	for _, logged := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l := newSmallLog(t, proof.AdminDocument{
				Kind: admin.ExecsRemoved, Subject: "audit.retention_days",
				Data: `{"part":"record","days":7,"entries":{"x":[0]}}`,
			})
			l.lists = func(at string) []verify.Document { // the first document was removed
				removal := l.events[2]
				if at == verify.From(2) {
					return []verify.Document{removal}
				}
				removal.Index = -1
				return []verify.Document{l.events[1], removal}
			}
			if logged {
				time.AfterFunc(2*time.Second, func() { l.shown.Store(3) })
			}
			e := newEvidence(&endpoint{
				url: &url.URL{Scheme: "http", Host: "127.0.0.1:1"},
				client: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					w := httptest.NewRecorder()
					l.ServeHTTP(w, r)
					return w.Result(), nil
				})},
			})
			var lines []string
			sum, kept, err := verify.Run(t.Context(), e, verify.Options{
				Key: l.key, TempDir: t.TempDir(),
				Report: func(d verify.Difference) { lines = append(lines, d.String()) },
			})
			if err != nil {
				t.Fatal(err)
			}
			if logged && (len(lines) > 0 || sum.Removed != 1 || kept == nil || kept.Size != 2) ||
				!logged && (kept != nil || len(lines) != 1 || lines[0] != "log: entry 0: expected 1 event, found none") {
				t.Errorf("logged %v: %q, %+v, %v", logged, lines, sum, kept)
			}
		})
	}
}
