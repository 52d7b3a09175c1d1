package tree_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"secbox/workspace/tree"
)

// listed is everything below a directory, links with what they lead to.
func listed(t *testing.T, dir string) []string {
	t.Helper()
	list := []string{}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if target, err := os.Readlink(path); err == nil {
			name += " -> " + target
		} else if d.IsDir() {
			name += "/"
		}
		if first, rest, ok := strings.Cut(name, tree.UnnestedMark); ok { // the rest of it is new each time
			_, rest, _ = strings.Cut(rest, "/")
			name = first + tree.UnnestedMark + "/" + rest
		}
		list = append(list, name)
		return nil
	}))
	slices.Sort(list)
	return list
}

func TestUnnest(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before, after string // the tree, by words: a file, a directory/, a link>target
		done          int    // levels
	}{
		"one level":                        {"A/A/SKILL.md A/A/x/y", "A/SKILL.md A/x/y", 1},
		"three levels":                     {"A/A/A/A/SKILL.md", "A/SKILL.md", 3},
		"the inner one empty":              {"A/A/", "A/A/", 0},
		"all empty":                        {"A/A/A/", "A/A/", 1},
		"a file beside":                    {"A/A/SKILL.md A/x", "A/A/SKILL.md A/x", 0},
		"a hidden file beside":             {"A/A/SKILL.md A/.x", "A/A/SKILL.md A/.x", 0},
		"a folder beside":                  {"A/A/SKILL.md A/B/", "A/A/SKILL.md A/B/", 0},
		"another name":                     {"A/B/SKILL.md", "A/B/SKILL.md", 0},
		"another case":                     {"A/a/SKILL.md", "A/a/SKILL.md", 0},
		"a file of the name":               {"A/A", "A/A", 0},
		"a link of the name":               {"A/A>../B B/x", "A/A>../B B/x", 0},
		"a link to itself":                 {"A/A>.", "A/A>.", 0},
		"a link out of it all":             {"A/A>/etc", "A/A>/etc", 0},
		"links within go along":            {"A/A/SKILL.md A/A/l>../x", "A/SKILL.md A/l>../x", 1},
		"a link within, of the same name":  {"A/A/A>/etc", "A/A>/etc", 1},
		"nothing to do":                    {"A/SKILL.md", "A/SKILL.md", 0},
		"an inner folder of inner folders": {"A/A/A/x A/A/y", "A/A/x A/y", 1},
	} {
		t.Run(strings.ReplaceAll(name, ",", ""), func(t *testing.T) {
			t.Parallel()
			work := t.TempDir()
			build := func(dir, words string) {
				for word := range strings.FieldsSeq(words) {
					word, target, isLink := strings.Cut(word, ">")
					full := filepath.Join(dir, word)
					must(t, os.MkdirAll(filepath.Dir(full), 0o755))
					switch {
					case isLink:
						must(t, os.Symlink(target, full))
					case strings.HasSuffix(word, "/"):
						must(t, os.MkdirAll(full, 0o755))
					default:
						write(t, full, word)
					}
				}
			}
			build(work, tc.before)
			want := t.TempDir()
			build(want, tc.after)
			top := openTree(t, work)
			done := 0
			for {
				flat, err := top.Unnest("A")
				if err != nil {
					t.Fatal(err)
				}
				if !flat {
					break
				}
				done++
			}
			if got, want := listed(t, work), listed(t, want); done != tc.done || !slices.Equal(got, want) {
				t.Errorf("%d levels: %q, want %q", done, got, want)
			}
		})
	}
	t.Run("a link in its own place", func(t *testing.T) {
		t.Parallel()
		work, outside := t.TempDir(), t.TempDir()
		must(t, os.MkdirAll(filepath.Join(outside, "A", "A", "x"), 0o755))
		must(t, os.Symlink(filepath.Join(outside, "A"), filepath.Join(work, "A")))
		top := openTree(t, work)
		if flat, err := top.Unnest("A"); flat || !tree.IsRefused(err) {
			t.Errorf("%v %v", flat, err)
		}
		if got := listed(t, filepath.Join(outside, "A")); !slices.Equal(got, []string{"A/", "A/x/"}) {
			t.Errorf("outside: %q", got)
		}
	})
}

// TestFinishUnnest: an Unnest that ended between its steps is completed.
func TestFinishUnnest(t *testing.T) {
	t.Parallel()
	const beside = "A" + tree.UnnestedMark + "1"
	for name, tc := range map[string]struct {
		before []string
		after  []string
	}{
		"the inner one beside an empty outer one": {[]string{"A/", beside + "/", beside + "/x/"}, []string{"A/", "A/x/"}},
		"no outer one": {[]string{beside + "/", beside + "/x/"}, []string{"A/", "A/x/"}},
		"an outer one that has got something": {
			[]string{"A/", "A/y/", beside + "/x/"},
			[]string{"A" + tree.UnnestedMark + "/", "A" + tree.UnnestedMark + "/x/", "A/", "A/y/"},
		},
		"nothing in it": {[]string{"A/", beside + "/"}, []string{"A" + tree.UnnestedMark + "/", "A/"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := t.TempDir()
			for _, dir := range tc.before {
				must(t, os.MkdirAll(filepath.Join(work, dir), 0o755))
			}
			top := openTree(t, work)
			must(t, top.FinishUnnest(beside))
			must(t, top.FinishUnnest(beside))
			if got := listed(t, work); !slices.Equal(got, tc.after) {
				t.Errorf("%q, want %q", got, tc.after)
			}
		})
	}
}

// TestUnnestInARace: a job exchanges the folders for links to elsewhere and adds files all the
// time. Nothing outside is touched, and no file is lost.
func TestUnnestInARace(t *testing.T) {
	t.Parallel()
	work, outside := t.TempDir(), t.TempDir()
	write(t, filepath.Join(outside, "secret"), "secret")
	top := openTree(t, work)
	must(t, os.MkdirAll(filepath.Join(outside, "A"), 0o755))
	write(t, filepath.Join(outside, "A", "x"), "x")
	for range 200 {
		must(t, os.MkdirAll(filepath.Join(work, "A", "A"), 0o755))
		write(t, filepath.Join(work, "A", "A", "precious"), "precious")
		done := make(chan struct{})
		go func() {
			defer close(done)
			// Each step may fail, when the other side was faster.
			_ = os.Rename(filepath.Join(work, "A", "A"), filepath.Join(work, "mine"))
			_ = os.Symlink(outside, filepath.Join(work, "A", "A"))
			_ = os.WriteFile(filepath.Join(work, "A", "beside"), nil, 0o644)
		}()
		_, _ = top.Unnest("A") // an error is as good as any other end
		<-done
		found := 0
		must(t, filepath.WalkDir(work, func(path string, _ fs.DirEntry, err error) error {
			if filepath.Base(path) == "precious" {
				found++
			}
			return err
		}))
		if found != 1 {
			t.Fatalf("the file is there %d times: %q", found, listed(t, work))
		}
		list, err := os.ReadDir(work)
		must(t, err)
		for _, e := range list {
			must(t, os.RemoveAll(filepath.Join(work, e.Name())))
		}
	}
	if got := listed(t, outside); !slices.Equal(got, []string{"A/", "A/x", "secret"}) {
		t.Errorf("outside: %q", got)
	}
}
