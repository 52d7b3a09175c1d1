package archive

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"secbox/fault"
	"secbox/pathadapter"
)

func pack(t testing.TB, from fs.FS, top string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Pack(context.Background(), &b, from, top); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestPackAndUnpack packs random trees and unpacks them to the same.
func TestPackAndUnpack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.OneOf(
			rapid.StringMatching(`[a-z]{1,3}(\.[a-z]{1,2})?`),
			rapid.StringMatching(`[ -~]{1,8}`),
			rapid.SampledFrom([]string{"说明", "模", "cafe\u0301", "caf\u00e9", "🦆", "README.md", ".env", "SKILL", "a b", strings.Repeat("n", 255)}),
		).Filter(func(s string) bool {
			return partFault(s) == "" && !(&entry{parts: []string{s}}).leftOut() && pathadapter.FoldName(s) != "skill.md" && s != "README.md"
		})
		top := name.Filter(func(s string) bool { return idFault(s) == "" && pathadapter.FoldName(s) != ReservedID }).Draw(rt, "top")
		from := fstest.MapFS{"SKILL.md": {Data: []byte("# Demo\n"), Mode: 0o644}}
		want := map[string]string{"SKILL.md": "# Demo\n"}
		taken := map[string]bool{"skill.md": true}
		for range rapid.IntRange(0, 8).Draw(rt, "files") {
			parts := rapid.SliceOfN(name, 1, 4).Draw(rt, "path")
			p := path.Join(parts...)
			free := !taken[pathadapter.FoldName(p)]
			for n := 1; n < len(parts); n++ { // a folder that is there is not drawn again: simpler than to tell it from a file
				free = free && !taken[pathadapter.FoldName(path.Join(parts[:n]...))]
			}
			if !free {
				continue
			}
			for n := 1; n < len(parts); n++ {
				taken[pathadapter.FoldName(path.Join(parts[:n]...))] = true
				want[path.Join(parts[:n]...)+"/"] = "-rwxr-xr-x"
			}
			taken[pathadapter.FoldName(p)] = true
			if rapid.Bool().Draw(rt, "folder") {
				from[p] = &fstest.MapFile{Mode: fs.ModeDir | 0o700}
				want[p+"/"] = "-rwxr-xr-x"
				continue
			}
			data := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(rt, "data")
			mode := rapid.SampledFrom([]fs.FileMode{0o644, 0o600, 0o755, 0o711, 0o4755}).Draw(rt, "mode")
			from[p] = &fstest.MapFile{Data: data, Mode: mode, ModTime: time.Unix(rapid.Int64Range(0, 1<<32).Draw(rt, "mtime"), 0)}
			if mode&0o111 != 0 {
				p += star
			}
			want[p] = string(data)
		}
		b := pack(t, from, top)
		for _, f := range from {
			f.ModTime = time.Now()
		}
		if !bytes.Equal(b, pack(t, from, top)) {
			rt.Fatal("the same tree gives other bytes")
		}
		skill, tree, err := unpack(t, b, "x.zip", DefaultLimits())
		if err != nil {
			rt.Fatal(err)
		}
		if !maps.Equal(tree, want) {
			rt.Fatalf("got %q, want %q", tree, want)
		}
		if skill.ID != norm.NFC.String(top) {
			rt.Fatalf("got %q, want %q", skill.ID, top)
		}
	})
}

// TestPackIsTakenByOthers reads with archive/zip what we write, and pins what it looks like.
func TestPackIsTakenByOthers(t *testing.T) {
	t.Parallel()
	b := pack(t, fstest.MapFS{
		"SKILL.md":   {Data: []byte("# 天气\n"), Mode: 0o600},
		"模/run.sh":   {Data: []byte("#!/bin/sh\n"), Mode: 0o700},
		"lib/a.py":   {Data: []byte("1\n"), Mode: 0o644},
		"lib/a/b.py": {Data: []byte("2\n"), Mode: 0o644},
	}, "天气")
	r, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range r.File {
		got = append(got, f.Mode().String()+" "+f.Name)
		if f.NonUTF8 || !f.Modified.Equal(time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("%s: not UTF-8 %v, of %v", f.Name, f.NonUTF8, f.Modified)
		}
	}
	want := "drwxr-xr-x 天气/,-rw-r--r-- 天气/SKILL.md,drwxr-xr-x 天气/lib/,drwxr-xr-x 天气/lib/a/,-rw-r--r-- 天气/lib/a/b.py," +
		"-rw-r--r-- 天气/lib/a.py,drwxr-xr-x 天气/模/,-rwxr-xr-x 天气/模/run.sh"
	if strings.Join(got, ",") != want {
		t.Errorf("got %s", strings.Join(got, ","))
	}
}

func TestUnpackableTrees(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file string
		mode fs.FileMode
		top  string
		says string
	}{
		"a link":            {"lib/x", fs.ModeSymlink | 0o777, "demo", `"lib/x" cannot be packed: it is a link`},
		"a FIFO":            {"lib/x", fs.ModeNamedPipe, "demo", `"lib/x" cannot be packed: it is a link or special file`},
		"a socket":          {"lib/x", fs.ModeSocket, "demo", "special file"},
		"a device":          {"lib/x", fs.ModeDevice, "demo", "special file"},
		"a backslash":       {`lib/..\..\x`, 0o644, "demo", "holds a path separator; rename it"},
		"a new line":        {"lib/a\nb", 0o644, "demo", "holds a control character; rename it"},
		"a colon":           {"lib/a:b", 0o644, "demo", "which Windows does not allow; rename it"},
		"a device's name":   {"lib/con", 0o644, "demo", "device name that Windows reserves"},
		"a folder's name":   {"aux/a", 0o644, "demo", "device name that Windows reserves"},
		"no UTF-8":          {"lib/a\xff", 0o644, "demo", "is not valid UTF-8"},
		"no id":             {"lib/a", 0o644, "", "is empty"},
		"an id that climbs": {"lib/a", 0o644, "..", `must not be "." or ".."`},
		"an id of two":      {"lib/a", 0o644, "a/b", "holds a path separator"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			err := Pack(context.Background(), &b, fstest.MapFS{"SKILL.md": {}, c.file: {Mode: c.mode}}, c.top)
			wantFault(t, err, fault.InvalidArchive, c.says)
			if b.Len() != 0 {
				t.Errorf("%d bytes were written", b.Len())
			}
		})
	}
}

// swapped is a tree that changes between the look and the writing.
type swapped struct {
	fs.FS
	then func(name string) (fs.File, error)
}

func (s swapped) Open(name string) (fs.File, error) {
	if name == "a" {
		return s.then(name)
	}
	return s.FS.Open(name)
}

func TestTreeChangesWhileItIsPacked(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{"SKILL.md": {Data: []byte("x")}, "a": {Data: []byte("x")}, "dir": {Mode: fs.ModeDir}}
	for name, c := range map[string]struct {
		then func(string) (fs.File, error)
		code fault.Code
	}{
		"gone":     {func(string) (fs.File, error) { return nil, fs.ErrNotExist }, fault.Internal},
		"a folder": {func(string) (fs.File, error) { return tree.Open("dir") }, fault.InvalidArchive},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			err := Pack(context.Background(), &b, swapped{tree, c.then}, "demo")
			if !fault.Is(err, c.code) {
				t.Errorf("got %v", err)
			}
			if _, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len())); err == nil {
				t.Error("half an archive can be taken for a whole one")
			}
		})
	}
}

func TestContextEndsPack(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{"a": {Data: bytes.Repeat([]byte("0123456789"), 1<<20)}}
	gone := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	var b bytes.Buffer
	w := writer(func(p []byte) (int, error) {
		cancel(gone)
		return b.Write(p)
	})
	if err := Pack(ctx, w, tree, "demo"); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	closed := writer(func([]byte) (int, error) { return 0, io.ErrClosedPipe })
	if err := Pack(context.Background(), closed, tree, "demo"); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
	if err := Pack(ctx, closed, tree, "demo"); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// TestPackOfADirectory packs a directory written by Unpack, as a download does.
func TestPackOfADirectory(t *testing.T) {
	t.Parallel()
	dir, into := newDir(t)
	b := read(t, "gbk-infozip.zip")
	if _, err := unpackAll(context.Background(), bytes.NewReader(b), int64(len(b)), "", into, DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	again := pack(t, into.FS(), "天气查询")
	skill, tree, err := unpack(t, again, "", DefaultLimits())
	if err != nil || skill.ID != "天气查询" || !maps.Equal(tree, tree2map(t, dir)) {
		t.Errorf("got %+v, %s, %v", skill, paths(tree), err)
	}
}
