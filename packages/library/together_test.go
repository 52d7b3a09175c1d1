//go:build unix

package library_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"secbox/fault"
	"secbox/packages/library"
	"secbox/sandbox/sandboxtest"
)

// TestManyAtOnce has 32 clients upload, edit, read, list and promote one skill, on two nodes. Every
// successful edit is in the user's copy afterwards, unless an upload of that user replaced it;
// every successful promotion was a baseline, and none was lost without SkillMoved; no reader saw
// anything incomplete.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(testing.TB) string{
		"sqlite": func(testing.TB) string { return "" }, "postgres": func(t testing.TB) string { return cluster.Migrated(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manyAtOnce(t, setUpOn(t, url(t)))
		})
	}
}

func manyAtOnce(t *testing.T, f *fixture) {
	whole := func(n string) tree { return tree{"SKILL.md": "# " + n + "\n", "a.txt": n, "b.txt": n} }
	f.upload(alice, library.Baseline, "demo", whole("0"))
	must(t, f.Materialise(t.Context(), bob, "demo")) // so that uploads exchange copies under the readers
	nodes := []*library.Library{f.Library, f.another()}
	const clients = 32
	rounds := sandboxtest.Soak(3, 20)

	var mu sync.Mutex
	promoted := map[string]int{} // what it replaced, by how many
	var wait sync.WaitGroup
	for c := range clients {
		wait.Go(func() {
			l := nodes[c%2]
			for r := range rounds {
				me := fmt.Sprintf("%d-%d", c, r)
				switch c % 4 {
				case 0: // edits its own file in alice's copy, without uploads
					if err := l.Edit(t.Context(), alice, "demo", "of/"+me, []byte(me), nil); err != nil {
						t.Errorf("edit: %v", err)
					}
				case 1: // uploads whole skills to bob
					b := packed(t, "demo", whole(me))
					if _, err := l.Upload(t.Context(), bob, library.Overlay, "x.zip", bytes.NewReader(b), int64(len(b))); err != nil {
						t.Errorf("upload: %v", err)
					}
				case 2: // changes and promotes its own version
					o := library.Owner{AgentID: "agent001", UserID: "user" + me}
					if err := l.Edit(t.Context(), o, "demo", "a.txt", []byte(me), nil); err != nil {
						t.Errorf("edit: %v", err)
						continue
					}
					p, err := l.Promote(t.Context(), o, "demo", false)
					if fault.Is(err, fault.SkillMoved) {
						continue
					}
					if err != nil {
						t.Errorf("promote: %v", err)
						continue
					}
					mu.Lock()
					promoted[p.Previous]++
					mu.Unlock()
				case 3: // reads bob's, which is always of one upload, file by file, and adds lines to one file of alice's
					if _, err := l.List(t.Context(), bob); err != nil {
						t.Errorf("list: %v", err)
					}
					if got, err := l.Read(t.Context(), bob, "demo", "SKILL.md"); err != nil || !strings.HasPrefix(string(got), "# ") {
						t.Errorf("read %q, %v", got, err)
					}
					if files, err := l.Files(t.Context(), bob, "demo"); err != nil || len(files) != 3 {
						t.Errorf("files %v, %v", files, err)
					}
				}
			}
		})
	}
	wait.Wait()

	for c := 0; c < clients; c += 4 {
		for r := range rounds {
			me := fmt.Sprintf("%d-%d", c, r)
			if got := f.content(alice, "demo", "of/"+me); got != me {
				t.Errorf("the edit %s is %q", me, got)
			}
		}
	}
	for previous, n := range promoted {
		if n > 1 {
			t.Errorf("%d promotions have replaced %.12s: all but one of them are lost", n, previous)
		}
	}
	if len(promoted) == 0 {
		t.Error("nothing was promoted")
	}
	got := f.everything(bob, "demo")
	if n := got["a.txt"]; got["b.txt"] != n || got["SKILL.md"] != "# "+n+"\n" {
		t.Errorf("a mix: %q", got)
	}
	f.nothingStaged()
}

// TestLinesEditedAtOnce edits each line of a file by its own editor, on two nodes and by both
// routes. No edit is lost or refused.
func TestLinesEditedAtOnce(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	nodes := []*library.Library{f.Library, f.another()}
	for _, file := range []string{"log", "skills/demo/log"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			const lines = 32
			must(t, f.SandboxEdit(t.Context(), alice, file, []byte(strings.Repeat("-\n", lines)), nil))
			var wait sync.WaitGroup
			var want strings.Builder
			for n := range lines {
				fmt.Fprintln(&want, n)
				wait.Go(func() {
					l, r := nodes[n%2], &library.LineRange{Start: n + 1, End: n + 1}
					var err error
					if inSkill := strings.TrimPrefix(file, "skills/demo/"); inSkill != file && n/2%2 == 0 {
						err = l.Edit(t.Context(), alice, "demo", inSkill, fmt.Append(nil, n), r)
					} else {
						_, err = l.SandboxEdit(t.Context(), alice, file, fmt.Append(nil, n), r)
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			wait.Wait()
			got, err := f.SandboxRead(t.Context(), alice, file)
			if must(t, err); string(got) != want.String() {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestReadsDuringEdits: an edit replaces a file by a new one, and readers get either the old or the
// new content.
func TestReadsDuringEdits(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	f.edit(alice, "demo", "log", "begun")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range sandboxtest.Soak(80, 2000) {
			if err := f.Edit(t.Context(), alice, "demo", "log", fmt.Append(nil, "edit ", n), nil); err != nil {
				t.Error(err)
			}
		}
	}()
	reads := 0
	for {
		if got, err := f.Read(t.Context(), alice, "demo", "log"); err != nil || string(got) != "begun" && !strings.HasPrefix(string(got), "edit ") {
			t.Errorf("read %q, %v", got, err)
		}
		if got, err := f.SandboxRead(t.Context(), alice, "skills/demo/log"); err != nil || len(got) < len("begun") {
			t.Errorf("read %q, %v", got, err)
		}
		if diff, _, err := f.Diff(t.Context(), alice, "demo"); err != nil || !strings.Contains(diff, "+++ b/log") {
			t.Errorf("diff %q, %v", diff, err)
		}
		reads++
		select {
		case <-done:
			t.Logf("%d reads", reads)
			return
		default:
		}
	}
}
