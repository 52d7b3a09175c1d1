package offload_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"secbox/fault"
	"secbox/mcp/offload"
	"secbox/sandbox"
	"secbox/sandbox/none"
	"secbox/sandbox/sandboxtest"
)

var (
	ann = sandbox.User{AgentID: "a1", ID: "ann"}
	bob = sandbox.User{AgentID: "a1", ID: "bob"}
)

func open(t *testing.T, cfg offload.Config) *offload.Store {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = filepath.Join(t.TempDir(), "offload")
	}
	s, err := offload.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// long returns a text of n bytes that begins with a name.
func long(name string, n int) string { return name + strings.Repeat(".", n-len(name)) }

func keep(t *testing.T, s *offload.Session, text string) (id string) {
	t.Helper()
	out, ok := s.MaybeOffload("shell", text, offload.File{})
	if !ok || out.ID == "" || out.Bytes != int64(len(text)) {
		t.Fatalf("%t %+v", ok, out)
	}
	return out.ID
}

// whole reads a result part by part.
func whole(t *testing.T, s *offload.Session, id string, limit int64) string {
	t.Helper()
	var b strings.Builder
	for at := int64(0); ; {
		part, err := s.Read(t.Context(), id, at, limit, nil)
		if err != nil {
			t.Fatal(err)
		}
		if part.From != at || part.To-part.From != int64(len(part.Text)) || len(part.Text) > offload.MaxRead {
			t.Fatalf("from %d: %d to %d, %d bytes", at, part.From, part.To, len(part.Text))
		}
		b.WriteString(part.Text)
		if at = part.To; at == part.Bytes {
			return b.String()
		}
	}
}

// TestLongResultIsKept (004 l350–363).
func TestLongResultIsKept(t *testing.T) {
	t.Parallel()
	session := open(t, offload.Config{}).Begin(ann)
	if out, ok := session.MaybeOffload("shell", long("short", offload.MaxInline), offload.File{}); ok {
		t.Errorf("a short result was kept: %+v", out)
	}
	for _, unit := range []string{"x", "ü", "你", "🙂", "a你🙂ü"} {
		for shift := range 4 {
			text := strings.Repeat("-", shift) + strings.Repeat(unit, offload.MaxInline/len(unit)+5000)
			out, ok := session.MaybeOffload("files.grep", text, offload.File{})
			if !ok || len(out.Text) > offload.MaxInline || !utf8.ValidString(out.Text) {
				t.Fatalf("%q %d: %t, %d bytes", unit, shift, ok, len(out.Text))
			}
			head, rest, _ := strings.Cut(out.Text, "\n… (")
			note, tail, _ := strings.Cut(rest, ") …\n")
			if !strings.HasPrefix(text, head) || !strings.HasSuffix(text, tail) || len(head) < 16000 || len(tail) < 8000 {
				t.Errorf("%q %d: head %d, tail %d bytes", unit, shift, len(head), len(tail))
			}
			if want := fmt.Sprintf("offload_read, id %s, from offset %d", out.ID, len(head)); !strings.Contains(note, want) {
				t.Errorf("the note %q does not say %q", note, want)
			}
			for _, limit := range []int64{0, 5000, offload.MaxRead + 1, -7} {
				if whole(t, session, out.ID, limit) != text {
					t.Errorf("%q %d by %d bytes: another text", unit, shift, limit)
				}
			}
		}
	}
	id := keep(t, session, "🙂"+long("", offload.MaxInline))
	if part, err := session.Read(t.Context(), id, 0, 1, nil); err != nil || part.Text != "🙂" || part.To != 4 {
		t.Errorf("%+v %v: at least one character", part, err)
	}
	if part, err := session.Read(t.Context(), id, 2, 1, nil); err != nil || part.Text != "." || part.From != 4 {
		t.Errorf("%+v %v: begins with a character", part, err)
	}
	for _, offset := range []int64{-1, offload.MaxInline + 5} {
		if _, err := session.Read(t.Context(), id, offset, 1, nil); !fault.Is(err, fault.InvalidInputs) {
			t.Errorf("offset %d: %v", offset, err)
		}
	}
	if part, err := session.Read(t.Context(), id, offload.MaxInline+4, 1, nil); err != nil || part.Text != "" {
		t.Errorf("at the end: %+v %v", part, err)
	}
}

func TestIDsOfOtherSessionsAreUnknown(t *testing.T) {
	t.Parallel()
	store := open(t, offload.Config{})
	anns, again, bobs := store.Begin(ann), store.Begin(ann), store.Begin(bob)
	id := keep(t, anns, long("ann", 40000))
	for name, s := range map[string]*offload.Session{"another session": again, "another user": bobs} {
		if _, err := s.Read(t.Context(), id, 0, 0, nil); !fault.Is(err, fault.UnknownFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, guess := range []string{"", ".", "..", "../" + id, strings.ToLower(id), id + "\x00", "/etc/passwd"} {
		if _, err := anns.Read(t.Context(), guess, 0, 0, nil); !fault.Is(err, fault.UnknownFile) {
			t.Errorf("%q: %v", guess, err)
		}
	}
	if other := keep(t, anns, long("ann", 40000)); len(id) < 26 || other == id { // 26 characters of base32 are 130 bits
		t.Errorf("ids %s and %s can be guessed", id, other)
	}
}

// files returns the names of the files in the store's directory, which must all be private.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	if info, err := os.Stat(dir); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o700 {
		t.Fatalf("%v %v", info, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || runtime.GOOS != "windows" && info.Mode() != 0o600 {
			t.Errorf("%s: %v %v", e.Name(), info.Mode(), err)
		}
		names = append(names, e.Name())
	}
	return names
}

func TestOldestResultsMakeRoom(t *testing.T) {
	t.Parallel()
	const size = 40000
	dir := t.TempDir()
	store := open(t, offload.Config{
		Dir: dir, Session: offload.Bounds{Bytes: 3 * size, Entries: 10}, User: offload.Bounds{Bytes: 100 * size, Entries: 4},
		All: offload.Bounds{Bytes: 6 * size, Entries: 100},
	})
	one, two, bobs := store.Begin(ann), store.Begin(sandbox.User{AgentID: "a2", ID: "ann"}), store.Begin(bob)
	var kept []string // oldest first
	owner := map[string]*offload.Session{}
	add := func(s *offload.Session, gone ...int) {
		t.Helper()
		id := keep(t, s, long("x", size))
		owner[id] = s
		for _, at := range slices.Backward(gone) {
			if _, err := owner[kept[at]].Read(t.Context(), kept[at], 0, 0, nil); !fault.Is(err, fault.UnknownFile) {
				t.Errorf("result %d is still there: %v", at, err)
			}
			kept = slices.Delete(kept, at, at+1)
		}
		kept = append(kept, id)
		for at, id := range kept {
			if _, err := owner[id].Read(t.Context(), id, 0, 0, nil); err != nil {
				t.Errorf("result %d of %d: %v", at, len(kept), err)
			}
		}
		if names := files(t, dir); len(names) != len(kept) {
			t.Errorf("%d files for %d results", len(names), len(kept))
		}
	}
	add(one)
	add(one)
	add(one)
	add(one, 0) // the session's bytes
	add(two)
	add(two, 0) // the user's entries
	add(bobs)
	add(bobs)
	add(bobs, 0) // the bytes of all: bob's new one pushes out ann's oldest
	if out, ok := one.MaybeOffload("shell", long("x", 3*size+1), offload.File{}); !ok || out.ID != "" || !strings.Contains(out.Text, "could not be kept") {
		t.Errorf("%t %q: larger than the session's bound", ok, out.ID)
	}
	bobs.Close()
	bobs.Close()
	if out, ok := bobs.MaybeOffload("shell", long("x", size), offload.File{}); !ok || out.ID != "" {
		t.Errorf("kept after the session's end: %+v", out)
	}
	if names := files(t, dir); len(names) != 3 {
		t.Errorf("%d files after the end of bob's session", len(names))
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if names := files(t, dir); len(names) != 0 {
		t.Errorf("files after Close: %q", names)
	}
}

func TestOpenRemovesLeftovers(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	for name, content := range map[string]string{
		filepath.Join(dir, "LEFT"): "x", filepath.Join(dir, "sub/deep/file"): "x",
		filepath.Join(elsewhere, "stays"): "x",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	open(t, offload.Config{Dir: dir})
	if names := files(t, dir); len(names) != 0 {
		t.Errorf("left: %q", names)
	}
	if _, err := os.Stat(filepath.Join(elsewhere, "stays")); err != nil {
		t.Errorf("the sweep followed a link: %v", err)
	}
}

func TestSessionsAtOnce(t *testing.T) {
	t.Parallel()
	store := open(t, offload.Config{User: offload.Bounds{Bytes: 1 << 20, Entries: 8}})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			session := store.Begin(ann)
			defer session.Close()
			for range 10 {
				out, _ := session.MaybeOffload("shell", long("x", 40000), offload.File{})
				if part, err := session.Read(t.Context(), out.ID, 0, 0, nil); err != nil && !fault.Is(err, fault.UnknownFile) ||
					err == nil && part.Bytes != 40000 {
					t.Errorf("%+v %v", part, err)
				}
			}
		})
	}
	all.Wait()
}

func digest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// TestFileReplacedByALink: a link that leads out of the workspace is not followed, so it is unknown
// whether the file has changed.
func TestFileReplacedByALink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	box := none.New(none.Config{Directories: sandboxtest.Directory(dir), Environ: os.Environ()})
	defer box.Close()
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, "leads out")); err != nil {
		t.Fatal(err)
	}
	seen := []offload.File{{Path: "/workspace/leads out", SHA256: digest("before")}}
	got, err := open(t, offload.Config{}).Begin(ann).InvalidateStaleReads(t.Context(), seen, box)
	if err != nil || len(got.Changed) != 0 || len(got.Removed) != 0 || len(got.Unknown) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestInvalidateStaleReads gets the sandbox as an argument (004 l31, l364–369).
func TestInvalidateStaleReads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	box := none.New(none.Config{Directories: sandboxtest.Directory(dir), Environ: os.Environ()})
	defer box.Close()
	var seen []offload.File
	for _, name := range []string{"same", "changed", "removed", "replaced by a directory", "touched"} {
		if err := box.WriteFile(t.Context(), "/workspace/"+name, []byte(name), 0o644, ann); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, offload.File{Path: "/workspace/" + name, SHA256: digest(name)})
	}
	session := open(t, offload.Config{}).Begin(ann)
	kept := map[string]string{}
	for _, file := range seen {
		out, _ := session.MaybeOffload("files.read", long("x", 40000), file)
		kept[file.Path] = out.ID
	}
	check := func(want offload.Stale) {
		t.Helper()
		got, err := session.InvalidateStaleReads(t.Context(), seen, box)
		if err != nil || !slices.Equal(got.Changed, want.Changed) || !slices.Equal(got.Removed, want.Removed) || !slices.Equal(got.Unknown, want.Unknown) {
			t.Errorf("%+v %v, want %+v", got, err, want)
		}
	}
	check(offload.Stale{})
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, step := range []error{
		os.WriteFile(at("changed"), []byte("CHANGED"), 0o644), // of the same length
		os.Remove(at("removed")),
		os.Remove(at("replaced by a directory")), os.Mkdir(at("replaced by a directory"), 0o755),
		os.WriteFile(at("touched"), []byte("touched"), 0o600),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	want := offload.Stale{
		Changed: []string{"/workspace/changed"}, Removed: []string{"/workspace/removed"},
		Unknown: []string{"/workspace/replaced by a directory"},
	}
	check(want)
	check(want)
	reads := func(want offload.Stale) {
		t.Helper()
		var got offload.Stale
		for _, file := range seen {
			part, err := session.Read(t.Context(), kept[file.Path], 0, 0, box)
			if err != nil || part.Text == "" {
				t.Errorf("%s: %v", file.Path, err)
			}
			got.Changed, got.Removed, got.Unknown = append(got.Changed, part.Stale.Changed...), append(got.Removed, part.Stale.Removed...),
				append(got.Unknown, part.Stale.Unknown...)
		}
		if !slices.Equal(got.Changed, want.Changed) || !slices.Equal(got.Removed, want.Removed) || !slices.Equal(got.Unknown, want.Unknown) {
			t.Errorf("reads say %+v, want %+v", got, want)
		}
	}
	reads(want)
	if err := os.WriteFile(at("changed"), []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	want.Changed = nil
	reads(want) // it is again as it was read
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := session.InvalidateStaleReads(ended, seen, box); err == nil {
		t.Errorf("%+v after the end of the context", got)
	}
}

// liar is a sandbox whose answers cannot be relied on.
type liar func(w io.Writer) error

func (l liar) ReadFileTo(_ context.Context, _ string, w io.Writer, _ sandbox.User) (int64, error) {
	return 0, l(w)
}

// TestUnreadableIsUnknown: neither unchanged nor changed, whatever part of the content has arrived.
func TestUnreadableIsUnknown(t *testing.T) {
	t.Parallel()
	session := open(t, offload.Config{}).Begin(ann)
	seen := []offload.File{{Path: "/workspace/a", SHA256: digest("a")}}
	endless := make([]byte, 1<<20)
	for name, l := range map[string]liar{
		"permission":                  func(io.Writer) error { return &fs.PathError{Op: "open", Path: "a", Err: fs.ErrPermission} },
		"offline":                     func(io.Writer) error { return fault.New(fault.RunnerOffline, "away") },
		"the same bytes and an error": func(w io.Writer) error { _, _ = io.WriteString(w, "a"); return fault.New(fault.RunnerOffline, "away") },
		"other bytes and an error":    func(w io.Writer) error { _, _ = io.WriteString(w, "b"); return io.ErrUnexpectedEOF },
		"a timeout of the other side": func(io.Writer) error { return context.DeadlineExceeded },
		"content without an end": func(w io.Writer) error {
			for {
				if _, err := w.Write(endless); err != nil {
					return err
				}
			}
		},
		"content without an end, and no error": func(w io.Writer) error {
			for {
				if _, err := w.Write(endless); err != nil {
					return nil
				}
			}
		},
	} {
		got, err := session.InvalidateStaleReads(t.Context(), seen, l)
		if err != nil || len(got.Unknown) != 1 || len(got.Changed)+len(got.Removed) > 0 {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
}
