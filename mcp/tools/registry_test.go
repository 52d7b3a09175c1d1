package tools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/mcp/tools"
	"secbox/packages/catalog"
	"secbox/packages/registry"
	"secbox/sandbox"
)

// fakeRegistry records the requests to it.
type fakeRegistry struct {
	asked []registry.Request
	found []registry.Entry
	err   error
}

func (f *fakeRegistry) Search(_ context.Context, kind catalog.Kind, text string, _ registry.Owner, after string, _ int) ([]registry.Entry, error) {
	f.asked = append(f.asked, registry.Request{Kind: kind, Name: text + after})
	return f.found, f.err
}

func (f *fakeRegistry) do(req registry.Request) (registry.Entry, error) {
	f.asked = append(f.asked, req)
	return registry.Entry{Version: 2, Digest: "d", Files: 3, Bytes: 4}, f.err
}

func (f *fakeRegistry) Publish(_ context.Context, req registry.Request) (registry.Entry, error) {
	return f.do(req)
}

func (f *fakeRegistry) Install(_ context.Context, req registry.Request) (registry.Entry, error) {
	return f.do(req)
}

func (f *fakeRegistry) Uninstall(_ context.Context, req registry.Request) error {
	_, err := f.do(req)
	return err
}

func (f *fakeRegistry) Of(context.Context, sandbox.User) (*catalog.Catalog, error) {
	return &catalog.Catalog{
		Entries: []catalog.Entry{
			{Kind: catalog.Skill, Name: "shell.run", Description: "Runs.", Global: true},
			{Kind: catalog.Agent, Name: "reviewer", Description: "Reviews.", Role: "engineer", Path: "/workspace/agents/reviewer.md"},
		},
		Problems: []catalog.Problem{{Path: "/workspace/skills/a\nb", Code: fault.PathRefused, Reason: "is no regular file"}},
	}, f.err
}

func registryTool(t *testing.T, s *tools.Session, name, arguments string) (*tools.Result, error) {
	t.Helper()
	for _, tool := range tools.All {
		if tool.Name == "registry."+name {
			return tool.Call(sandbox.WithRequest(t.Context(), sandbox.Request{RequestedBy: "token"}), s, json.RawMessage(arguments))
		}
	}
	t.Fatalf("there is no tool %s", name)
	return nil, nil
}

// TestRegistryTools calls the registry with the session's user, and shows its answers.
func TestRegistryTools(t *testing.T) {
	t.Parallel()
	f := &fakeRegistry{found: []registry.Entry{{
		Name: "csv", Version: 2, Files: 3, Description: strings.Repeat("long ", 100),
		Author: registry.Owner{UserID: "ann"},
	}}}
	s := tools.NewSession(nil, sandbox.User{AgentID: "a", ID: "u"}, nil).WithRegistry(f, f)
	owner := registry.Owner{AgentID: "a", UserID: "u"}
	for _, c := range []struct {
		tool, arguments, text string
		asked                 registry.Request
	}{
		{"search", `{"query": "csv"}`, `csv (version 2, 3 files, by ann): long`, registry.Request{Kind: catalog.Skill, Name: "csv"}},
		{"search", `{"kind": "agent", "after": "x"}`, `csv`, registry.Request{Kind: catalog.Agent, Name: "x"}},
		{
			"install", `{"name": "csv"}`, "installed at /workspace/skills/csv",
			registry.Request{Owner: owner, Kind: catalog.Skill, Name: "csv", RequestedBy: "token"},
		},
		{
			"publish", `{"name": "r", "kind": "agent"}`, "is published: version 2, 3 files",
			registry.Request{Owner: owner, Kind: catalog.Agent, Name: "r", RequestedBy: "token"},
		},
		{"uninstall", `{"name": "csv"}`, "is uninstalled", registry.Request{Owner: owner, Kind: catalog.Skill, Name: "csv", RequestedBy: "token"}},
		{"list", `{}`, "of the installation", registry.Request{}},
	} {
		f.asked = nil
		got, err := registryTool(t, s, c.tool, c.arguments)
		if err != nil || !strings.Contains(got.Text, c.text) || len(got.Text) > 500 || strings.Contains(got.Text, "a\nb") {
			t.Errorf("%s: %+v %v", c.tool, got, err)
		}
		if c.tool != "list" && (len(f.asked) != 1 || f.asked[0] != c.asked) {
			t.Errorf("%s asked for %+v", c.tool, f.asked)
		}
	}
	if got, err := registryTool(t, s, "list", `{}`); err != nil || !strings.Contains(got.Text, "Role: engineer") ||
		!strings.Contains(got.Text, "not listed: ") {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := registryTool(t, s, "list", `{"kind": "skill"}`); err != nil || strings.Contains(got.Text, "reviewer") ||
		!strings.Contains(got.Text, "shell.run") {
		t.Errorf("%+v %v", got, err)
	}
	for _, name := range []string{"list", "search", "install", "publish", "uninstall"} {
		arguments := `{"kind": "skills"}`
		if name != "list" && name != "search" {
			arguments = `{"name": "csv", "kind": "skills"}`
		}
		if _, err := registryTool(t, s, name, arguments); !fault.Is(err, fault.InvalidInputs) ||
			!strings.Contains(fmt.Sprint(fault.From(err).Fields), "agent") {
			t.Errorf("%s of an unknown kind: %v", name, err)
		}
	}
	for i := range 50 {
		f.found = append(f.found[:i], registry.Entry{Name: fmt.Sprint("s", i)})
	}
	if got, err := registryTool(t, s, "search", `{}`); err != nil || !strings.Contains(got.Text, "after=s49") {
		t.Errorf("%+v %v", got, err)
	}
	f.err = fault.New(fault.AlreadyInstalled, "there")
	for _, name := range []string{"install", "publish", "uninstall"} {
		if _, err := registryTool(t, s, name, `{"name": "x"}`); !fault.Is(err, fault.AlreadyInstalled) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := registryTool(t, s, name, `{"nam": "x"}`); !fault.Is(err, fault.InvalidInputs) {
			t.Errorf("%s with a wrong argument: %v", name, err)
		}
		if _, err := registryTool(t, tools.NewSession(nil, sandbox.User{}, nil), name, `{"name": "x"}`); !fault.Is(err, fault.Unsupported) {
			t.Errorf("%s without a registry: %v", name, err)
		}
	}
}
