package api_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/audit/translog"
	"secbox/audit/translog/logtest"
	"secbox/audit/translog/proof"
	"secbox/audit/translog/verify"
	"secbox/fault"
)

// logEvents puts the events so far into the transparency log, and returns its public key.
func (f *fixture) logEvents() string {
	f.t.Helper()
	f.logKey = filepath.Join(f.t.TempDir(), translog.KeyFile)
	key, err := translog.MakeKey(f.logKey, "secbox/test")
	if err != nil {
		f.t.Fatal(err)
	}
	q := translog.NewSequencer(translog.SequencerConfig{
		Store: f.db.TransparencyLog(), Origin: "secbox/test", Holder: "n1", Logger: slog.New(slog.DiscardHandler),
		Key: func(bool) (translog.Key, error) { return key, nil },
	})
	for {
		if n, err := q.Step(f.t.Context()); err != nil {
			f.t.Fatal(err)
		} else if n == 0 {
			return key.Verifier
		}
	}
}

func TestTransparencyLogIsReadWithStandardTools(t *testing.T) {
	t.Parallel()
	f := start(t)
	empty := f.get("/audit/log/checkpoint")
	empty.wants(t, fault.NotLogged)
	if empty.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After is %q", empty.Header.Get("Retry-After"))
	}
	var last audit.Record
	for range 130 { // with two events, a whole tile and a part of one
		last = f.record(nil)
	}
	f.get("/sandbox/execs/"+last.ExecID+"/proof").wants(t, fault.NotLogged)
	key := f.logEvents()
	entries, err := logtest.Verify(key, func(path string) ([]byte, error) {
		r := f.get("/audit/log/" + path)
		if r.StatusCode != 200 || r.Header.Get("Content-Type") == "application/json" {
			return nil, fmt.Errorf("%s: %d %s", path, r.StatusCode, r.body)
		}
		return r.body, nil
	})
	if err != nil || len(entries) <= 256 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	r := f.get("/sandbox/execs/" + last.ExecID + "/proof")
	if result, err := proof.Check(r.body, key); err != nil || result.Record.ExecID != last.ExecID {
		t.Errorf("%+v, %v", result, err)
	}
	if events, err := logtest.VerifyProof(key, r.body); err != nil || len(events) < 2 {
		t.Errorf("the independent verifier: %d events, %v", len(events), err)
	}
	if again := f.do(request{
		path:   "/sandbox/execs/" + last.ExecID + "/proof",
		header: map[string]string{"If-None-Match": r.Header.Get("ETag")},
	}); again.StatusCode != 304 {
		t.Errorf("If-None-Match: %d", again.StatusCode)
	}
	for _, path := range []string{"0/999", "0/000.p/0", "entries/001.p/255", "7/000", "0/%2e%2e/000", "0/000/", strings.Repeat("x", 10_000)} {
		f.get("/audit/log/tile/"+path).wants(t, fault.UnknownFile)
	}
}

func TestAttestation(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.runner.files = map[string]string{"a/b.txt": "hi\n"}
	worker, secret := f.token(tokens.Spec{Role: tokens.Worker})
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor})
	get := func(rec audit.Record, token string) reply {
		return f.do(request{path: "/sandbox/execs/" + rec.ExecID + "/attestation", token: token})
	}
	rec := f.record(func(r *audit.Record) { r.RequestedBy, r.ManifestDigest = worker, strings.Repeat("ab", 32) })
	foreign := f.record(func(r *audit.Record) { r.RequestedBy, r.ManifestDigest = "another", strings.Repeat("ab", 32) })
	bare := f.record(nil)
	get(rec, auditor).wants(t, fault.NotLogged)
	key := f.logEvents()
	for _, token := range []string{auditor, secret} {
		a, err := proof.CheckAttestation(get(rec, token).body, key)
		if err != nil || a.Record.ExecID != rec.ExecID || len(a.Subjects) != 2 || a.Subjects[1].Name != "a/b.txt" ||
			a.Subjects[1].Digest.SHA256 != "98ea6e4f216f2fb4b69fff9b3a44842c38686ca685f3f55dc48c5d3fb1107be4" {
			t.Errorf("%+v, %v", a, err)
		}
	}
	get(foreign, secret).wants(t, fault.UnknownExec)
	get(bare, auditor).wants(t, fault.UnknownArtifact)
}

func TestTransparencyLogIsForAuditors(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, admin := f.token(tokens.Spec{Role: tokens.Admin})
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor})
	worker, secret := f.token(tokens.Spec{Role: tokens.Worker})
	own := f.record(func(r *audit.Record) { r.RequestedBy = worker })
	foreign := f.record(func(r *audit.Record) { r.RequestedBy = "another" })
	f.logEvents()
	for _, path := range []string{"/audit/log/checkpoint", "/audit/log/tile/entries/000.p/1"} {
		for _, token := range []string{admin, auditor} {
			if r := f.do(request{path: path, token: token}); r.StatusCode != 200 {
				t.Errorf("%s: %d %s", path, r.StatusCode, r.body)
			}
		}
		f.do(request{path: path, token: secret}).wants(t, fault.Forbidden)
	}
	if r := f.do(request{path: "/sandbox/execs/" + own.ExecID + "/proof", token: secret}); r.StatusCode != 200 {
		t.Errorf("a worker's own exec: %d %s", r.StatusCode, r.body)
	}
	f.do(request{path: "/sandbox/execs/" + foreign.ExecID + "/proof", token: secret}).wants(t, fault.UnknownExec)
}

// httpEvidence verifies over the routes, as secbox does. It changes each page with tamper.
type httpEvidence struct {
	f      *fixture
	tamper func(page string) string
}

func (e httpEvidence) get(path string) ([]byte, error) {
	r := e.f.get(path)
	if r.StatusCode != 200 {
		return nil, fault.New(fault.UnknownFile, "%d %s", r.StatusCode, r.body)
	}
	return r.body, nil
}

func (e httpEvidence) Checkpoint(context.Context) (string, error) {
	text, err := e.get("/audit/log/checkpoint")
	return string(text), err
}

func (e httpEvidence) Tile(_ context.Context, path string) ([]byte, error) {
	return e.get("/audit/log/tile/" + path)
}

func (e httpEvidence) Subjects(_ context.Context, at string, each func(verify.Subject) error) (string, error) {
	page, err := e.get("/audit/log/documents?" + url.Values{"at": {at}}.Encode())
	if err != nil {
		return "", err
	}
	return verify.ReadSubjects(strings.NewReader(e.tamper(string(page))), each)
}

func TestEvidenceIsVerifiedOverHTTP(t *testing.T) {
	t.Parallel()
	f := start(t)
	first := f.record(nil)
	for range 300 { // more than a page
		f.record(nil)
	}
	key := f.logEvents()
	for name, c := range map[string]struct {
		tamper func(page string) string
		says   string // of the only difference, or of the error
	}{
		"honest": {func(page string) string { return page }, ""},
		"a row": {
			func(page string) string { return strings.Replace(page, `"cwd":"`, `"cwd":"x`, 1) },
			"exec " + first.ExecID + ": cwd: expected ",
		},
		"an exec that is hidden":         {func(page string) string { return page[strings.Index(page, "\n")+1:] }, "events, found none"},
		"a page that breaks off":         {func(page string) string { return page[:len(page)/2] }, "unexpected EOF"},
		"a page without its last line":   {func(page string) string { return page[:strings.LastIndex(page[:len(page)-1], "\n")+1] }, "cut off"},
		"a salt":                         {func(page string) string { return strings.Replace(page, `"salt":"`, `"salt":"AAAA`, 1) }, "a salt of 32 bytes"},
		"a document with another number": {func(page string) string { return strings.Replace(page, `"seq":`, `"seq":9`, 1) }, "another number"},
	} {
		var lines []string
		e := httpEvidence{f, func(page string) string {
			if strings.HasPrefix(page, `{"source":"exec","key":"`+first.ExecID) {
				return c.tamper(page)
			}
			return page
		}}
		_, kept, err := verify.Run(t.Context(), e, verify.Options{
			Key: key, TempDir: t.TempDir(),
			Report: func(d verify.Difference) { lines = append(lines, d.String()) },
		})
		if err != nil {
			lines = append(lines, err.Error())
		}
		if c.says == "" && (kept == nil || len(lines) > 0) || c.says != "" && (kept != nil || len(lines) != 1 || !strings.Contains(lines[0], c.says)) {
			t.Errorf("%s: %q", name, lines)
		}
	}
	for _, at := range []string{"x", "from:", "from:-1", "admin:x", "exec", "removed:"} {
		f.get("/audit/log/documents?at="+url.QueryEscape(at)).wants(t, fault.InvalidRequest)
	}
}
