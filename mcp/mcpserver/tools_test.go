package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/skills"
)

func toolsOf(t *testing.T, session *mcp.ClientSession) map[string]*mcp.Tool {
	t.Helper()
	found := map[string]*mcp.Tool{}
	for tool, err := range session.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		found[tool.Name] = tool
	}
	return found
}

func TestListTools(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tools := toolsOf(t, f.connect("worker", "", nil))
	if len(tools) != len(f.catalog.Now().Skills()) {
		t.Errorf("%d tools for %d skills", len(tools), len(f.catalog.Now().Skills()))
	}
	for name, one := range tools {
		if text, err := json.Marshal(one); err != nil || strings.Contains(string(text), `"type":[`) {
			t.Errorf("%s has a list of types, which many hosts refuse: %s %v", name, text, err)
		}
	}
	tool := tools["skill_test_echo"]
	if tool == nil {
		t.Fatalf("no skill_test_echo among %v", tools)
	}
	if tool.Title != "Name of test.echo" || !strings.HasPrefix(tool.Description, "Says what test.echo does.\n") ||
		!strings.Contains(tool.Description, "without a network") || !strings.Contains(tool.Description, "1m0s (timeout_ms), 1024 MiB") {
		t.Errorf("title %q, description %q", tool.Title, tool.Description)
	}
	schema, _ := json.Marshal(tool.InputSchema)
	var inputs struct {
		Properties           map[string]struct{ Type, Description string }
		Required             []string
		AdditionalProperties *bool
	}
	if err := json.Unmarshal(schema, &inputs); err != nil {
		t.Fatal(err)
	}
	if inputs.Properties["text"].Type != "string" || inputs.Properties["project_id"].Type != "string" || inputs.Properties["project_id"].Description == "" {
		t.Errorf("properties: %s", schema)
	}
	if !slices.Equal(inputs.Required, []string{"text"}) || inputs.AdditionalProperties == nil || *inputs.AdditionalProperties {
		t.Errorf("the skill's schema is not as it was: %s", schema)
	}
	if a := tool.Annotations; a.ReadOnlyHint || a.DestructiveHint == nil || !*a.DestructiveHint || a.OpenWorldHint == nil || *a.OpenWorldHint ||
		a.IdempotentHint {
		t.Errorf("a skill that writes into work/: %+v", a)
	}
	if tool.OutputSchema == nil {
		t.Error("no output schema")
	}
}

func TestReadOnlyHint(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addSkill("test.look", `{"type":"object"}`)
	f.catalog.Reload()
	f.server.syncTools()
	a := toolsOf(t, f.connect("worker", "", nil))["skill_test_look"].Annotations
	if !a.ReadOnlyHint || a.DestructiveHint == nil || *a.DestructiveHint || !a.IdempotentHint {
		t.Errorf("a skill that writes nothing but artifacts: %+v", a)
	}
}

// TestNames: clients see names that every host takes, or dotted ones if they ask for them, and call
// tools by either.
func TestNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	long := "test." + strings.Repeat("long", 20)
	f.addSkill(long, `{"type":"object","properties":{"text":{"type":"string"}}}`)
	f.catalog.Reload()
	f.server.syncTools()
	plain := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	for _, query := range []string{"", "?names=underscore", "?names=dotted"} {
		session := f.connect("worker", query, nil)
		tools := toolsOf(t, session)
		for name := range tools {
			if plain.MatchString(name) == (query == "?names=dotted") {
				t.Errorf("%s: %s", query, name)
			}
			if result := f.call(session, name, map[string]any{"text": "hi"}); result.IsError && !strings.HasPrefix(textOf(result), "invalid_inputs") {
				t.Errorf("%s: %s: %s", query, name, textOf(result))
			}
		}
		if (tools["skill.test.echo"] != nil) != (query == "?names=dotted") || (tools["skill."+long] != nil) != (query == "?names=dotted") {
			t.Errorf("%s: %v", query, tools)
		}
		for _, name := range []string{"skill.test.echo", "skill_test_echo", "skill." + long, skills.PlainName("skill." + long)} {
			if result := f.call(session, name, map[string]any{"text": "hi"}); result.IsError {
				t.Errorf("%s: %s: %s", query, name, textOf(result))
			}
		}
		if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "skill-test-echo"}); err == nil {
			t.Errorf("%s: a third spelling", query)
		}
	}
}

func TestListChangedNotifications(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	changed := make(chan struct{}, 100)
	told := func(query string) *mcp.ClientSession {
		return f.connect("worker", query, &mcp.ClientOptions{
			ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
		})
	}
	dotted, underscore := told("?names=dotted"), told("")
	step := func(what string, holds func(dotted, underscore map[string]*mcp.Tool) bool) {
		t.Helper()
		f.catalog.Reload()
		f.server.syncTools()
		for range 2 {
			<-changed
		}
		if !holds(toolsOf(t, dotted), toolsOf(t, underscore)) {
			t.Errorf("not in the lists: %s", what)
		}
	}
	f.addSkill("test.new", `{"type":"object"}`)
	step("a new skill", func(d, u map[string]*mcp.Tool) bool { return d["skill.test.new"] != nil && u["skill_test_new"] != nil })
	f.addSkill("test.new", `{"type":"object","properties":{"more":{"type":"string"}}}`)
	step("a changed skill", func(d, _ map[string]*mcp.Tool) bool {
		schema, _ := json.Marshal(d["skill.test.new"].InputSchema)
		return strings.Contains(string(schema), "more")
	})
	if err := os.RemoveAll(filepath.Join(f.dir, "test.new")); err != nil {
		t.Fatal(err)
	}
	step("a skill that went", func(d, u map[string]*mcp.Tool) bool { return d["skill.test.new"] == nil && u["skill_test_new"] == nil })
}

func TestThousandSkills(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for n := range 1000 {
		f.addSkill(fmt.Sprintf("many.s%d", n), `{"type":"object","properties":{"text":{"type":"string"}}}`)
	}
	f.catalog.Reload()
	f.server.syncTools()
	if tools := toolsOf(t, f.connect("worker", "", nil)); len(tools) < 1001 {
		t.Errorf("%d tools", len(tools))
	}
}

// A bad schema must not end the server.
func TestUnusableSchema(t *testing.T) {
	t.Parallel()
	for name, schema := range map[string]string{
		"no object":           `true`,
		"a list":              `[]`,
		"another type":        `{"type":"string"}`,
		"strange properties":  `{"type":"object","properties":[1]}`,
		"a header annotation": `{"type":"object","properties":{"a":{"type":"array","x-mcp-header":"not a header"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			skill := *f.catalog.Now().Skills()[0]
			skill.Manifest.ID, skill.Manifest.Interface.Inputs = "test.strange", json.RawMessage(schema)
			if err := f.server.tools.add(f.server, &skill); err == nil {
				t.Error("it was taken")
			}
			if tools := toolsOf(t, f.connect("worker", "", nil)); tools["skill_test_strange"] != nil {
				t.Error("it is listed")
			}
		})
	}
}
