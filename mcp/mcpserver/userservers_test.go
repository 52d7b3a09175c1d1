package mcpserver

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/access/tokens"
	"secbox/mcp/tools"
)

// fakeServers offers tools without a process.
type fakeServers struct {
	mu       sync.Mutex
	ensured  []string // project and token
	offered  []*tools.Tool
	onChange func(string)
}

func (s *fakeServers) Ensure(_ context.Context, projectID, token string) {
	s.mu.Lock()
	s.ensured = append(s.ensured, projectID+" "+token)
	first := len(s.ensured) == 1
	s.mu.Unlock()
	if first {
		s.set("srv.echo", "srv.a.b")
	}
}

func (s *fakeServers) Offered(string) []*tools.Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.offered)
}

func (s *fakeServers) OnChange(f func(string)) { s.onChange = f }

// set replaces the tools with some that answer with their names.
func (s *fakeServers) set(names ...string) {
	var offered []*tools.Tool
	for _, name := range names {
		t := tools.Tool{Name: name, Schema: json.RawMessage(`{"type":"object"}`)}
		if name == "srv.header" { // which the SDK refuses with a panic
			t.Schema = json.RawMessage(`{"type":"object","properties":{"h":{"type":"object","x-mcp-header":"a b"}}}`)
		}
		offered = append(offered, tools.External(t, func(context.Context, []byte, func(string)) (*tools.Result, error) {
			return &tools.Result{Text: "I am " + name}, nil
		}))
	}
	s.mu.Lock()
	s.offered = offered
	s.mu.Unlock()
}

// TestServersToolsFollowTheServers: the first listing starts the servers; tools that come and go
// are announced, in both spellings.
func TestServersToolsFollowTheServers(t *testing.T) { // 004 l11
	t.Parallel()
	servers := &fakeServers{}
	f, _ := toolsFixture(t, func(c *Config) { c.Servers = servers })
	changes := make(chan struct{}, 100)
	session := f.connect("worker", workspace+"&names=dotted",
		&mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changes <- struct{}{} }})
	under := f.connect("worker", workspace, nil)
	offered := func(session *mcp.ClientSession) []string {
		return slices.DeleteFunc(slices.Sorted(maps.Keys(toolsOf(t, session))), func(name string) bool { return !strings.HasPrefix(name, "srv") })
	}
	if got := offered(session); !slices.Equal(got, []string{"srv.a.b", "srv.echo"}) {
		t.Errorf("%q", got)
	}
	if got := offered(under); !slices.Equal(got, []string{"srv_a_b", "srv_echo"}) {
		t.Errorf("%q", got)
	}
	servers.mu.Lock()
	if servers.ensured[0] != "a1~ann tok-worker" {
		t.Errorf("%q", servers.ensured)
	}
	servers.mu.Unlock()
	if r := f.call(under, "srv_a_b", nil); textOf(r) != "I am srv.a.b" {
		t.Errorf("%s", textOf(r))
	}
	for len(changes) > 0 {
		<-changes
	}
	// srv.a_b would be called as srv_a_b, too; files.read and srv.header cannot be added.
	servers.set("srv.a.b", "srv.a_b", "srv.new", "files.read", "srv.header")
	servers.onChange("a1~ann")
	<-changes
	if got := offered(session); !slices.Equal(got, []string{"srv.a.b", "srv.new"}) {
		t.Errorf("%q", got)
	}
	if got := offered(under); !slices.Equal(got, []string{"srv_a_b", "srv_new"}) {
		t.Errorf("%q", got)
	}
	if r := f.call(session, "files.read", map[string]any{"path": "none"}); !strings.Contains(textOf(r), "unknown_file") {
		t.Errorf("%s", textOf(r))
	}
}

// TestServersAreOnlyForWhoMayUseTheWorkspace: a token without it starts nothing, and a call is
// refused.
func TestServersAreOnlyForWhoMayUseTheWorkspace(t *testing.T) {
	t.Parallel()
	servers := &fakeServers{}
	f, _ := toolsFixture(t, func(c *Config) { c.Servers = servers })
	session := f.connect("agent", workspace, nil)
	toolsOf(t, session)
	f.mu.Lock() // the token loses its agent
	f.tokens["agent"] = tokens.Token{ID: "tok-agent", Role: tokens.Worker, Agents: []string{"a2"}}
	f.mu.Unlock()
	toolsOf(t, session)
	if r := f.call(session, "srv.echo", nil); !r.IsError || r.Meta["secbox/code"] != "forbidden" {
		t.Errorf("%s", textOf(r))
	}
	toolsOf(t, f.connect("worker", "", nil))
	servers.mu.Lock()
	defer servers.mu.Unlock()
	if len(servers.ensured) != 1 {
		t.Errorf("%q", servers.ensured)
	}
}
