package tools_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"secbox/fault"
	"secbox/mcp/offload"
	"secbox/mcp/tools"
	"secbox/packages/catalog"
	"secbox/sandbox"
	"secbox/sandbox/sandboxtest"
)

// allTools begins a session with all tools, and returns it with the file that its Feishu keeps.
func allTools(t *testing.T, box sandbox.Backend, user sandbox.User) (s *tools.Session, kept *string) {
	t.Helper()
	store, err := offload.Open(offload.Config{Dir: filepath.Join(t.TempDir(), "offload")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	client, kept, _ := fakeFeishu(t)
	lists := catalog.New(catalog.Config{Sandboxes: here{box}, Fresh: time.Nanosecond})
	return tools.NewSession(box, user, installed).WithResults(store.Begin(user)).WithFeishu(client).WithRegistry(&fakeRegistry{}, lists), kept
}

// offersAll has the case use all tools.
func (b *bench) offersAll() (kept *string) {
	b.Helper()
	b.session, kept = allTools(b.T, b.p.sandbox, b.p.user)
	b.do("files.cd", object{"path": b.dir})
	return kept
}

// here is a sandbox of users who have chosen nothing.
type here struct{ sandbox.Backend }

func (here) Chosen(context.Context, string) (sandbox.Choice, error) { return sandbox.Choice{}, nil }

// withoutFiles are the tools that open no file of a user's sandbox by themselves: package registry
// tests what these ask of it.
var withoutFiles = []string{"offload.read", "registry.search", "registry.install", "registry.publish", "registry.uninstall"}

// eachTool calls every tool of a session that opens files.
func (b *bench) eachTool(arguments map[string]object, check func(tool string, r *tools.Result, err error)) {
	b.Helper()
	for _, tool := range b.session.Tools() {
		if slices.Contains(withoutFiles, tool.Name) {
			continue
		}
		with, ok := arguments[tool.Name]
		if !ok {
			b.Fatalf("%s is not tested", tool.Name)
		}
		r, err := b.call(tool.Name, with)
		check(tool.Name, r, err)
	}
}

// swapsLinks exchanges directories and files with links out of the workspace all the time, while
// every tool goes through them.
func swapsLinks(b *bench) {
	const secret = "not of the workspace"
	uploaded := b.offersAll()
	out, name := b.TempDir(), filepath.Base(b.dir)
	b.must(os.Chmod(out, 0o755))
	outside := map[string]string{"a.txt": secret + "\n", "SKILL.md": secret + "\n"}
	for file, content := range outside {
		b.must(os.WriteFile(filepath.Join(out, file), []byte(content), 0o644))
	}
	b.plant("dir/a.txt", "mine\n")
	b.plant("file", "mine\n")
	b.plantSkill(name, "SKILL.md", "mine\n")
	skill := filepath.Join(b.p.dir, "skills", name)
	pairs := map[string]string{filepath.Join(b.host, "dir"): out, filepath.Join(b.host, "file"): out + "/a.txt", skill: out}
	for at, to := range pairs {
		b.must(os.Symlink(to, at+"-evil"))
	}
	stop := make(chan struct{})
	var calm atomic.Bool
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			for at := range pairs { // RENAME_EXCHANGE: the names always exist
				if err := unix.Renameat2(unix.AT_FDCWD, at, unix.AT_FDCWD, at+"-evil", unix.RENAME_EXCHANGE); err != nil && !errors.Is(err, fs.ErrNotExist) {
					b.Error(err)
					return
				}
			}
			pause := 50 * time.Microsecond // without one the swapper has a core to itself
			if calm.Load() {
				pause = 20 * time.Millisecond
			}
			select {
			case <-stop:
				return
			case <-time.After(pause):
			}
		}
	})
	defer swapper.Wait()
	defer close(stop)

	through := map[string]int{}
	missing := func() (names []string) {
		for _, tool := range b.session.Tools() {
			if !slices.Contains(withoutFiles, tool.Name) && through[tool.Name] == 0 {
				names = append(names, tool.Name)
			}
		}
		return names
	}
	for i := 0; i < sandboxtest.Soak(5, 500) || len(missing()) > 0; i++ {
		if b.Context().Err() != nil {
			b.Fatalf("no call of %q got through", missing())
		}
		calm.Store(i >= sandboxtest.Soak(5, 500)) // so that the rest get through
		*uploaded = "from Feishu"
		b.eachTool(map[string]object{
			"files.cd":        {"path": b.dir + "/dir"},
			"files.read":      {"path": b.dir + "/dir/a.txt"},
			"files.write":     {"path": fmt.Sprintf("%s/dir/w%d/x", b.dir, i), "content": "x"},
			"files.edit":      {"path": b.dir + "/file", "edits": []object{{"old": "mine", "new": "my own"}, {"old": "my own", "new": "mine"}}},
			"files.download":  {"path": b.dir + "/dir/a.txt"},
			"files.upload":    {"path": fmt.Sprintf("%s/dir/u%d/x", b.dir, i), "data": "eA=="},
			"files.glob":      {"pattern": "*.txt", "path": b.dir},
			"files.grep":      {"pattern": ".*", "path": b.dir, "output_mode": "content"},
			"shell":           {"command": "true"}, // in the directory that files.cd has left
			"skills.read":     {"name": name},
			"registry.list":   {},
			"offload.stale":   {},
			"feishu.download": {"path": b.dir + "/dir/new", "message_id": "om_1", "file_key": "file_1"},
			"feishu.upload":   {"path": b.dir + "/file"},
		}, func(tool string, r *tools.Result, err error) {
			text := fmt.Sprint(err)
			if err == nil {
				text = r.Text
				if r.File != nil {
					text += string(r.File.Content)
				}
				through[tool]++
			} else if code := fault.CodeOf(err); code == fault.Internal {
				b.Errorf("%s: %v", tool, err)
			}
			if strings.Contains(text+*uploaded, secret) {
				b.Fatalf("%s has read outside of the workspace: %s", tool, text)
			}
		})
	}
	left, err := os.ReadDir(out)
	b.must(err)
	for _, e := range left {
		if content, err := os.ReadFile(filepath.Join(out, e.Name())); err != nil || string(content) != outside[e.Name()] {
			b.Errorf("outside is %s: %q %v", e.Name(), content, err)
		}
	}
}

// namesForgeNothing: names with line breaks, control bytes and bytes that are not UTF-8 are in the
// answers of every tool, with escapes.
func namesForgeNothing(b *bench) {
	b.offersAll()
	const odd = "a\n/workspace/forged:1:\x1b[2J\u202e\xff"
	file := strings.ReplaceAll(odd, "/", "-")
	const legible = "b\n-forged \x1b[2J\u009b" // can be an argument
	name := filepath.Base(b.dir)
	for _, n := range []string{file, legible} {
		b.plant("dir/"+n, "needle\n")
		b.plantSkill(name, n, "needle\n")
		b.plantSkill(name+n, "SKILL.md", "needle\n")
	}
	b.plantSkill(name, "SKILL.md", "needle\n")
	show := func(tool string, r *tools.Result, err error) {
		text := ""
		if err == nil {
			text = r.Text
		} else {
			text = fault.From(err).Message
		}
		bad := func(r rune) bool {
			return r == 0x202e && tool != "shell" || unicode.IsControl(r) && r != '\n' && r != '\t'
		}
		if !utf8.ValidString(text) || strings.ContainsFunc(text, bad) || strings.Contains(text, "\n-") && tool != "shell" ||
			fault.CodeOf(err) == fault.Internal {
			b.Errorf("%s answers with %q", tool, text)
		}
	}
	at := "dir/" + legible
	calls := []map[string]object{{
		"files.cd": {"path": "."}, "files.read": {"path": at}, "files.write": {"path": at, "content": "needle"},
		"files.edit":     {"path": at, "edits": []object{{"old": "needle", "new": "needle 2"}}},
		"files.download": {"path": at}, "files.upload": {"path": at, "data": "eA=="},
		"files.glob": {"pattern": "*"}, "files.grep": {"pattern": "needle"}, "shell": {"command": "ls -b dir"}, "skills.read": {"name": name},
		"registry.list": {}, "offload.stale": {},
		"feishu.download": {"path": at, "message_id": "om_1", "file_key": "file_1"}, "feishu.upload": {"path": at},
	}}
	missing := maps.Clone(calls[0]) // what the errors say
	for _, tool := range []string{"files.cd", "files.read", "files.download", "feishu.upload"} {
		missing[tool] = object{"path": "none" + legible}
	}
	missing["files.write"] = object{"path": at + "/below", "content": ""}
	missing["files.upload"] = object{"path": "new" + legible}
	missing["files.edit"] = object{"path": at, "edits": []object{{"old": "none", "new": ""}}}
	missing["files.glob"], missing["files.grep"] = object{"pattern": "*", "path": "none" + legible}, object{"pattern": "needle", "output_mode": "content"}
	missing["shell"], missing["skills.read"] = object{"command": "ls dir/*"}, object{"name": "none" + legible}
	missing["feishu.download"] = object{"path": at + "/below", "message_id": "om_1", "file_key": "file_1"}
	for _, arguments := range append(calls, missing) {
		b.eachTool(arguments, show)
		b.do("files.cd", object{"path": b.dir})
	}
}
