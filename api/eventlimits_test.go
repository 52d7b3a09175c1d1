package api_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/api/wire"
	"secbox/audit/admin"
	"secbox/fault"
)

// TestManyChanges: a token that has made as many changes of a kind as it may is refused, and told
// when to try again; nothing has changed. What ends something, and what changes nothing, is not
// refused, nor is another token. The refusals are counted.
func TestManyChanges(t *testing.T) {
	t.Parallel()
	f := start(t)
	move := f.stopClock()
	id, secret := f.token(tokens.Spec{Role: tokens.Admin, Name: "ops"})
	_, other := f.token(tokens.Spec{Role: tokens.Admin})
	upload := func(user, token string) reply {
		return f.upload(user+"/a", "baseline", "s.zip", zipOf(t, map[string]string{user + "/SKILL.md": "# " + user}), as(token))
	}
	choose := func(user, token string) reply {
		return f.do(request{method: "PUT", path: "/v1/sandbox/" + user + "/backend", body: `{"backend":"none"}`, token: token})
	}
	install := func(user, token string) reply {
		return f.registry("POST", user+"/a/skills/shared/install", as(token))
	}
	hold := func(user, token string) reply {
		return f.do(request{method: "POST", path: "/audit/holds", body: `{"kind":"user","value":"` + user + `","reason":"a trial"}`, token: token})
	}
	works := func(what string, r reply) {
		t.Helper()
		if r.StatusCode >= 300 {
			t.Errorf("%s: %d %s", what, r.StatusCode, r.body)
		}
	}
	f.inWork("ann", "a", "skills/shared/SKILL.md", "# Shared")
	works("publish", f.registry("POST", "ann/a/skills/shared/publish", as(secret)))
	works("upload", upload("ann", secret))
	works("choose", choose("ann", secret))
	for _, kind := range append(admin.Kinds(), admin.RegistryChanged) {
		for range 600 {
			f.db.Limits().Take(admin.Actor{Type: admin.ByToken, ID: id}, kind)
		}
	}
	f.count()
	before := len(f.told(other, admin.ChangesRefused))

	changes := map[admin.Kind]func(user, token string) reply{
		admin.BaselinePromoted: upload, admin.BackendChosen: choose, admin.RegistryChanged: install,
		admin.HoldAdded: hold,
	}
	for kind, change := range changes {
		r := change("bob", secret)
		if !strings.Contains(string(r.body), string(fault.TooManyChanges)) || r.StatusCode != 429 || r.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: %d, Retry-After %q, %s", kind, r.StatusCode, r.Header.Get("Retry-After"), r.body)
		}
	}
	if got := decodeAs[wire.V1BackendAnswer](t, f.do(request{path: "/v1/sandbox/bob/backend", token: other}), 200); got.Data.Chosen {
		t.Errorf("the refused choice was made: %+v", got)
	}
	works("the choice that is there already", choose("ann", secret))
	works("the content that is published already", f.registry("POST", "ann/a/skills/shared/publish", as(secret)))
	works("the end of a baseline", f.do(request{method: "DELETE", path: "/v1/skills/ann/a/ann?scope=baseline", token: secret}))
	f.count()
	counted := f.told(other, admin.ChangesRefused)
	if len(counted) != before+len(changes) {
		t.Errorf("%d refusals are counted, then %d", before, len(counted))
	}
	for kind, change := range changes {
		if !slices.ContainsFunc(counted, func(line string) bool {
			return strings.Contains(line, id+` {"count":1,`) && strings.Contains(line, `"kind":"`+string(kind)+`"`)
		}) {
			t.Errorf("the refusal of %s is not counted: %q", kind, counted)
		}
		works(string(kind)+" of another token", change("bob", other))
	}
	move(time.Second)
	for kind, change := range changes {
		works(string(kind)+" after Retry-After", change("cid", secret))
	}
}
