//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/skills"
)

// benchSkill is the skill that is invoked. It asks for no limits, so that an invoke finds the same
// containers waiting as the exec.
const benchSkill = "bench.job"

// skillScript is the job of the skill, and of the exec beside it.
const skillScript = `printf '{"ok":true}' >/workspace/artifacts/` + "skill_output.json"

// invokes compares one job posted as an exec, invoked as a skill, and called as a tool over MCP:
// whole round trips with their closed rows. Input and output of the last two are validated. Then it
// measures a large catalog.
func (b *bench) invokes(ctx context.Context) error {
	few, many := filepath.Join(b.dir, "few"), filepath.Join(b.dir, "many")
	if err := errors.Join(putSkills(few, 1), putSkills(many, b.skills)); err != nil {
		return err
	}
	const setting, project = "CORE_API_SANDBOX_SKILLS_DIR=", "bench-skills"
	err := b.withSubjects(ctx, "skills", []string{setting + few}, func(ctx context.Context, xs []*subject) error {
		sessions := map[*subject]*mcp.ClientSession{}
		for _, x := range xs {
			session, err := mcp.NewClient(&mcp.Implementation{Name: "secbox-bench", Version: "1"}, nil).Connect(ctx,
				&mcp.StreamableClientTransport{Endpoint: x.url + "/mcp", HTTPClient: x.Client}, nil)
			if err != nil {
				return because(ctx, err)
			}
			defer session.Close()
			sessions[x] = session
		}
		callTool := func(ctx context.Context, x *subject) ([]float64, error) { return x.callTool(ctx, sessions[x], project) }
		invoke := func(ctx context.Context, x *subject) ([]float64, error) { return x.invoke(ctx, project) }
		return b.compare(ctx, comparison{
			section: "skills", title: "the same job as an exec, an invoke and an MCP call", subjects: xs, rounds: b.pairs,
			least: leastPairs, pace: b.pace,
			sides: []side{
				ours(ms, execTurn(always(project), shell(skillScript))),
				{name: "POST /skills/{id}/invoke", unit: ms, turn: invoke, own: true},
				{name: "MCP tools/call", unit: ms, turn: callTool, own: true},
			},
			rows: []row{
				{what: "invoke of a skill beside the same exec, p50", ours: 1, other: 0, form: adds, bound: 3},
				{what: "MCP tools/call of it, p50", ours: 2, other: 0, form: adds, bound: 5},
			},
		})
	})
	if err != nil {
		return err
	}
	load := timed(func(context.Context, *subject) error {
		c, err := skills.Open(skills.Config{Dir: many})
		if err != nil {
			return err
		}
		if n, broken := len(c.Now().Skills()), len(c.Now().Broken()); n <= b.skills || broken > 0 {
			return fmt.Errorf("the catalog has %d skills and %d broken ones, of %d", n, broken, b.skills)
		}
		return nil
	})
	return b.withSubjects(ctx, "catalog", []string{setting + many, noPool}, func(ctx context.Context, xs []*subject) error {
		return b.compare(ctx, comparison{
			section: "skills", title: fmt.Sprintf("a catalog of %d skills", b.skills), subjects: xs, rounds: b.pairs, least: 5,
			sides: []side{get("GET /skills", func() string { return "/skills" }), {name: "load", unit: ms, turn: load}},
			rows: []row{
				{what: "load of the catalog, p50", ours: 1, other: 1, bound: 1000},
				{what: "GET /skills of the catalog, p50", bound: 5},
			},
		})
	})
}

// invoke runs benchSkill.
func (x *subject) invoke(ctx context.Context, project string) ([]float64, error) {
	var r result
	err := x.timed(&r, func() error {
		var answer struct {
			Exec    result          `json:"exec"`
			Outputs json.RawMessage `json:"outputs"`
		}
		err := x.call(ctx, http.MethodPost, "/skills/"+benchSkill+"/invoke",
			map[string]any{"project_id": project, "inputs": map[string]any{"n": 1}}, &answer)
		r = answer.Exec
		return err
	})
	return r.took(), err
}

// callTool is invoke over MCP.
func (x *subject) callTool(ctx context.Context, session *mcp.ClientSession, project string) ([]float64, error) {
	r := result{Status: "succeeded"}
	err := x.timed(&r, func() error {
		answer, err := session.CallTool(ctx, &mcp.CallToolParams{
			Name:      skills.ToolName(benchSkill),
			Arguments: map[string]any{"n": 1, "project_id": project},
		})
		if err != nil {
			return err
		}
		r.ExecID, _ = answer.Meta["secbox/exec_id"].(string)
		if answer.IsError || r.ExecID == "" {
			text, _ := json.Marshal(answer)
			return fmt.Errorf("the tool call failed: %s", text)
		}
		return nil
	})
	return r.took(), err
}

// putSkills makes a folder of so many skills, benchSkill among them.
func putSkills(dir string, count int) error {
	for n := range count {
		id := benchSkill
		if n > 0 {
			id = fmt.Sprintf("bench.s%d", n)
		}
		folder := filepath.Join(dir, id)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		for name, content := range map[string]string{
			skills.ManifestFile: fmt.Sprintf(benchManifest, id), skills.ReadmeFile: "# A job of the bench\n\nIt does next to nothing.\n",
			"run.sh": skillScript + "\n",
		} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

const benchManifest = `{
  "schema_version": "1", "id": %q, "name": "A job of the bench", "description": "Does next to nothing, and says that it did.",
  "interface": {
    "inputs": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "description": "Any number."}}, "additionalProperties": false},
    "outputs": {"type": "object", "properties": {"ok": {"const": true}}, "required": ["ok"], "additionalProperties": false}
  },
  "runtime": {"kind": "docker", "entrypoint": ["bash", "-l", "./run.sh"]},
  "permissions": {"fs": {"read": ["inputs/**", "work/**", "artifacts/**"], "write": ["work/**", "artifacts/**"]}, "net": {"mode": "none"}},
  "limits": {}
}
`
