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
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/admin"
	"secbox/fault"
	"secbox/translog/proof"
	"secbox/translog/verify"
)

// smallLog is a log of two administrative events.
type smallLog struct {
	key                             string
	point, tile, entries, documents []byte
}

func newSmallLog(t *testing.T) smallLog {
	t.Helper()
	secret, key, err := note.GenerateKey(strings.NewReader(strings.Repeat("k", 100)), "secbox/a")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	l := smallLog{key: key}
	var hashes []tlog.Hash
	for i := range int64(2) {
		d := verify.Document{Seq: i + 1, Index: i, Salt: bytes.Repeat([]byte{byte(i)}, proof.SaltSize)}
		d.Canonical = proof.AdminDocument{Seq: d.Seq, Kind: admin.NodeStarted, Data: "{}"}.Canonical()
		entry := proof.Entry(d.Salt, d.Canonical)
		hash := tlog.RecordHash(entry[:])
		l.entries = append(binary.BigEndian.AppendUint16(l.entries, uint16(len(entry))), entry[:]...)
		hashes, l.tile = append(hashes, hash), append(l.tile, hash[:]...)
		if l.documents, err = verify.AppendSubject(l.documents, verify.Subject{Source: "admin", Key: fmt.Sprintf("%019d", d.Seq), Documents: []verify.Document{d}}); err != nil {
			t.Fatal(err)
		}
	}
	l.documents = verify.AppendEnd(l.documents, "")
	root := tlog.NodeHash(hashes[0], hashes[1])
	if l.point, err = note.Sign(&note.Note{Text: string(log.Checkpoint{Origin: "secbox/a", Size: 2, Hash: root[:]}.Marshal())}, signer); err != nil {
		t.Fatal(err)
	}
	return l
}

// serve answers as core-api does.
func (l smallLog) serve(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/audit/log/checkpoint":
		_, _ = w.Write(l.point)
	case "/audit/log/tile/0/000.p/2":
		_, _ = w.Write(l.tile)
	case "/audit/log/tile/entries/000.p/2":
		_, _ = w.Write(l.entries)
	case "/audit/log/documents":
		_, _ = w.Write(l.documents)
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

// TestAuditVerifyOfAHostileServer: every answer and the whole run end, with exit code 2 unless the log itself is wrong.
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
		"too many documents": {"/audit/log/documents", page(`{"source":"admin","key":"1","documents":[` + strings.Repeat("{},", 2_000_000) + `{}]}` + "\n"), 2, "more than 5120 subjects and documents"},
		"a giant record":     {"/audit/log/documents", page(`{"source":"exec","key":"1","row":{"args":[` + strings.Repeat(`"",`, 1_000_000) + `""]},"documents":[]}` + "\n"), 2, "more than a log of 2 entries can have"},
		"pages in a circle": {"/audit/log/documents", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"next":%q}`+"\n", map[string]string{"a": "b"}[r.FormValue("at")]+"a")
		}, 2, "does not go on"},
		"subjects in a circle": {"/audit/log/documents", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, pending("exec", "b"), `{"next":"`+r.FormValue("at")+`a"}`+"\n")
		}, 2, "the document of event 1 of exec b cannot be read"},
		"the same page again": {"/audit/log/documents", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, pending("admin", "1"), `{"next":"`+r.FormValue("at")+`a"}`+"\n")
		}, 2, "not in order: admin 1 comes after admin 1"},
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
				l.serve(w, r)
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

// TestAuditVerifyGoesOnFromItsPlace: pages that do not advance end a run that goes on from a verified log.
func TestAuditVerifyGoesOnFromItsPlace(t *testing.T) {
	t.Parallel()
	l, dir := newSmallLog(t), t.TempDir()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.FormValue("at"), verify.FromPrefix) {
			fmt.Fprintln(w, `{"next":"from:1"}`)
			return
		}
		l.serve(w, r)
	}))
	t.Cleanup(web.Close)
	for _, c := range []struct {
		since string
		code  int
		says  string
	}{{"7d", 0, "0 differences"}, {"7x", 2, `--since "7x" must be an RFC 3339 time`}, {"", 0, "0 differences: the log has 2 entries"}, {"", 2, "does not go on after from:2"}} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), []string{"audit", "verify", "--server", web.URL, "--key", l.key, "--dir", dir, "--since", c.since}, environment(), nil, &stdout, &stderr)
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

// TestEvidenceOfAServerThatStalls: a server cannot keep the client for long, with silence or with single bytes.
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
