package mcpserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/access/tokens"
	"secbox/fault"
	"secbox/skills"
)

// userPackages holds the packages of users by their project ids.
type userPackages struct {
	catalog func() *skills.Snapshot

	mu     sync.Mutex
	of     map[string][]*skills.Skill
	looks  map[string]int
	broken bool // the database does not answer
}

func (s *userPackages) Catalog(_ context.Context, projectID string) (*skills.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks[projectID]++
	if s.broken {
		return nil, fault.New(fault.DatabaseUnavailable, "the database does not answer")
	}
	return s.catalog().WithPackages(s.of[projectID], nil), nil
}

func (s *userPackages) put(t *testing.T, projectID string, ids ...string) {
	t.Helper()
	var list []*skills.Skill
	for _, id := range ids {
		content := map[string]string{
			"SKILL.md": "# A package\n", "run.sh": "true\n",
			"manifest.json": `{"schema_version": "1", "id": "` + id + `", "name": "A package", "description": "Does nothing.",
				"interface": {"inputs": {"type": "object"}, "outputs": {"type": "object"}}, "runtime": {"kind": "docker", "entrypoint": ["bash", "./run.sh"]},
				"permissions": {"fs": {"read": ["inputs/**"], "write": ["artifacts/**"]}, "net": {"mode": "none"}}, "limits": {}}`,
		}
		tree := fstest.MapFS{}
		var files []skills.File
		for _, name := range []string{"SKILL.md", "manifest.json", "run.sh"} {
			tree[name] = &fstest.MapFile{Data: []byte(content[name])}
			sum := sha256.Sum256([]byte(content[name]))
			files = append(files, skills.File{Path: name, Size: int64(len(content[name])), SHA256: hex.EncodeToString(sum[:])})
		}
		skill, problems, err := skills.LoadPackage(id, files, tree)
		if err != nil || skill == nil {
			t.Fatal(err, problems)
		}
		list = append(list, skill)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[projectID] = list
}

func withPackages(t *testing.T) (*fixture, *userPackages) {
	t.Helper()
	s := &userPackages{of: map[string][]*skills.Skill{}, looks: map[string]int{}}
	f := newFixture(t, func(c *Config) {
		c.Packages, c.UserInterval, s.catalog = s, 10*time.Millisecond, c.Catalog.Now
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens["ofAlice"] = tokens.Token{ID: "tok-alice", Role: tokens.Worker, Projects: []string{"ag~alice"}}
	f.tokens["ofBob"] = tokens.Token{ID: "tok-bob", Role: tokens.Worker, Agents: []string{"ag"}, Users: []string{"bob"}}
	return f, s
}

func (m *userTools) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.byKey)
}

func TestSessionHasOnlyItsUsersTools(t *testing.T) {
	t.Parallel()
	f, s := withPackages(t)
	s.put(t, "ag~alice", "text.alices", "text.both")
	s.put(t, "ag~bob", "text.both")
	for name, c := range map[string]struct {
		token, query string
		has, hasNot  []string
	}{
		"alice by the address": {
			"worker", "?project_id=ag~alice",
			[]string{"skill_text_alices", "skill_text_both", "skill_test_echo", "skill_shell_run"},
			nil,
		},
		"alice by the token's project": {"ofAlice", "", []string{"skill_text_alices", "skill_text_both"}, nil},
		"alice with dots": {
			"worker", "?project_id=ag~alice&names=dotted",
			[]string{"skill.text.alices", "skill.shell.run"},
			[]string{"skill_text_alices"},
		},
		"bob":                             {"ofBob", "?project_id=ag~bob", []string{"skill_text_both", "skill_shell_run"}, []string{"skill_text_alices"}},
		"no user":                         {"worker", "", []string{"skill_shell_run"}, []string{"skill_text_alices", "skill_text_both"}},
		"a plain project":                 {"worker", "?project_id=demo", []string{"skill_shell_run"}, []string{"skill_text_alices", "skill_text_both"}},
		"bob who says that he is alice":   {"ofBob", "?project_id=ag~alice", []string{"skill_shell_run"}, []string{"skill_text_alices", "skill_text_both"}},
		"a user of another agent":         {"agent", "?project_id=ag~alice", []string{"skill_shell_run"}, []string{"skill_text_alices", "skill_text_both"}},
		"a user who has never been there": {"worker", "?project_id=ag~carol", []string{"skill_shell_run"}, []string{"skill_text_alices", "skill_text_both"}},
	} {
		t.Run(name, func(t *testing.T) {
			tools := toolsOf(t, f.connect(c.token, c.query, nil))
			for _, tool := range c.has {
				if tools[tool] == nil {
					t.Errorf("%s is missing", tool)
				}
			}
			for _, tool := range c.hasNot {
				if tools[tool] != nil {
					t.Errorf("%s is there", tool)
				}
			}
		})
	}
}

func TestSessionIsNotifiedOnlyOfItsUsersChanges(t *testing.T) {
	t.Parallel()
	f, s := withPackages(t)
	heard := map[string]chan struct{}{}
	listen := func(name, query string) *mcp.ClientSession {
		heard[name] = make(chan struct{}, 100)
		return f.connect("worker", query, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context,
			*mcp.ToolListChangedRequest,
		) {
			heard[name] <- struct{}{}
		}})
	}
	alice, bob := listen("alice", "?project_id=ag~alice"), listen("bob", "?project_id=ag~bob")
	s.put(t, "ag~alice", "text.alices")
	<-heard["alice"]
	if toolsOf(t, alice)["skill_text_alices"] == nil {
		t.Error("alice was told of a change and has the tools of before")
	}
	s.put(t, "ag~bob", "text.bobs")
	<-heard["bob"]
	if tools := toolsOf(t, bob); tools["skill_text_alices"] != nil || tools["skill_text_bobs"] == nil {
		t.Error("bob does not have his own tools only")
	}
	s.put(t, "ag~alice")
	<-heard["alice"]
	if toolsOf(t, alice)["skill_text_alices"] != nil {
		t.Error("a tool that is gone is listed")
	}
	if len(heard["bob"]) > 0 {
		t.Error("bob was told of alice's changes")
	}
}

// Packages of users without a session are not read.
func TestUsersWithoutASessionAreForgotten(t *testing.T) {
	t.Parallel()
	f, s := withPackages(t)
	s.put(t, "ag~alice", "text.alices")
	for range 2 { // the second time the watch has to start again
		session := f.connect("worker", "?project_id=ag~alice", nil)
		if toolsOf(t, session)["skill_text_alices"] == nil {
			t.Error("alice's tool is missing")
		}
		if n := f.server.users.count(); n != 1 {
			t.Errorf("%d users with a session", n)
		}
		if err := session.Close(); err != nil {
			t.Error(err)
		}
		eventually(t, "the watch has ended", func() bool {
			f.server.users.mu.Lock()
			defer f.server.users.mu.Unlock()
			return len(f.server.users.byKey) == 0 && !f.server.users.watching
		})
	}
}

// Without a database, sessions keep their tools, and new sessions get the user's tools later.
func TestUnreadablePackages(t *testing.T) {
	t.Parallel()
	f, s := withPackages(t)
	s.put(t, "ag~alice", "text.alices")
	before := f.connect("worker", "?project_id=ag~alice", nil)
	set := func(broken bool) (looks int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.broken = broken
		return s.looks["ag~alice"]
	}
	seen := set(true)
	s.put(t, "ag~bob", "text.bobs")
	bob := f.connect("worker", "?project_id=ag~bob", nil)
	if tools := toolsOf(t, bob); tools["skill_shell_run"] == nil || tools["skill_text_bobs"] != nil {
		t.Error("bob does not have the catalog's tools")
	}
	eventually(t, "a read has failed", func() bool { return set(true) > seen+1 })
	if toolsOf(t, before)["skill_text_alices"] == nil {
		t.Error("alice's tool has gone with the database")
	}
	set(false)
	eventually(t, "bob has his tool", func() bool { return toolsOf(t, bob)["skill_text_bobs"] != nil })
}
