package console_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/engine"
	"secbox/engine/memengine"
	"secbox/fault"
	"secbox/replay"
)

// TestReplayForm: the fields become variables by their place, whatever their names, and a refusal
// says what to do.
func TestReplayForm(t *testing.T) {
	t.Parallel()
	f := fullApp()
	ended := &f.records[58]
	ended.EnvKeys = []string{"LANG", "<b>\u202e"}
	v := newVisitor(t, f.serve(t))
	page, to := "/console/execs/"+execID(2), "/console/execs/"+execID(2)+"/replay"
	withKey := func(fields url.Values) url.Values {
		_, body := v.get(page)
		_, rest, _ := strings.Cut(body, `name="key" value="`)
		key, _, _ := strings.Cut(rest, `"`)
		fields.Set("key", key)
		return fields
	}
	first := withKey(url.Values{"env.1": {"x"}, "env.0": {""}, "env.2": {"none"}, "stdin": {"a\r\nb"}})
	if resp, body := v.post(page, to, first); resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/console/execs/"+execID(1) {
		t.Fatalf("%d: %.600s", resp.StatusCode, body)
	}
	q := f.replayer.asked[0]
	if len(q.Env) != 1 || q.Env["<b>\u202e"] != "x" || string(q.Stdin) != "a\nb" || q.RequestedBy != "t" || q.First.ExecID != execID(2) ||
		q.IdempotencyKey != first.Get("key") {
		t.Errorf("%+v", q)
	}
	if again := withKey(url.Values{}); again.Get("key") == q.IdempotencyKey {
		t.Error("two pages have the same key")
	}
	for _, key := range []string{"", "x", "console-", "console-" + strings.Repeat("a", 52), "console-" + strings.Repeat("A", 53)} {
		if resp, _ := v.post(page, to, url.Values{"key": {key}}); resp.StatusCode != http.StatusBadRequest || len(f.replayer.asked) != 1 {
			t.Errorf("the key %q: %d", key, resp.StatusCode)
		}
	}
	f.replayer.err = &fault.Error{Code: fault.NotReplayable, Message: "the image is gone: pull it again", ExecID: execID(3)}
	if resp, body := v.post(page, to, withKey(url.Values{})); resp.StatusCode != http.StatusConflict ||
		!strings.Contains(body, "the image is gone: pull it again") || !strings.Contains(body, `href="/console/execs/`+execID(3)+`"`) {
		t.Errorf("a refusal: %d, %.600s", resp.StatusCode, body)
	}
	if _, body := v.get("/console/execs/" + execID(1)); strings.Contains(body, `/replay"`) || strings.Contains(body, "Comparison") {
		t.Error("the page of a running exec has a form for a replay")
	}
	if _, body := v.get("/console/execs/" + execID(3)); strings.Contains(body, `/replay"`) {
		t.Error("the page of a refused exec has a form for a replay")
	}
	ended.Backend = "none"
	if _, body := v.get(page); strings.Contains(body, `/replay"`) ||
		!strings.Contains(body, "is a command in a user’s sandbox") && !strings.Contains(body, "is a command in a user&#39;s sandbox") {
		t.Error("the page of a command in a sandbox does not say why it cannot be replayed")
	}
}

// TestComparisonOrder: what differs comes first, and a long comparison is cut.
func TestComparisonOrder(t *testing.T) {
	t.Parallel()
	f := fullApp()
	for range 300 {
		f.replayer.points = append(f.replayer.points, replay.Point{What: "artifacts/same", Equal: replay.Yes})
	}
	v := newVisitor(t, f.serve(t))
	_, page := v.get("/console/execs/" + execID(2))
	differs, unknown, equal := strings.Index(page, "they wrote something else"), strings.Index(page, "its former state is not kept"),
		strings.Index(page, "artifacts/same")
	if differs < 0 || unknown < differs || equal < unknown || strings.Count(page, "artifacts/same") != 197 || !strings.Contains(page, "103 more points") {
		t.Errorf("at %d, %d, %d; %d equal ones", differs, unknown, equal, strings.Count(page, "artifacts/same"))
	}
}

// TestReplayOverRealCore: a replay is led to while it runs, runs once however often its form is
// sent, and is compared with the original.
func TestReplayOverRealCore(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	started, release := make(chan struct{}), make(chan struct{})
	c := startCore(t, map[string]memengine.Command{"turn": func(ctx context.Context, p *memengine.Process) (int, *engine.Exit, error) {
		n := runs.Add(1)
		if n == 2 {
			close(started)
			select {
			case <-release:
			case <-ctx.Done():
				return 0, nil, errors.New("the replay was ended")
			}
		}
		_, err := p.Stdout.Write([]byte{byte('0' + n), '\n'})
		return 0, nil, err
	}})
	secret, other := c.token("worker", tokens.Worker), c.token("other", tokens.Worker)
	first := c.run(secret, "turn; echo same > /workspace/artifacts/same.txt")
	page, to := "/console/execs/"+first, "/console/execs/"+first+"/replay"
	v := newVisitor(t, c.url)
	v.signIn(secret)
	_, body := v.get(page)
	_, rest, _ := strings.Cut(body, `name="key" value="`)
	key, _, _ := strings.Cut(rest, `"`)

	for role, secret := range map[string]string{"another worker": other, "an auditor": c.token("auditor", tokens.Auditor)} {
		stranger := newVisitor(t, c.url)
		stranger.signIn(secret)
		if resp, _ := stranger.post("/console/history", to, url.Values{"key": {key}}); resp.StatusCode != http.StatusNotFound &&
			resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", role, resp.StatusCode)
		}
		if _, body := stranger.get(page); strings.Contains(body, to) {
			t.Errorf("%s has the form", role)
		}
	}
	if runs.Load() != 1 {
		t.Fatal("a stranger ran the exec")
	}

	resp, _ := v.post(page, to, url.Values{"key": {key}})
	second := resp.Header.Get("Location")
	if resp.StatusCode != http.StatusSeeOther || !strings.HasPrefix(second, "/console/execs/") || second == page {
		t.Fatalf("%d, %s", resp.StatusCode, second)
	}
	<-started
	if _, body := v.get(second); !strings.Contains(body, ">running<") || !strings.Contains(body, `href="`+page+`"`) || strings.Contains(body, "Comparison") {
		t.Error("the page of the replay does not show it running")
	}
	close(release)
	if resp, _ := v.post(page, to, url.Values{"key": {key}}); resp.Header.Get("Location") != second || runs.Load() != 2 { // waits until it has ended
		t.Errorf("the form again: %d, %s; %d runs", resp.StatusCode, resp.Header.Get("Location"), runs.Load())
	}
	_, body = v.get(second)
	for _, want := range []string{"Comparison with the original", ">differs<", "they wrote something else", "artifacts/same.txt", ">equal<"} {
		if !strings.Contains(body, want) {
			t.Errorf("the comparison has no %q", want)
		}
	}
	if _, body := v.get(page); !strings.Contains(body, `href="`+second+`"`) {
		t.Error("the page of the original does not list its replay")
	}

	// An exec of a token whose scope no longer has its project.
	limited, limitedSecret, err := c.tokens.Create(t.Context(), tokens.Spec{Name: "limited", Role: tokens.Worker, Projects: []string{"elsewhere"}})
	must(t, err)
	moved, err := c.db.Audit().Get(t.Context(), first)
	must(t, err)
	moved.ExecID, moved.RequestedBy, moved.Status, moved.ExitCode, moved.EndedAt = uuid.Must(uuid.NewV7()).String(), limited.ID, audit.Running, nil, time.Time{}
	if _, err := c.db.Audit().Open(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	v = newVisitor(t, c.url)
	v.signIn(limitedSecret)
	resp, body = v.post("/console/history", "/console/execs/"+moved.ExecID+"/replay", url.Values{"key": {key}})
	if resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "project_id: the project is not in the token") ||
		!strings.Contains(body, "It is on record") {
		t.Errorf("out of scope of %s: %d, %.900s", limited.ID, resp.StatusCode, body)
	}
}
