package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/skills"
)

// skillsSetting names the operator's folder of skills to a server, by its variable.
const skillsSetting = "CORE_API_SANDBOX_SKILLS_DIR"

// benchSkill is the skill that is invoked. Its limits and permissions are those of an exec that says nothing, so that both find the same
// containers waiting.
const benchSkill = "bench.job"

// skillScript is all that the skill does; the exec posted directly does the same.
const skillScript = `printf '{"ok":true}' >/workspace/artifacts/` + "skill_output.json"

// Invokes compare one job in three ways, in turns: posted as an exec, invoked as a skill, and called as a tool over MCP. Each is the whole
// round trip with its closed row; input and output of the last two are validated.
type Invokes struct {
	Exec       Summary `json:"exec"`
	Invoke     Summary `json:"invoke"`
	MCP        Summary `json:"mcp"`
	InvokeAdds float64 `json:"invoke_adds_ms"` // at p50
	MCPAdds    float64 `json:"mcp_adds_ms"`    // at p50
	Misses     int     `json:"pool_misses"`    // of all three, by the records
	Pace       float64 `json:"pace_ms"`
}

// invokes measures on a server whose operator has benchSkill.
func (x *execs) invokes(ctx context.Context) (*Invokes, error) {
	x.say("skills: %d turns of an exec, an invoke and an MCP call of the same job, one every %v", x.Pairs, x.Pace)
	session, err := x.server.mcp(ctx)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	const project = "bench-skills"
	j := shell(skillScript)
	pace := &pacer{every: x.Pace}
	invoke := paced(pace, func(ctx context.Context) (result, error) { return x.server.invoke(ctx, project) })
	call := paced(pace, func(ctx context.Context) (result, error) { return callTool(ctx, session, project) })
	type others struct{ invoke, mcp result }
	mine, theirs, err := alternate(ctx, x.Pairs, leastPairs,
		paced(pace, func(ctx context.Context) (result, error) { return x.server.exec(ctx, project, j) }),
		func(ctx context.Context) (o others, err error) {
			if o.invoke, err = invoke(ctx); err == nil {
				o.mcp, err = call(ctx)
			}
			return o, err
		})
	if err != nil {
		return nil, err
	}
	var exec, invoked, called []time.Duration
	all := mine
	for n, o := range theirs {
		exec, invoked, called = append(exec, mine[n].took()), append(invoked, o.invoke.took()), append(called, o.mcp.took())
		all = append(all, o.invoke, o.mcp)
	}
	out := &Invokes{Exec: summarise(exec), Invoke: summarise(invoked), MCP: summarise(called), Pace: milliseconds(x.Pace)}
	out.InvokeAdds, out.MCPAdds = out.Invoke.P50-out.Exec.P50, out.MCP.P50-out.Exec.P50
	records, err := x.records(ctx, all)
	for _, r := range records {
		if !r.record.Warm {
			out.Misses++
		}
	}
	return out, err
}

// invoke runs benchSkill and times its answer.
func (s *server) invoke(ctx context.Context, project string) (result, error) {
	body, err := json.Marshal(map[string]any{"project_id": project, "inputs": map[string]any{"n": 1}})
	if err != nil {
		return result{}, err
	}
	var answer struct {
		Exec    result          `json:"exec"`
		Outputs json.RawMessage `json:"outputs"`
	}
	sent := time.Now()
	err = s.call(ctx, http.MethodPost, "/skills/"+benchSkill+"/invoke", body, &answer)
	r := answer.Exec
	r.sent, r.answered = sent, time.Now()
	if err == nil && (r.Status != "succeeded" || len(answer.Outputs) == 0) {
		err = fmt.Errorf("exec %s: %s: %s", r.ExecID, r.Status, r.Detail)
	}
	return r, err
}

// mcp opens a session of the official SDK's client.
func (s *server) mcp(ctx context.Context) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "secbox-bench", Version: "1"}, nil)
	return client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: s.url + "/mcp", HTTPClient: s.client}, nil)
}

// callTool is invoke over MCP.
func callTool(ctx context.Context, session *mcp.ClientSession, project string) (result, error) {
	r := result{sent: time.Now()}
	answer, err := session.CallTool(ctx, &mcp.CallToolParams{
		Name: skills.ToolName(benchSkill), Arguments: map[string]any{"n": 1, "project_id": project},
	})
	r.answered = time.Now()
	if err != nil {
		return r, err
	}
	r.ExecID, _ = answer.Meta["secbox/exec_id"].(string)
	if answer.IsError || r.ExecID == "" {
		text, _ := json.Marshal(answer)
		return r, fmt.Errorf("the tool call failed: %s", text)
	}
	return r, nil
}

// Catalogs is what many skills cost.
type Catalogs struct {
	Skills int     `json:"skills"` // in the operator's folder; the built-in ones come on top
	Load   Summary `json:"load"`   // from the disk to a catalog, nothing known before; the files are in the system's cache
	Look   Summary `json:"look"`   // at a folder in which nothing has changed: what each poll costs
	List   Summary `json:"list"`   // GET /skills, whole
	Bytes  int64   `json:"list_bytes"`
}

// listings is how often the list is timed.
const listings = 200

// catalog measures a folder of many skills, in this process and over HTTP.
func (x *execs) catalog(ctx context.Context, dir string) (*Catalogs, error) {
	x.say("skills: a catalog of %d", x.Skills)
	out := &Catalogs{Skills: x.Skills}
	var loads, looks, lists []time.Duration
	for range 5 {
		begun := time.Now()
		c, err := skills.Open(skills.Config{Dir: dir})
		if err != nil {
			return nil, err
		}
		loads = append(loads, time.Since(begun))
		if n, broken := len(c.Now().Skills()), len(c.Now().Broken()); n <= x.Skills || broken > 0 {
			return nil, fmt.Errorf("the catalog has %d skills and %d broken ones, of %d", n, broken, x.Skills)
		}
		begun = time.Now()
		if c.Reload() {
			return nil, errors.New("the catalog changed by itself")
		}
		looks = append(looks, time.Since(begun))
	}
	for range listings {
		begun := time.Now()
		content, err := x.server.fetch(ctx, http.MethodGet, "/skills", nil)
		if err != nil {
			return nil, err
		}
		lists = append(lists, time.Since(begun))
		out.Bytes = int64(len(content))
	}
	out.Load, out.Look, out.List = summarise(loads), summarise(looks), summarise(lists)
	return out, nil
}

// putSkills makes a folder of so many skills, benchSkill among them.
func putSkills(dir string, count int) error {
	ids := []string{benchSkill}
	for n := range count - 1 {
		ids = append(ids, fmt.Sprintf("bench.s%d", n))
	}
	for _, id := range ids {
		folder := filepath.Join(dir, id)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		for name, content := range map[string]string{
			skills.ManifestFile: fmt.Sprintf(benchManifest, id), skills.ReadmeFile: "# A job of the bench\n\nIt does next to nothing.\n", "run.sh": skillScript + "\n",
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

// The targets of skills.
const (
	maxInvokeAdds = 3.0  // ms
	maxMCPAdds    = 5.0  // ms
	maxLoad       = 1000 // ms
	maxList       = 5.0  // ms
)

func (i *Invokes) targets() []Target {
	if i == nil {
		return nil
	}
	adds := func(what string, s Summary, adds, most float64) Target {
		return Target{
			What: what + ", p50", CoreAPI: fmt.Sprintf("%.1f ms", s.P50), Against: fmt.Sprintf("%.1f ms (exec)", i.Exec.P50),
			Measured: fmt.Sprintf("%+.1f ms", adds), Wanted: fmt.Sprintf("≤ +%.0f ms", most), Reached: adds <= most,
		}
	}
	return []Target{
		adds("invoke of a skill beside the same exec posted directly", i.Invoke, i.InvokeAdds, maxInvokeAdds),
		adds("MCP tools/call of it", i.MCP, i.MCPAdds, maxMCPAdds),
	}
}

func (c *Catalogs) targets() []Target {
	if c == nil {
		return nil
	}
	takes := func(what string, s Summary, most float64) Target {
		return Target{
			What: fmt.Sprintf("%s of %d skills, p50", what, c.Skills), CoreAPI: fmt.Sprintf("%.1f ms", s.P50), Measured: fmt.Sprintf("%.1f ms", s.P50),
			Wanted: fmt.Sprintf("< %.0f ms", most), Reached: s.P50 < most,
		}
	}
	return []Target{takes("load of a catalog", c.Load, maxLoad), takes("GET /skills", c.List, maxList)}
}

func (i *Invokes) write(w io.Writer) {
	if i == nil {
		return
	}
	fmt.Fprintf(w, "\nSkills: the same job posted as an exec, invoked, and called over MCP, in turns, one every %.0f ms; %d of all were cold\n\n", i.Pace, i.Misses)
	fmt.Fprintf(w, "ms\tn\tp50\tp95\tmin\tmax\n")
	i.Exec.row(w, "POST /sandbox/execs")
	i.Invoke.row(w, "POST /skills/{id}/invoke")
	i.MCP.row(w, "tools/call")
	fmt.Fprintf(w, "at p50 an invoke adds %.2f ms, a call %.2f ms\n", i.InvokeAdds, i.MCPAdds)
}

func (c *Catalogs) write(w io.Writer) {
	if c == nil {
		return
	}
	fmt.Fprintf(w, "\nA catalog of %d skills; the list has %s\n\n", c.Skills, binarySize(c.Bytes))
	fmt.Fprintf(w, "ms\tn\tp50\tp95\tmin\tmax\n")
	c.Load.row(w, "load")
	c.Look.row(w, "look, nothing changed")
	c.List.row(w, "GET /skills")
}
