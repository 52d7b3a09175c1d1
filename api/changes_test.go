package api_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
	"secbox/runner/lifecycle"
	"secbox/sandbox"
)

// refusingLog is a log whose database refuses new rows while refuse is set.
type refusingLog struct {
	lifecycle.Log
	refuse atomic.Bool
}

func (l *refusingLog) Open(ctx context.Context, r audit.Record) (*audit.Record, error) {
	if l.refuse.Load() {
		return nil, fault.New(fault.DatabaseUnavailable, "away")
	}
	return l.Log.Open(ctx, r)
}

// changes returns the rows of changes, the newest first.
func (f *fixture) changes() []audit.Record {
	f.t.Helper()
	rows, _, err := f.db.Audit().List(f.t.Context(), audit.Filter{Kind: audit.KindChange}, nil, 100)
	if err != nil {
		f.t.Fatal(err)
	}
	return rows
}

// lastChange fails unless the newest row is of this change.
func (f *fixture) lastChange(what, operation, path, before, after string, status audit.Status, reason audit.Reason) audit.Record {
	f.t.Helper()
	rows := f.changes()
	if len(rows) == 0 {
		f.t.Fatalf("%s: no row", what)
	}
	r := rows[0]
	if r.Cmd != operation || !slices.Equal(r.Args, []string{sandbox.Root + "/" + path}) || r.SHA256Before != before || r.SHA256After != after ||
		r.Status != status || r.ErrorReason != reason ||
		r.RequestedBy != "loopback" || r.UserID != "u" || r.AgentID != "ag" || r.Status.Final() == r.EndedAt.IsZero() {
		f.t.Errorf("%s: want %s %s %s→%s %s %s, got %+v", what, operation, path, before, after, status, reason, r)
	}
	return r
}

func hexDigest(content []byte) string {
	tag, _ := digests(content)
	return strings.TrimSuffix(strings.TrimPrefix(tag, `"sha256:`), `"`)
}

func TestUploadsAreOnRecord(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *fixture, dir string) {
		one, two, large := []byte("one\xff"), noise(100_000), noise(5<<20)
		done := func(what string, r reply, path, before string, content []byte) {
			t.Helper()
			data[wire.V1Written](t, r)
			if row := f.lastChange(what, "uploadSandboxFile", path, before, hexDigest(content), audit.Succeeded, ""); r.Header.Get("X-Exec-Id") != row.ExecID {
				t.Errorf("%s: the answer names the row %s", what, r.Header.Get("X-Exec-Id"))
			}
		}
		done("a new file", f.put("d/f", one, nil), "d/f", "absent", one)
		done("another content", f.put("d/f", two, nil), "d/f", hexDigest(one), two)
		tag, digest := digests(two)
		done("with a condition", f.put("d/f", large, map[string]string{"If-Match": tag}), "d/f", hexDigest(two), large)
		tag, _ = digests(large)
		done("of a large file", f.put("d/f", one, map[string]string{"If-Match": tag}), "d/f", hexDigest(large), one)

		f.put("d/f", two, map[string]string{"If-Match": tag}).refused(t, fault.PreconditionFailed)
		f.lastChange("another version", "uploadSandboxFile", "d/f", hexDigest(large), "", audit.Rejected, audit.InputRefused)
		f.put("d/f", one, map[string]string{"Repr-Digest": digest}).refused(t, fault.InvalidRequest, "Repr-Digest")
		row := f.changes()[0]
		if row.Status != audit.Rejected || row.SHA256After != hexDigest(two) || !strings.Contains(row.Detail, "Repr-Digest") {
			t.Errorf("another digest: %+v", row)
		}
		if r := f.put("../f", one, nil); r.StatusCode != 400 {
			t.Errorf("out of the workspace: %d", r.StatusCode)
		}
		f.lastChange("out of the workspace", "uploadSandboxFile", "../f", "", "", audit.Rejected, audit.InputRefused)
		onDisk(t, dir, "d/f", one)
		n := len(f.changes())
		f.put("d/f", one, map[string]string{"If-Match": "x"}).refused(t, fault.InvalidRequest, "If-Match")
		if len(f.changes()) != n {
			t.Error("a request that describes no change has a row")
		}
	})
}

func TestEditsAreOnRecord(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *fixture, dir string) {
		before := "absent"
		for _, step := range []struct{ query, text, becomes string }{
			{"", "one\ntwo\nthree\n", "one\ntwo\nthree\n"},
			{"&start=2&end=2", "2", "one\n2\nthree\n"},
			{"&start=4&end=4", "four\n", "one\n2\nthree\nfour\n"},
			{"&start=1&end=3", "", "four\n"},
			{"", "", ""},
		} {
			r := f.edit("f"+step.query, step.text)
			data[string](t, r)
			onDisk(t, dir, "f", []byte(step.becomes))
			after := hexDigest([]byte(step.becomes))
			if row := f.lastChange(step.query, "editSandboxFile", "f", before, after, audit.Succeeded, ""); r.Header.Get("X-Exec-Id") != row.ExecID {
				t.Errorf("the answer names the row %s", r.Header.Get("X-Exec-Id"))
			}
			before = after
		}
		f.edit("none&start=1&end=1", "x").refused(t, fault.UnknownFile)
		f.lastChange("no such file", "editSandboxFile", "none", "", "", audit.Rejected, audit.InputRefused)
	})
}

// TestUploadInProgressIsOnRecord: the row is open before the content has arrived. It ends as
// canceled if the client hangs up, and if it is canceled.
func TestUploadInProgressIsOnRecord(t *testing.T) {
	t.Parallel()
	bothWith(t, func(*api.Config) {}, func(t *testing.T, f *fixture, dir string) { // patient: the body stops
		old, content := []byte("old"), noise(1<<20)
		data[wire.V1Written](t, f.put("f", old, nil))
		_, digest := digests(content)
		for name, end := range map[string]func(execID string, hangUp func()){
			"the client hangs up": func(_ string, hangUp func()) { hangUp() },
			"it is canceled": func(execID string, _ func()) {
				if !f.sandboxes.Cancel(t.Context(), execID) {
					t.Error("cannot be canceled")
				}
			},
		} {
			n := len(f.changes())
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			body, more := io.Pipe()
			defer more.Close()
			req, err := http.NewRequestWithContext(ctx, http.MethodPut, f.url+transfer+"f", body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Repr-Digest", digest)
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				if resp, err := http.DefaultClient.Do(req); err == nil {
					resp.Body.Close()
				}
			}()
			if _, err := more.Write(content[:1000]); err != nil {
				t.Fatal(err)
			}
			f.await(name+": the row", func() bool { return len(f.changes()) > n })
			row := f.changes()[0]
			if row.Status != audit.Running || row.SHA256After != hexDigest(content) {
				t.Errorf("%s: %+v", name, row)
			}
			end(row.ExecID, hangUp)
			f.await(name+": the end", func() bool { return f.changes()[0].Status.Final() })
			if row = f.changes()[0]; row.Status != audit.Canceled || row.ErrorReason != audit.ReasonCanceled ||
				row.Detail == "canceled by request" != (name == "it is canceled") {
				t.Errorf("%s: %+v", name, row)
			}
			hangUp()
			more.Close() // the client waits for its body
			<-answered
			onDisk(t, dir, "f", old)
		}
	})
}

// await waits until something is so.
func (f *fixture) await(what string, so func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !so(); {
		if time.Now().After(deadline) {
			f.t.Fatalf("not within half a minute: %s", what)
		}
	}
}

// TestNoChangeWithoutARow: nothing is written, and nothing of the content is read, if the row
// cannot be opened.
func TestNoChangeWithoutARow(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *fixture, dir string) {
		data[wire.V1Written](t, f.put("f", []byte("old"), nil))
		f.sandboxes.log.refuse.Store(true)
		f.put("f", bytes.NewReader(noise(10<<20)), nil).refused(t, fault.DatabaseUnavailable)
		f.put("new/f", []byte("x"), nil).refused(t, fault.DatabaseUnavailable)
		f.edit("f", "x").refused(t, fault.DatabaseUnavailable)
		onDisk(t, dir, "f", []byte("old"))
		if _, err := os.Stat(filepath.Join(dir, "new")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a directory was made: %v", err)
		}
	})
}

// TestChangeIsOfTheToken: the row names the token that asked for the change.
func TestChangeIsOfTheToken(t *testing.T) {
	t.Parallel()
	f := start(t)
	id, secret := f.token(tokens.Spec{Role: tokens.Worker})
	data[wire.V1Written](t, f.do(request{method: "PUT", path: transfer + "f", body: "x", token: secret}))
	if rows := f.changes(); len(rows) != 1 || rows[0].RequestedBy != id {
		t.Errorf("%+v", rows)
	}
}
