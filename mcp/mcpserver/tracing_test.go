package mcpserver

import (
	"context"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"secbox/internal/traces"
	"secbox/internal/traces/otlp/otlptest"
	"secbox/skills"
	"secbox/skills/invoke"
)

// tracingInvoker keeps the spans that its calls belong to.
type tracingInvoker struct {
	*fakeRunner
	seen chan traces.ID
}

func (i tracingInvoker) Invoke(ctx context.Context, req invoke.Request) (invoke.Result, error) {
	i.seen <- traces.Of(ctx)
	return i.fakeRunner.Invoke(ctx, req)
}

// TestCallsTrace: a call belongs to the span of its own _meta, on and off. Its span follows the
// conventions for MCP, and has neither arguments nor results.
func TestCallsTrace(t *testing.T) {
	t.Parallel()
	const first, second = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01"
	tool := skills.ToolName(workerSkill)
	for name, on := range map[string]bool{"off": false, "on": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := otlptest.Start(t)
			tracer, flush := c.Tracer(t)
			seen := make(chan traces.ID, 1)
			f := newFixture(t, func(cfg *Config) {
				cfg.Invoker = tracingInvoker{cfg.Invoker.(*fakeRunner), seen}
				if on {
					cfg.Tracer = tracer
				}
			})
			session := f.connect("worker", "", nil)
			for meta, want := range map[any]string{first: first, second: second, "00-broken": "", 7: ""} {
				_, err := session.CallTool(t.Context(), &mcp.CallToolParams{
					Meta: mcp.Meta{"traceparent": meta}, Name: tool,
					Arguments: map[string]any{"text": "s3cret-argument"},
				})
				if err != nil {
					t.Fatal(err)
				}
				id := <-seen
				sent, _ := traces.Parse(want)
				if id.Trace != sent.Trace && want != "" || want == "" && id.Trace != "" != on || (id.Span == sent.Span) != (!on) {
					t.Errorf("%v: the call belongs to %s", meta, id)
				}
			}
			if _, err := session.ListTools(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "s3cret.tool"}); err == nil {
				t.Error("an unknown tool was called")
			}
			flush()
			spans := map[string][]otlptest.Span{}
			for _, s := range c.Spans() {
				spans[s.Name] = append(spans[s.Name], s)
			}
			if !on {
				if len(spans) != 0 {
					t.Errorf("%v", spans)
				}
				return
			}
			calls := spans["tools/call "+tool]
			if len(calls) != 4 || len(spans["tools/list"]) != 1 || len(spans["tools/call"]) != 1 || spans["tools/call"][0].Error != "-32602" {
				t.Fatalf("%v", spans)
			}
			parents := map[string]bool{}
			for _, s := range calls {
				parents[s.Parent] = true
				a := s.Attributes
				if s.Kind != tracepb.Span_SPAN_KIND_SERVER || a["mcp.method.name"] != "tools/call" || a["gen_ai.tool.name"] != tool ||
					a["gen_ai.operation.name"] != "execute_tool" ||
					a["mcp.session.id"] != session.ID() || a["network.transport"] != "tcp" || a["mcp.protocol.version"] == "" {
					t.Errorf("%+v", s)
				}
			}
			if !parents["00f067aa0ba902b7"] || !parents["00f067aa0ba902b8"] || len(parents) != 3 {
				t.Errorf("parents %v", parents)
			}
			for _, secret := range []string{"s3cret-argument", "s3cret.tool"} {
				if c.Contains(secret) {
					t.Errorf("%s was exported", secret)
				}
			}
		})
	}
}
