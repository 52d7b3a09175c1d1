package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/hmackey"
	"secbox/fault"
	"secbox/internal/quota"
	"secbox/runner/webhooks"
)

// TestCallbackURL: the runner gets a callback_url of an allowed host, once the token has a secret,
// and it is part of what an Idempotency-Key names.
func TestCallbackURL(t *testing.T) {
	t.Parallel()
	f := start(t)
	id, secret := f.token(tokens.Spec{Role: tokens.Worker})
	const url = "https://hooks.example.com/secbox?key=hunter2"
	bodies := map[string]string{
		"/sandbox/execs":           `{"project_id": "demo", "callback_url": "` + url + `", ` + aCommand + `}`,
		"/skills/shell.run/invoke": `{"project_id": "demo", "callback_url": "` + url + `", "inputs": {"script": "true"}}`,
	}
	for path, body := range bodies {
		f.do(request{method: "POST", path: path, body: body, token: secret}).wants(t, fault.InvalidRequest, "callback_url")
	}
	if seen := f.runner.seen(); len(seen) != 0 {
		t.Fatalf("without a secret, %d execs ran", len(seen))
	}
	made := decodeAs[wire.WebhookSecret](t, f.do(request{method: "POST", path: "/webhooks/secret", token: secret}), 200)
	if !strings.HasPrefix(made.Secret, "whsec_") || made.PreviousValidUntil != nil {
		t.Errorf("%+v", made)
	}
	events, err := f.db.AdminEvents().List(t.Context(), admin.Filter{Kind: admin.WebhookSecret}, nil, 10)
	if err != nil || len(events) != 1 || events[0].Subject != id || events[0].Actor.ID != id || strings.Contains(events[0].Data, "whsec_") {
		t.Errorf("%+v, %v", events, err)
	}
	for path, body := range bodies {
		key := map[string]string{"Idempotency-Key": path}
		if r := f.do(request{method: "POST", path: path, body: body, token: secret, header: key}); r.StatusCode != 200 {
			t.Errorf("%s: %d %s", path, r.StatusCode, r.body)
		}
		seen := f.runner.seen()
		if got := seen[len(seen)-1].CallbackURL; got != url {
			t.Errorf("%s: the runner got %q", path, got)
		}
		other := strings.Replace(body, "hunter2", "hunter3", 1)
		f.do(request{method: "POST", path: path, body: other, token: secret, header: key})
		if now := f.runner.seen(); len(now) != len(seen)+1 || now[len(seen)].Digest == seen[len(seen)-1].Digest {
			t.Errorf("%s: the digest of the request is the same with another callback_url", path)
		}
		for _, bad := range []string{
			"https://other.test/", "http://hooks.example.com/", "https://u:p@hooks.example.com/", "hooks.example.com",
			"https://127.0.0.1/",
		} {
			f.do(request{method: "POST", path: path, body: strings.Replace(body, url, bad, 1), token: secret}).wants(t, fault.InvalidRequest, "callback_url")
		}
	}
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor})
	f.do(request{method: "POST", path: "/webhooks/secret", token: auditor}).wants(t, fault.Forbidden)
}

// TestWebhookDefault: execs of a token that name no callback_url are told at its default address,
// while webhooks.allow has its host.
func TestWebhookDefault(t *testing.T) {
	t.Parallel()
	const url = "https://hooks.example.com/secbox?key=hunter2"
	var allowed webhooks.Registry
	f := start(t, func(c *api.Config) { allowed = c.Webhooks.(webhooks.Registry) })
	id, secret := f.token(tokens.Spec{Role: tokens.Worker})
	_, other := f.token(tokens.Spec{Role: tokens.Worker})
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor})
	put := func(token, url string) reply {
		return f.do(request{method: "PUT", path: "/webhooks/default", body: `{"callback_url": "` + url + `"}`, token: token})
	}
	calls := func(token, callback string, want string) {
		t.Helper()
		for path, body := range map[string]string{"/sandbox/execs": aCommand, "/skills/shell.run/invoke": `"inputs": {"script": "true"}`} {
			f.do(request{method: "POST", path: path, body: `{"project_id": "demo", ` + callback + body + `}`, token: token})
			seen := f.runner.seen()
			if got := seen[len(seen)-1].CallbackURL; got != want {
				t.Errorf("%s with %q: the runner got %q, want %q", path, callback, got, want)
			}
		}
	}
	put(secret, url).wants(t, fault.InvalidRequest, "callback_url") // no secret
	for _, token := range []string{secret, other} {
		decodeAs[wire.WebhookSecret](t, f.do(request{method: "POST", path: "/webhooks/secret", token: token}), 200)
	}
	put(secret, "https://other.test/").wants(t, fault.InvalidRequest, "callback_url")
	put(auditor, url).wants(t, fault.Forbidden)
	f.do(request{method: "PUT", path: "/webhooks/default", body: `{}`, token: secret}).wants(t, fault.InvalidRequest, "callback_url")
	f.do(request{method: "POST", path: "/webhooks/secret", body: `{}`, token: secret}).wants(t, fault.InvalidRequest)
	calls(secret, "", "")
	for range 2 { // the second one changes nothing
		if got := decodeAs[wire.WebhookDefault](t, put(secret, url), 200); *got.CallbackURL != "https://hooks.example.com/secbox" {
			t.Errorf("%+v", got)
		}
	}
	if got := decodeAs[wire.WebhookDefault](t, f.do(request{path: "/webhooks/default", token: secret}),
		200); *got.CallbackURL != "https://hooks.example.com/secbox" {
		t.Errorf("%+v", got)
	}
	calls(secret, "", url)
	if stored, err := f.db.Webhooks().Default(t.Context(), id); err != nil || !strings.Contains(stored, "hooks.example.com/secbox") ||
		strings.Contains(stored, "hunter2") {
		t.Errorf("the default address is stored as %q, %v", stored, err)
	}
	if err := allowed.Register(t.Context(), "an-exec", id, url); err != nil {
		t.Error(err)
	}
	if d, err := f.db.Webhooks().Delivery(t.Context(), "an-exec"); err != nil || webhooks.WithoutQuery(d.URL) != "https://hooks.example.com/secbox" ||
		strings.Contains(d.URL, "hunter2") {
		t.Errorf("the address is stored as %q, %v", d.URL, err)
	}
	calls(secret, `"callback_url": "https://hooks.example.com/own", `, "https://hooks.example.com/own")
	calls(secret, `"callback_url": "none", `, "")
	calls(other, "", "")
	now := allowed
	now.Secrets.Key = hmackey.New([]byte("another key"))
	if _, err := now.Resolve(t.Context(), id, ""); !fault.Is(err, fault.InvalidRequest) || !strings.Contains(err.Error(), "PUT /webhooks/default") {
		t.Errorf("a query that cannot be opened: %v", err)
	}
	now = allowed
	now.Policy.Allow = []string{"elsewhere.example.com"}
	if _, err := now.Resolve(t.Context(), id, ""); !fault.Is(err, fault.InvalidRequest) || !strings.Contains(err.Error(), "PUT /webhooks/default") {
		t.Errorf("a host that is no longer allowed: %v", err)
	}
	now.Policy.Allow = nil
	if got, err := now.Resolve(t.Context(), id, ""); got != "" || err != nil {
		t.Errorf("webhooks are off: %q, %v", got, err)
	}
	decodeAs[wire.WebhookDefault](t, put(secret, ""), 200)
	calls(secret, "", "")
	events, err := f.db.AdminEvents().List(t.Context(), admin.Filter{Kind: admin.WebhookDefault}, nil, 10)
	if err != nil || len(events) != 2 || events[1].Subject != id || events[1].Actor.ID != id || events[1].Data != `{"host":"hooks.example.com:443"}` {
		t.Errorf("%+v, %v", events, err)
	}
}

// TestManyWebhookChanges: a token makes a bounded number of events. An address that is sent again
// makes none, and other tokens have bounds of their own.
func TestManyWebhookChanges(t *testing.T) {
	t.Parallel()
	f := start(t)
	move := f.stopClock()
	_, secret := f.token(tokens.Spec{Role: tokens.Worker})
	_, other := f.token(tokens.Spec{Role: tokens.Worker})
	change := func(i int, token string) reply {
		if i%2 == 0 {
			return f.do(request{method: "POST", path: "/webhooks/secret", token: token})
		}
		return f.do(request{method: "PUT", path: "/webhooks/default", body: fmt.Sprintf(`{"callback_url": "https://hooks.example.com/%d"}`, i), token: token})
	}
	most := 2 * quota.Default.Burst // of each of the two kinds, Burst
	for i := range most {
		if r := change(i, secret); r.StatusCode != 200 {
			t.Fatalf("%d: %d %s", i, r.StatusCode, r.body)
		}
	}
	for i := range 2 {
		r := change(i, secret)
		if r.wants(t, fault.TooManyChanges); r.Header.Get("Retry-After") != "6" {
			t.Errorf("Retry-After %q", r.Header.Get("Retry-After"))
		}
	}
	if r := change(most-1, secret); r.StatusCode != 200 {
		t.Errorf("the same address: %d %s", r.StatusCode, r.body)
	}
	if r := change(0, other); r.StatusCode != 200 {
		t.Errorf("another token: %d %s", r.StatusCode, r.body)
	}
	move(6 * time.Second)
	for i, code := range []int{200, 200, 429, 429} {
		if r := change(i, secret); r.StatusCode != code {
			t.Errorf("after Retry-After: %d %s", r.StatusCode, r.body)
		}
	}
	for kind, want := range map[admin.Kind]int{admin.WebhookSecret: most/2 + 2, admin.WebhookDefault: most/2 + 1} {
		if events, err := f.db.AdminEvents().List(t.Context(), admin.Filter{Kind: kind}, nil, 100); err != nil || len(events) != want {
			t.Errorf("%d events %s, want %d; %v", len(events), kind, want, err)
		}
	}
}

// TestWebhooksAreOff: without webhooks.allow, a callback_url is refused and no secret is made.
func TestWebhooksAreOff(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *api.Config) { c.Webhooks = webhooks.Registry{} })
	f.post("/sandbox/execs", `{"project_id": "demo", "callback_url": "https://hooks.example.com/", `+aCommand+`}`).wants(t, fault.InvalidRequest,
		"callback_url")
	f.post("/webhooks/secret", "").wants(t, fault.InvalidRequest)
}

// TestCallbackOfExec: the tries of a delivery are shown to those who may read the exec, and never
// the query of its address.
func TestCallbackOfExec(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.runner.run = f.runner.queue
	_, secret := f.token(tokens.Spec{Role: tokens.Worker})
	_, other := f.token(tokens.Spec{Role: tokens.Worker})
	post := request{
		method: "POST", path: "/sandbox/execs", body: `{"project_id": "demo", ` + aCommand + `}`, token: secret,
		header: map[string]string{"Prefer": "respond-async"},
	}
	rec := decodeAs[wire.ExecRecord](t, f.do(post), 202)
	get := request{path: "/sandbox/execs/" + rec.ExecID + "/callback", token: secret}
	wants := func(what string, state wire.CallbackState) wire.Callback {
		t.Helper()
		got := decodeAs[wire.Callback](t, f.do(get), 200)
		if got.State != state || got.ExecID != rec.ExecID {
			t.Errorf("%s: %+v", what, got)
		}
		return got
	}
	wants("none", wire.CallbackStateNone)
	s := f.db.Webhooks()
	if err := s.Register(t.Context(), webhooks.Delivery{ExecID: rec.ExecID, RequestedBy: "x", Host: "a.example", URL: "https://a.example/h?key=hunter2"},
		webhooks.Limits{Waiting: 1, WaitingPerToken: 1}); err != nil {
		t.Fatal(err)
	}
	if got := wants("the exec waits", wire.CallbackStateOpen); got.URL != "https://a.example/h" || got.NextAt != nil {
		t.Errorf("%+v", got)
	}
	stored, err := f.db.Audit().Get(t.Context(), rec.ExecID)
	if err != nil {
		t.Fatal(err)
	}
	stored.Status, stored.ErrorReason, stored.EndedAt = audit.Canceled, audit.ReasonCanceled, stored.CreatedAt
	if _, err := f.db.Audit().Close(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	stored, err = f.db.Audit().Get(t.Context(), rec.ExecID)
	if err != nil {
		t.Fatal(err)
	}
	if got := wants("it has ended", wire.CallbackStateDue); got.NextAt == nil {
		t.Errorf("%+v", got)
	}
	d, err := s.Take(t.Context(), "x", nil, time.Minute)
	if err != nil || d == nil {
		t.Fatal(d, err)
	}
	d.State, d.Tries = webhooks.Delivered, []webhooks.Try{{At: stored.EndedAt, Status: 204, MS: 12}}
	if err := s.Finish(t.Context(), *d, 0); err != nil {
		t.Fatal(err)
	}
	got := wants("delivered", wire.CallbackStateDelivered)
	if got.Attempts != 1 || len(got.Tries) != 1 || got.Tries[0].StatusCode != 204 || got.Tries[0].DurationMS != 12 || got.NextAt != nil {
		t.Errorf("%+v", got)
	}
	get.token = other
	f.do(get).wants(t, fault.UnknownExec)

	var body struct {
		Type, Timestamp string
		Data            map[string]any
	}
	if err := json.Unmarshal(api.CallbackBody(stored), &body); err != nil || body.Type != "exec.ended" || body.Data["exec_id"] != rec.ExecID ||
		body.Data["status"] != "canceled" || body.Timestamp == "" {
		t.Errorf("%+v, %v", body, err)
	}
	for _, hidden := range []string{"cmd", "args", "stdout", "env_keys"} {
		if _, has := body.Data[hidden]; has {
			t.Errorf("the body has %s", hidden)
		}
	}
}
