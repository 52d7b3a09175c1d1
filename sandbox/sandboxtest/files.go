//go:build linux

package sandboxtest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/sandbox"
)

var fileCases = []testCase{
	{name: "WhatIsWrittenIsRead", run: writtenIsRead},
	{name: "PathsThatAreNone", run: pathsThatAreNone},
	{name: "PathsOutside", run: pathsOutside},
	{name: "WhatIsNotThere", run: notThere},
	{name: "WhatIsOfAnotherKind", run: otherKind},
	{name: "Modes", run: modes},
	{name: "AReaderSeesOldOrNew", run: oldOrNew, backend: true},
	{name: "Stat", run: stat},
	{name: "ReadDir", run: readDir},
	{name: "MkdirAll", run: mkdirAll},
	{name: "Remove", run: remove},
	{name: "RemoveAll", run: removeAll},
	{name: "RootStays", run: rootStays},
	{name: "ReadOnlyRoot", run: readOnlyRoot},
	{name: "FilesOverTheLimit", run: overTheLimit},
	{name: "ReplaceFile", run: replaced},
	{name: "ReplaceFileAtOnce", run: replacedAtOnce},
}

func writtenIsRead(b *bench) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for name, content := range map[string][]byte{
		"empty": {}, "text": []byte("hello\n"), "binary": every, "large": bytes.Repeat(every, 20_000), "wörld": []byte("ü"), " a b ": {1},
		"-x": {2},
	} {
		b.must(b.s.WriteFile(b.ctx, b.at(name), content, 0o644, b.user))
		got, err := b.s.ReadFile(b.ctx, b.at(name), b.user)
		if err != nil || !bytes.Equal(got, content) {
			b.Errorf("%q: %d bytes, %v; want %d", name, len(got), err, len(content))
		}
		if b.found(name) != string(content) {
			b.Errorf("%q is another kind of file", name)
		}
	}
	b.must(b.s.WriteFile(b.ctx, b.at("large"), []byte("short"), 0o644, b.user))
	if b.found("large") != "short" {
		b.Error("something of the old content is left")
	}
	b.plant("planted", "from outside")
	got, err := b.s.ReadFile(b.ctx, sandbox.Root+"//"+filepath.Base(b.dir)+"/./planted", b.user)
	if err != nil || string(got) != "from outside" {
		b.Errorf("%q %v", got, err)
	}
}

// each calls every method with a path.
func (b *bench) each(path string, check func(method string, err error)) {
	_, err := b.s.ReadFile(b.ctx, path, b.user)
	check("ReadFile", err)
	check("WriteFile", b.s.WriteFile(b.ctx, path, []byte("x"), 0o644, b.user))
	_, err = b.s.Stat(b.ctx, path, b.user)
	check("Stat", err)
	_, err = b.s.ReadDir(b.ctx, path, b.user)
	check("ReadDir", err)
	check("MkdirAll", b.s.MkdirAll(b.ctx, path, 0o755, b.user))
	check("Remove", b.s.Remove(b.ctx, path, b.user))
	check("RemoveAll", b.s.RemoveAll(b.ctx, path, b.user))
	streams := b.streamer()
	_, err = streams.ReadFileTo(b.ctx, path, new(bytes.Buffer), b.user)
	check("ReadFileTo", err)
	_, err = streams.WriteFileFrom(b.ctx, path, strings.NewReader("x"), 0o644, b.user)
	check("WriteFileFrom", err)
	if path != "" { // empty means Root for Exec
		_, err = b.s.Exec(b.ctx, sandbox.ExecSpec{Command: "true", Dir: path, User: b.user})
		check("Exec", err)
	}
}

func (b *bench) streamer() sandbox.Streamer {
	b.Helper()
	s, ok := b.s.(sandbox.Streamer)
	if !ok {
		b.Fatal("it does not stream")
	}
	return s
}

func pathsThatAreNone(b *bench) {
	for name, path := range map[string]string{
		"empty": "", "relative": "workspace/x", "dot": "./x", "NUL": b.at("a\x00b"),
		"5,000 bytes": b.dir + strings.Repeat("/abcdefghi", 500), "a name of 300 bytes": b.at(strings.Repeat("n", 300)),
	} {
		b.each(path, func(method string, err error) {
			if err == nil {
				b.Errorf("%s takes a path that is %s", method, name)
				return
			}
			b.is(err, fs.ErrInvalid, path)
		})
	}
}

func pathsOutside(b *bench) {
	for _, path := range []string{
		"/", "/etc/passwd", "/workspaces/x", "/workspace/../etc/passwd", b.dir + "/../../etc/passwd", b.at("x/.."), "/proc/self/environ",
		"/..",
	} {
		b.each(path, func(method string, err error) {
			if err == nil {
				b.Errorf("%s takes %q", method, path)
				return
			}
			b.is(err, fs.ErrPermission, path)
		})
	}
}

func notThere(b *bench) {
	for _, path := range []string{b.at("no"), b.at("no/such/file"), b.at("file/below")} {
		b.plant("file", "x")
		_, err := b.s.ReadFile(b.ctx, path, b.user)
		b.is(err, fs.ErrNotExist, path)
		_, err = b.s.Stat(b.ctx, path, b.user)
		b.is(err, fs.ErrNotExist, path)
		_, err = b.s.ReadDir(b.ctx, path, b.user)
		b.is(err, fs.ErrNotExist, path)
		b.is(b.s.Remove(b.ctx, path, b.user), fs.ErrNotExist, path)
		b.must(b.s.RemoveAll(b.ctx, path, b.user))
		_, err = b.streamer().ReadFileTo(b.ctx, path, new(bytes.Buffer), b.user)
		b.is(err, fs.ErrNotExist, path)
	}
	path := b.at("no/file")
	b.is(b.s.WriteFile(b.ctx, path, []byte("x"), 0o644, b.user), fs.ErrNotExist, path)
	if _, err := os.Stat(filepath.Join(b.host, "no")); err == nil {
		b.Error("WriteFile made a directory")
	}
	_, err := b.streamer().WriteFileFrom(b.ctx, path, strings.NewReader("x"), 0o644, b.user)
	b.is(err, fs.ErrNotExist, path)
	_, err = b.s.Exec(b.ctx, sandbox.ExecSpec{Command: "true", Dir: b.at("no"), User: b.user})
	b.is(err, fs.ErrNotExist, b.at("no"))
}

func otherKind(b *bench) {
	b.plantDir("dir")
	b.plant("file", "x")
	_, err := b.s.ReadFile(b.ctx, b.at("dir"), b.user)
	b.is(err, fs.ErrInvalid, b.at("dir"))
	b.is(b.s.WriteFile(b.ctx, b.at("dir"), nil, 0o644, b.user), fs.ErrInvalid, b.at("dir"))
	b.is(b.s.WriteFile(b.ctx, sandbox.Root, nil, 0o644, b.user), fs.ErrInvalid, sandbox.Root)
	_, err = b.s.ReadDir(b.ctx, b.at("file"), b.user)
	b.is(err, fs.ErrInvalid, b.at("file"))
	_, err = b.s.Exec(b.ctx, sandbox.ExecSpec{Command: "true", Dir: b.at("file"), User: b.user})
	b.is(err, fs.ErrInvalid, b.at("file"))
}

func modes(b *bench) {
	for _, perm := range []fs.FileMode{0o644, 0o600, 0o755, 0o666, 0o444} {
		name := fmt.Sprintf("file-%o", perm)
		b.must(b.s.WriteFile(b.ctx, b.at(name), []byte("x"), perm, b.user))
		b.mode(name, perm)
	}
	b.must(b.s.WriteFile(b.ctx, b.at("file-755"), []byte("y"), 0o600, b.user))
	b.mode("file-755", 0o755)
	b.must(b.s.MkdirAll(b.ctx, b.at("dir-777/dir-777"), 0o777, b.user))
	b.mode("dir-777", 0o777)
	b.mode("dir-777/dir-777", 0o777)
}

func (b *bench) mode(name string, want fs.FileMode) {
	b.Helper()
	fi, err := os.Lstat(filepath.Join(b.host, name))
	b.must(err)
	if fi.Mode().Perm() != want {
		b.Errorf("%s has mode %o, want %o", name, fi.Mode().Perm(), want)
	}
	info, err := b.s.Stat(b.ctx, b.at(name), b.user)
	b.must(err)
	if info.Mode != fi.Mode() {
		b.Errorf("Stat tells of mode %v, it is %v", info.Mode, fi.Mode())
	}
}

// oldOrNew reads, on this machine and in the sandbox, during writes.
func oldOrNew(b *bench) {
	content := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), 64<<10+i%7) }
	whole := func(got string) bool {
		return len(got) >= 64<<10 && strings.Count(got, got[:1]) == len(got) && got == content(int(got[0]-'a')+26*slices.IndexFunc(
			[]int{0, 1, 2, 3, 4, 5, 6}, func(k int) bool { return content(int(got[0]-'a')+26*k) == got }))
	}
	b.must(b.s.WriteFile(b.ctx, b.at("file"), []byte(content(0)), 0o644, b.user))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 60 {
			if err := b.s.WriteFile(b.ctx, b.at("file"), []byte(content(i)), 0o644, b.user); err != nil {
				b.Error(err)
				return
			}
		}
	}()
	for reads, over := 0, false; !over; reads++ {
		select {
		case <-done:
			over = true
		default:
		}
		if got := b.found("file"); !whole(got) {
			b.Fatalf("a reader saw %d bytes of no write", len(got))
		}
		if got, err := b.s.ReadFile(b.ctx, b.at("file"), b.user); err != nil || !whole(string(got)) {
			b.Fatalf("read %d bytes: %v", len(got), err)
		}
	}
	names, err := os.ReadDir(b.host)
	b.must(err)
	if len(names) != 1 {
		b.Errorf("other files were left: %v", names)
	}
}

func stat(b *bench) {
	b.plant("file", "12345")
	b.plantDir("dir")
	b.plantLink("file", "link")
	fi, err := os.Stat(filepath.Join(b.host, "file"))
	b.must(err)
	for name, size := range map[string]int64{"file": 5, "link": 5, "dir": 0} {
		info, err := b.s.Stat(b.ctx, b.at(name), b.user)
		b.must(err)
		if info.Name != name || info.IsDir != (name == "dir") || info.IsDir != info.Mode.IsDir() || !info.IsDir && info.Size != size {
			b.Errorf("%s: %+v", name, *info)
		}
		if name != "dir" && (!info.ModTime.Equal(fi.ModTime()) || !info.Mode.IsRegular()) {
			b.Errorf("%s: %+v, want the time %v", name, *info, fi.ModTime())
		}
	}
	root, err := b.s.Stat(b.ctx, sandbox.Root, b.user)
	b.must(err)
	if root.Name != "workspace" || !root.IsDir {
		b.Errorf("%+v", *root)
	}
}

func readDir(b *bench) {
	list, err := b.s.ReadDir(b.ctx, b.dir, b.user)
	if err != nil || len(list) != 0 {
		b.Fatalf("%v %v", list, err)
	}
	b.plant("b", "123")
	b.plant("B", "")
	b.plant(".hidden", "1")
	b.plantDir("a")
	b.plantLink("a", "link")
	b.plantLink("/etc", "out")
	b.plantLink("nowhere", "broken")
	list, err = b.s.ReadDir(b.ctx, b.dir, b.user)
	b.must(err)
	var got []string
	for _, e := range list {
		got = append(got, fmt.Sprintf("%s %t %d %s", e.Name, e.IsDir, e.Size, e.Mode.Type()))
	}
	want := []string{
		".hidden false 1 ----------", "B false 0 ----------", "a true 0 d---------", "b false 3 ----------",
		"broken false 0 L---------", "link false 0 L---------", "out false 0 L---------",
	}
	if !slices.Equal(got, want) {
		b.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if list, err = b.s.ReadDir(b.ctx, b.at("link"), b.user); err != nil || len(list) != 0 {
		b.Errorf("behind a link: %v %v", list, err)
	}
	root, err := b.s.ReadDir(b.ctx, sandbox.Root, b.user)
	if err != nil || !slices.ContainsFunc(root, func(e sandbox.DirEntry) bool { return e.Name == filepath.Base(b.dir) }) {
		b.Errorf("%v %v", root, err)
	}
}

func mkdirAll(b *bench) {
	for range 2 { // existing directories are not an error
		b.must(b.s.MkdirAll(b.ctx, b.at("a/b/c"), 0o755, b.user))
	}
	b.must(b.s.MkdirAll(b.ctx, sandbox.Root, 0o755, b.user))
	b.must(b.s.WriteFile(b.ctx, b.at("a/b/c/file"), []byte("x"), 0o644, b.user))
	for _, path := range []string{b.at("a/b/c/file"), b.at("a/b/c/file/d")} {
		b.is(b.s.MkdirAll(b.ctx, path, 0o755, b.user), fs.ErrExist, path)
	}
	b.plantLink("a/b", "link")
	b.must(b.s.MkdirAll(b.ctx, b.at("link/d/e"), 0o755, b.user))
	if fi, err := os.Stat(filepath.Join(b.host, "a/b/d/e")); err != nil || !fi.IsDir() {
		b.Errorf("through a link: %v", err)
	}
	// Commands can use the new directories.
	if r := b.shell("echo x > a/b/c/new && cd a/b/d && mkdir f && rm ../c/file"); r.ExitCode != 0 {
		b.Errorf("%+v", *r)
	}
}

func remove(b *bench) {
	b.plantDir("full")
	b.plant("full/file", "x")
	b.plantDir("empty")
	b.plantLink("full", "link")
	b.is(b.s.Remove(b.ctx, b.at("full"), b.user), fs.ErrExist, b.at("full"))
	for _, name := range []string{"empty", "link", "full/file", "full"} {
		b.must(b.s.Remove(b.ctx, b.at(name), b.user))
		if _, err := os.Lstat(filepath.Join(b.host, name)); err == nil {
			b.Errorf("%s is still there", name)
		}
		b.is(b.s.Remove(b.ctx, b.at(name), b.user), fs.ErrNotExist, b.at(name))
	}
}

func removeAll(b *bench) {
	b.plantDir("kept")
	b.plant("kept/file", "x")
	b.plant("alone", "x")
	b.shell("mkdir -p tree/a/b/c && echo x > tree/a/file && ln -s ../kept tree/link && mkdir tree/closed && echo x > tree/closed/f && " +
		"chmod 000 tree/closed")
	b.must(b.s.RemoveAll(b.ctx, b.at("tree"), b.user))
	b.must(b.s.RemoveAll(b.ctx, b.at("tree"), b.user))
	b.must(b.s.RemoveAll(b.ctx, b.at("alone"), b.user))
	names, err := os.ReadDir(b.host)
	b.must(err)
	if len(names) != 1 || b.found("kept/file") != "x" {
		b.Errorf("left are %v", names)
	}
}

func rootStays(b *bench) {
	for _, path := range []string{sandbox.Root, sandbox.Root + "/", sandbox.Root + "/."} {
		b.is(b.s.Remove(b.ctx, path, b.user), fs.ErrPermission, path)
		b.is(b.s.RemoveAll(b.ctx, path, b.user), fs.ErrPermission, path)
	}
	if _, err := os.Stat(b.host); err != nil {
		b.Fatal(err)
	}
}

func readOnlyRoot(b *bench) {
	if b.f.ReadOnly.Path == "" {
		_, err := b.s.ReadFile(b.ctx, "/opt/tools/file", b.user)
		if !fault.Is(err, fault.Unsupported) {
			b.is(err, fs.ErrPermission, "/opt/tools/file")
		}
		return
	}
	root := b.f.ReadOnly
	name := filepath.Base(b.dir)
	b.must(os.Mkdir(filepath.Join(root.Dir, name), 0o755))
	b.must(os.WriteFile(filepath.Join(root.Dir, name, "file"), []byte("read me"), 0o644))
	b.must(os.Symlink("/etc/passwd", filepath.Join(root.Dir, name, "out")))
	readsOnly(b, root.Path, name)
	if root.Link != "" {
		readsOnly(b, root.Link, name)
	}
}

// readsOnly checks a directory at a path of a read-only root.
func readsOnly(b *bench, top, name string) {
	at := top + "/" + name
	got, err := b.s.ReadFile(b.ctx, at+"/file", b.user)
	if err != nil || string(got) != "read me" {
		b.Fatalf("%q %v", got, err)
	}
	if list, err := b.s.ReadDir(b.ctx, at, b.user); err != nil || len(list) != 2 {
		b.Errorf("%v %v", list, err)
	}
	if info, err := b.s.Stat(b.ctx, top, b.user); err != nil || !info.IsDir || info.Name != filepath.Base(top) {
		b.Errorf("%+v %v", info, err)
	}
	_, err = b.s.ReadFile(b.ctx, at+"/out", b.user)
	b.is(err, fs.ErrPermission, at+"/out")
	for _, path := range []string{at + "/file", at, top, at + "/new"} {
		b.is(b.s.WriteFile(b.ctx, path, []byte("x"), 0o644, b.user), fs.ErrPermission, path)
		b.is(b.s.MkdirAll(b.ctx, path, 0o755, b.user), fs.ErrPermission, path)
		b.is(b.s.Remove(b.ctx, path, b.user), fs.ErrPermission, path)
		b.is(b.s.RemoveAll(b.ctx, path, b.user), fs.ErrPermission, path)
	}
	r, err := b.s.Exec(b.ctx, sandbox.ExecSpec{Command: "cat", Args: []string{"file"}, Dir: at, User: b.user})
	if err != nil || r.Stdout != "read me" {
		b.Errorf("%+v %v", r, err)
	}
}

// overTheLimit reads a sparse file, which must be refused.
func overTheLimit(b *bench) {
	b.plant("sparse", "")
	b.must(os.Truncate(filepath.Join(b.host, "sparse"), 1<<40))
	_, err := b.s.ReadFile(b.ctx, b.at("sparse"), b.user)
	if !fault.Is(err, fault.FileTooLarge) {
		b.Errorf("a terabyte: %v", err)
	}
	var got bytes.Buffer
	_, err = b.streamer().ReadFileTo(b.ctx, b.at("sparse"), &got, b.user)
	if !fault.Is(err, fault.FileTooLarge) || got.Len() > 0 {
		b.Errorf("as a stream: %v, after %d bytes", err, got.Len())
	}
	info, err := b.s.Stat(b.ctx, b.at("sparse"), b.user)
	if err != nil || info.Size != 1<<40 {
		b.Errorf("%+v %v", info, err)
	}
}
