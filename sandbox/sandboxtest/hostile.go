//go:build linux

package sandboxtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"secbox/sandbox"
)

var hostileCases = []testCase{
	{name: "LinksInside", run: linksInside},
	{name: "LinksOutside", run: linksOutside},
	{name: "LinksSwappedDuringTheCall", run: linksSwapped, backend: true},
	{name: "WhatIsNoFileIsNotWaitedFor", run: special},
	{name: "DeepTrees", run: deepTrees},
}

func linksInside(b *bench) {
	b.plantDir("dir")
	b.plant("dir/file", "inside")
	b.plantLink("dir", "to-dir")
	b.plantLink("to-dir/file", "to-file")
	b.plantLink("dir/new", "to-new")
	b.plantLink("loop", "loop")
	for _, name := range []string{"to-dir/file", "to-file"} {
		got, err := b.s.ReadFile(b.ctx, b.at(name), b.user)
		if err != nil || string(got) != "inside" {
			b.Errorf("%s: %q %v", name, got, err)
		}
	}
	b.must(b.s.WriteFile(b.ctx, b.at("to-file"), []byte("changed"), 0o644, b.user))
	b.must(b.s.WriteFile(b.ctx, b.at("to-new"), []byte("new"), 0o644, b.user))
	if b.found("dir/file") != "changed" || b.found("dir/new") != "new" {
		b.Error("the target of a link was not changed")
	}
	for _, name := range []string{"to-file", "to-new"} {
		if fi, err := os.Lstat(filepath.Join(b.host, name)); err != nil || fi.Mode().Type() != fs.ModeSymlink {
			b.Errorf("%s is no link any more", name)
		}
	}
	_, err := b.s.ReadFile(b.ctx, b.at("loop"), b.user)
	b.is(err, fs.ErrInvalid, b.at("loop"))
	b.is(b.s.WriteFile(b.ctx, b.at("loop"), nil, 0o644, b.user), fs.ErrInvalid, b.at("loop"))
}

// outside makes a directory outside of the workspace, with a file that must not change.
func (b *bench) outside() string {
	dir := b.TempDir()
	b.must(os.Chmod(dir, 0o755))
	b.must(os.WriteFile(filepath.Join(dir, "secret"), []byte("secret"), 0o644))
	return dir
}

func (b *bench) untouched(dir string) {
	b.Helper()
	names, err := os.ReadDir(dir)
	b.must(err)
	content, err := os.ReadFile(filepath.Join(dir, "secret"))
	if len(names) != 1 || err != nil || string(content) != "secret" {
		b.Errorf("the outside has %v, the secret is %q, %v", names, content, err)
	}
}

func linksOutside(b *bench) {
	out := b.outside()
	above, err := filepath.Rel(b.host, out)
	b.must(err)
	b.plantLink(out, "dir")
	b.plantLink(above, "relative")
	b.plantLink(filepath.Join(out, "secret"), "file")
	b.plantLink("../../"+strings.Repeat("../", 30)+"etc/passwd", "up")
	b.plantLink("file", "second")
	b.plantLink(filepath.Join(out, "new"), "new")
	for _, name := range []string{"file", "up", "second", "new", "dir/secret", "relative/secret", "dir/new", "relative/new"} {
		path := b.at(name)
		_, err := b.s.ReadFile(b.ctx, path, b.user)
		b.is(err, fs.ErrPermission, path)
		_, err = b.s.Stat(b.ctx, path, b.user)
		b.is(err, fs.ErrPermission, path)
		b.is(b.s.WriteFile(b.ctx, path, []byte("x"), 0o644, b.user), fs.ErrPermission, path)
		_, err = b.streamer().WriteFileFrom(b.ctx, path, strings.NewReader("x"), 0o644, b.user)
		b.is(err, fs.ErrPermission, path)
	}
	for _, name := range []string{"dir", "relative"} {
		path := b.at(name)
		_, err := b.s.ReadDir(b.ctx, path, b.user)
		b.is(err, fs.ErrPermission, path)
		b.is(b.s.MkdirAll(b.ctx, path+"/made", 0o755, b.user), fs.ErrPermission, path+"/made")
		b.is(b.s.Remove(b.ctx, path+"/secret", b.user), fs.ErrPermission, path+"/secret")
		b.is(b.s.RemoveAll(b.ctx, path+"/secret", b.user), fs.ErrPermission, path+"/secret")
		_, err = b.s.Exec(b.ctx, sandbox.ExecSpec{Command: "true", Dir: path, User: b.user})
		b.is(err, fs.ErrPermission, path)
		b.must(b.s.RemoveAll(b.ctx, path, b.user)) // the link itself
	}
	b.untouched(out)
}

// linksSwapped exchanges a directory and a file with links out all the time, while calls go through
// them.
func linksSwapped(b *bench) {
	out := b.outside()
	b.plantDir("real")
	b.plant("real/secret", "mine")
	b.plantLink(out, "evil")
	b.plant("file", "mine")
	b.plantLink(filepath.Join(out, "secret"), "evil-file")
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Microsecond): // else the swapper has a core to itself
			}
			// RENAME_EXCHANGE: the names always exist.
			for one, other := range map[string]string{"real": "evil", "file": "evil-file"} {
				err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(b.host, one), unix.AT_FDCWD, filepath.Join(b.host, other),
					unix.RENAME_EXCHANGE)
				if err != nil && !errors.Is(err, fs.ErrNotExist) { // a call removes the file
					b.Error(err)
					return
				}
			}
		}
	})
	defer swapper.Wait()
	defer close(stop)
	fine := func(err error) { // which error depends on the moment
		for _, kind := range []error{fs.ErrPermission, fs.ErrNotExist, fs.ErrExist, fs.ErrInvalid} {
			if errors.Is(err, kind) {
				return
			}
		}
		b.must(err)
	}
	through := 0
	for i := 0; i < Soak(50, 2000) || through == 0; i++ {
		for _, name := range []string{"real/secret", "file"} {
			got, err := b.s.ReadFile(b.ctx, b.at(name), b.user)
			fine(err)
			if err == nil && string(got) == "secret" {
				b.Fatal("the secret was read")
			}
			if err == nil {
				through++
			}
		}
		fine(b.s.WriteFile(b.ctx, b.at("real/new"), []byte("x"), 0o644, b.user))
		fine(b.s.WriteFile(b.ctx, b.at("file"), []byte("mine"), 0o644, b.user))
		fine(b.s.MkdirAll(b.ctx, b.at("real/made/deep"), 0o755, b.user))
		_, err := b.s.ReadDir(b.ctx, b.at("real"), b.user)
		fine(err)
		fine(b.s.Remove(b.ctx, b.at("real/new"), b.user))
		fine(b.s.RemoveAll(b.ctx, b.at("real/made"), b.user))
		if b.ctx.Err() != nil {
			b.Fatal("no call got through")
		}
	}
	b.untouched(out)
}

func special(b *bench) {
	fifo := filepath.Join(b.host, "fifo")
	b.must(unix.Mkfifo(fifo, 0o666))
	b.give(fifo)
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	b.must(err)
	defer unix.Close(socket)
	dir, err := os.Open(b.host) // the path may be too long for a socket address
	b.must(err)
	defer dir.Close()
	b.must(unix.Bind(socket, &unix.SockaddrUnix{Name: "/proc/self/fd/" + itoa(int(dir.Fd())) + "/socket"}))
	b.plantLink("fifo", "link")
	for _, name := range []string{"fifo", "socket", "link"} {
		path := b.at(name)
		_, err := b.s.ReadFile(b.ctx, path, b.user)
		b.is(err, fs.ErrInvalid, path)
		_, err = b.streamer().ReadFileTo(b.ctx, path, new(strings.Builder), b.user)
		b.is(err, fs.ErrInvalid, path)
		b.is(b.s.WriteFile(b.ctx, path, []byte("x"), 0o644, b.user), fs.ErrInvalid, path)
		_, err = b.s.ReadDir(b.ctx, path, b.user)
		b.is(err, fs.ErrInvalid, path)
		_, err = b.s.ReadFile(b.ctx, path+"/below", b.user)
		b.is(err, fs.ErrNotExist, path+"/below")
		b.is(b.s.MkdirAll(b.ctx, path+"/below", 0o755, b.user), fs.ErrExist, path+"/below")
		if info, err := b.s.Stat(b.ctx, path, b.user); err != nil || info.Mode.IsRegular() || info.IsDir {
			b.Errorf("%+v %v", info, err)
		}
	}
	b.must(b.s.Remove(b.ctx, b.at("fifo"), b.user))
	b.must(b.s.RemoveAll(b.ctx, b.at("socket"), b.user))
}

// deepTrees makes trees by handles, because no path is that long.
func deepTrees(b *bench) {
	const levels = 400
	name := strings.Repeat("d", 30)
	b.plantDir("tree")
	at, err := unix.Open(filepath.Join(b.host, "tree"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	b.must(err)
	for range levels {
		b.must(unix.Mkdirat(at, name, 0o755))
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		b.must(err)
		if b.f.Owner > 0 {
			b.must(unix.Fchownat(at, name, b.f.Owner, b.f.Owner, 0))
		}
		unix.Close(at)
		at = next
	}
	unix.Close(at)
	b.must(b.s.RemoveAll(b.ctx, b.at("tree"), b.user))
	if _, err := os.Lstat(filepath.Join(b.host, "tree")); err == nil {
		b.Error("the tree is still there")
	}
}
