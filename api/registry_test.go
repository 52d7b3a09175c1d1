package api_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/api/problem"
	"secbox/api/wire"
	"secbox/fault"
)

// inWork writes a file into a user's workspace on this side.
func (f *fixture) inWork(user, agent, name, content string) {
	f.t.Helper()
	at := filepath.Join(f.root, "projects", agent+"~"+user, "work", name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) registry(method, path string, more ...func(*request)) reply {
	f.t.Helper()
	r := request{method: method, path: "/v1/registry/" + path}
	for _, change := range more {
		change(&r)
	}
	return f.do(r)
}

// v1Wants checks an error below /v1/.
func v1Wants(t *testing.T, r reply, code fault.Code, message string) {
	t.Helper()
	got := decodeAs[problem.Envelope](t, r, fault.HTTPStatus(code))
	if got.Data.Code != wire.ErrorCode(code) || !strings.Contains(got.Data.Message, message) {
		t.Errorf("got %s: %s, want %s: %s", got.Data.Code, got.Data.Message, code, message)
	}
}

// TestRegistry: l252–272 over HTTP: publish, search, install, catalog, uninstall, and the record.
func TestRegistry(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.inWork("ann", "a", "skills/csv report/SKILL.md", "---\nname: CSV\ndescription: Makes reports.\n---\n")
	f.inWork("ann", "a", "agents/reviewer.md", "---\nname: Reviewer\nrole: engineer\n---\n")
	name := url.PathEscape("csv report")

	e := decodeAs[wire.V1RegistryAnswer](t, f.registry("POST", "ann/a/skills/"+name+"/publish"), 200).Data
	if e.Kind != "skill" || e.Name != "csv report" || e.Version != 1 || e.AuthorUserID != "ann" || e.AuthorAgentID != "a" ||
		e.Description != "Makes reports." || len(e.Digest) != 64 {
		t.Errorf("%+v", e)
	}
	decodeAs[wire.V1RegistryAnswer](t, f.registry("POST", "ann/a/agents/reviewer/publish"), 200)
	for query, want := range map[string]int{"": 1, "?query=REPORT": 1, "?query=report+csv": 1, "?query=none": 0} {
		if got := decodeAs[wire.V1RegistryPage](t, f.registry("GET", "skills"+query), 200).Data; len(got.Items) != want || got.NextCursor != nil {
			t.Errorf("%q finds %+v", query, got)
		}
	}
	if got := decodeAs[wire.V1RegistryAnswer](t, f.registry("GET", "skills/"+name), 200).Data; got != e {
		t.Errorf("%+v, want %+v", got, e)
	}

	if c := decodeAs[wire.V1Catalog](t, f.get("/v1/catalog/bob/a"), 200).Data; len(c.Entries) != 0 || len(c.Problems) != 0 {
		t.Errorf("%+v", c)
	}
	for _, what := range []string{"skills/" + name, "agents/reviewer"} {
		decodeAs[wire.V1RegistryAnswer](t, f.registry("POST", "bob/a/"+what+"/install"), 200)
		v1Wants(t, f.registry("POST", "bob/a/"+what+"/install"), fault.AlreadyInstalled, "already installed")
	}
	c := decodeAs[wire.V1Catalog](t, f.get("/v1/catalog/bob/a"), 200).Data // read anew
	if len(c.Entries) != 2 || c.Entries[0].Name != "csv report" || c.Entries[0].Path != "/workspace/skills/csv report/SKILL.md" ||
		c.Entries[1].Role != "engineer" || c.Entries[0].Global {
		t.Errorf("%+v", c)
	}
	decodeAs[wire.V1Message](t, f.registry("DELETE", "bob/a/skills/"+name+"/install"), 200)
	v1Wants(t, f.registry("DELETE", "bob/a/skills/"+name+"/install"), fault.UnknownEntry, `skill "csv report" not found`)

	var actions []string
	path := "skills/" + name + "/events?limit=2"
	for next := path; ; {
		page := decodeAs[wire.V1RegistryEvents](t, f.registry("GET", next), 200).Data
		for _, event := range page.Items {
			actions = append(actions, event.UserID+" "+event.Action)
			if event.RequestedBy != "loopback" || event.Digest != e.Digest || event.Version != 1 {
				t.Errorf("%+v", event)
			}
		}
		if page.NextCursor == nil {
			break
		}
		next = path + "&cursor=" + *page.NextCursor
	}
	if want := []string{"bob uninstalled", "bob uninstall_begun", "bob installed", "bob install_begun", "ann published"}; !slices.Equal(actions, want) {
		t.Errorf("on record: %q", actions)
	}

	f.inWork("bob", "a", "skills/csv report/SKILL.md", "# Bob's")
	v1Wants(t, f.registry("POST", "bob/a/skills/"+name+"/publish"), fault.NameTaken, "use another name")
	v1Wants(t, f.registry("DELETE", "bob/a/skills/"+name+"/publish"), fault.NameTaken, "belongs to")
	decodeAs[wire.V1Message](t, f.registry("DELETE", "ann/a/skills/"+name+"/publish"), 200)
	v1Wants(t, f.registry("GET", "skills/"+name), fault.UnknownEntry, "not found")
}

func TestRegistryPages(t *testing.T) {
	t.Parallel()
	f := start(t)
	var want, got []string
	for i := range 5 {
		name := fmt.Sprintf("s%d", i)
		want = append(want, name)
		f.inWork("ann", "a", "skills/"+name+"/SKILL.md", "# "+name)
		decodeAs[wire.V1RegistryAnswer](t, f.registry("POST", "ann/a/skills/"+name+"/publish"), 200)
	}
	for next := "skills?limit=2"; ; {
		page := decodeAs[wire.V1RegistryPage](t, f.registry("GET", next), 200).Data
		for _, e := range page.Items {
			got = append(got, e.Name)
		}
		if page.NextCursor == nil {
			break
		}
		next = "skills?limit=2&cursor=" + *page.NextCursor
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestRegistryRefusals(t *testing.T) {
	t.Parallel()
	f := start(t)
	for path, code := range map[string]fault.Code{
		"skills?limit=0":          fault.InvalidRequest,
		"skills?limit=501":        fault.InvalidRequest,
		"skills?cursor=%21":       fault.InvalidCursor,
		"tools":                   fault.InvalidRequest,
		"tools/x":                 fault.InvalidRequest,
		"skills/x":                fault.UnknownEntry,
		"skills/..%2Fx":           fault.InvalidRequest,
		"skills/a%00b":            fault.InvalidRequest,
		"skills/a%0Ab":            fault.InvalidRequest,
		"skills/skill-creator":    fault.ReservedSkill,
		"skills/x/events?limit=x": fault.InvalidRequest,
		"skills?query=" + strings.Repeat("w+", 9): fault.InvalidRequest,
		"skills/" + strings.Repeat("n", 201):      fault.InvalidRequest,
	} {
		v1Wants(t, f.registry("GET", path), code, "")
	}
	for _, path := range []string{"ann/a/skills/..%2Fx/install", "ann/a/skills/" + strings.Repeat("n", 250) + "/publish", "ann~/a/skills/x/install"} {
		v1Wants(t, f.registry("POST", path), fault.InvalidRequest, "")
	}
	v1Wants(t, f.registry("POST", "ann/a/skills/x/publish"), fault.UnknownEntry, `skill "x" not found`)

	_, worker := f.token(tokens.Spec{Role: tokens.Worker, Users: []string{"ann"}})
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor})
	f.inWork("ann", "a", "skills/x/SKILL.md", "# X")
	decodeAs[wire.V1RegistryAnswer](t, f.registry("POST", "ann/a/skills/x/publish", as(worker)), 200)
	decodeAs[wire.V1RegistryPage](t, f.registry("GET", "skills", as(auditor)), 200)
	for _, c := range []struct{ method, path, token string }{
		{"POST", "bob/a/skills/x/install", worker},
		{"DELETE", "bob/a/skills/x/install", worker},
		{"DELETE", "bob/a/skills/x/publish", worker},
		{"GET", "skills/x/events", worker},
		{"POST", "ann/a/skills/x/install", auditor},
	} {
		v1Wants(t, f.registry(c.method, c.path, as(c.token)), fault.Forbidden, "")
	}
	if r := f.do(request{path: "/v1/catalog/bob/a", token: worker}); r.StatusCode != 403 {
		t.Errorf("another user's catalog: %d", r.StatusCode)
	}
}
