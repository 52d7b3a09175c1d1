//go:build unix

package library_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/packages/library"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", tree{
		"SKILL.md": "# 1\n", "a.txt": "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "gone": "x\n", "no end": "1\n2", "empty": "", "image": "\x00\x01",
	})
	if d, _, err := f.Diff(t.Context(), alice, "demo"); err != nil || d != "" {
		t.Errorf("got %q, %v", d, err)
	}
	f.edit(alice, "demo", "a.txt", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n10\n")
	f.edit(alice, "demo", "no end", "1\n2\n")
	f.edit(alice, "demo", "new", "n\n")
	f.edit(alice, "demo", "image", "\x00\x02")
	must(t, os.Remove(filepath.Join(f.copyDir(alice, "demo"), "gone")))
	want := `--- a/a.txt
+++ b/a.txt
@@ -2,8 +2,9 @@
 2
 3
 4
-5
+five
 6
 7
 8
 9
+10
--- a/gone
+++ /dev/null
@@ -1,1 +0,0 @@
-x
Binary files a/image and b/image differ
--- /dev/null
+++ b/new
@@ -0,0 +1,1 @@
+n
--- a/no end
+++ b/no end
@@ -1,2 +1,2 @@
 1
-2
\ No newline at end of file
+2
`
	if got, _, err := f.Diff(t.Context(), alice, "demo"); err != nil || got != want {
		t.Errorf("%v, got\n%s", err, got)
	}
	must(t, os.Symlink("a.txt", filepath.Join(f.copyDir(alice, "demo"), "link")))
	must(t, os.WriteFile(filepath.Join(f.copyDir(alice, "demo"), "x\n+++ b"), []byte("1\n"), 0o600))
	got, _, err := f.Diff(t.Context(), alice, "demo")
	if err != nil || !strings.Contains(got, "Not compared: \"link\"") || !strings.Contains(got, `+++ "b/x\n+++ b"`) {
		t.Errorf("%v, got\n%s", err, got)
	}
	if _, _, err := f.Diff(t.Context(), alice, "none"); !fault.Is(err, fault.UnknownSkill) {
		t.Errorf("got %v", err)
	}
}

// TestPatchTakesTheDiff: the diff, applied by another program to the base, gives the user's
// version.
func TestPatchTakesTheDiff(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		var b strings.Builder
		for range rnd.IntN(60) {
			b.WriteString(string(rune('a'+rnd.IntN(4))) + "\n")
		}
		return b.String() + strings.Repeat("end", rnd.IntN(2))
	}
	old, now := tree{"SKILL.md": "# 1\n"}, tree{"SKILL.md": "# 1\n"}
	for n := range 60 {
		name := string(rune('a'+n%26)) + strings.Repeat("x", n/26)
		old[name], now[name] = text()+"z", text()+"y"
	}
	old["long"], now["long"] = strings.Repeat("a\nb\nc\n", 2000), strings.Repeat("d\n", 3000)
	f.upload(alice, library.Baseline, "demo", old)
	f.upload(alice, library.Overlay, "demo", now)
	diff, _, err := f.Diff(t.Context(), alice, "demo")
	must(t, err)
	dir := t.TempDir()
	for name, content := range old {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	apply := exec.CommandContext(t.Context(), "git", "apply", "-p1", "--whitespace=nowarn", "-")
	apply.Dir, apply.Stdin = dir, strings.NewReader(diff)
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("%v: %.300s", err, out)
	}
	for name, content := range now {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != content {
			t.Errorf("%s is %q and should be %q", name, b, content)
		}
	}
}
