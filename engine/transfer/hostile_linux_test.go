package transfer_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"secbox/engine/transfer"
)

// TestHostileStreams: nothing outside of work/ changes, whatever a container sends.
func TestHostileStreams(t *testing.T) {
	t.Parallel()
	format, large, none := transfer.ErrFormat, transfer.ErrTooLarge, error(nil)
	dir := func(path string) []byte { return recJSON('D', record{"d": 1, "p": []byte(path), "m": 0o777}) }
	gone := func(path string) []byte { return recJSON('G', record{"d": 1, "p": []byte(path)}) }
	for name, c := range map[string]struct {
		stream  []byte
		want    error
		leftOut int64
	}{
		"above":                 {stream(file("../escape", "x")), format, 0},
		"above, below":          {stream(file("a/../../escape", "x")), format, 0},
		"above in the middle":   {stream(file("a/../b", "x")), format, 0},
		"absolute":              {stream(file("/escape", "x")), format, 0},
		"empty":                 {stream(file("", "x")), format, 0},
		"itself":                {stream(file(".", "x")), format, 0},
		"itself in the middle":  {stream(file("a/./b", "x")), format, 0},
		"double slash":          {stream(file("a//b", "x")), format, 0},
		"slash at the end":      {stream(file("a/", "x")), format, 0},
		"NUL":                   {stream(file("a\x00b", "x")), format, 0},
		"300 bytes":             {stream(file(strings.Repeat("n", 300), "x")), format, 0},
		"255 bytes":             {stream(file(strings.Repeat("n", 255), "x")), none, 0},
		"too deep":              {stream(dir(strings.Repeat("d/", 128) + "d")), format, 0},
		"too long":              {stream(file(strings.Repeat(strings.Repeat("n", 250)+"/", 17)+"x", "x")), format, 0},
		"read-only":             {stream(recJSON('F', record{"d": 0, "p": []byte("in")})), format, 0},
		"no such directory":     {stream(recJSON('F', record{"d": 2, "p": []byte("x")})), format, 0},
		"negative directory":    {stream(recJSON('F', record{"d": -1, "p": []byte("x")})), format, 0},
		"link out, file":        {stream(link("l", "../outside"), file("l/escape", "x")), none, 1},
		"link out, directory":   {stream(link("l", "../outside"), dir("l/escape")), none, 1},
		"link out, same name":   {stream(link("l", "../outside/secret"), file("l", "x")), none, 0},
		"link out, mode":        {stream(link("l", "../outside"), dir("l")), none, 1},
		"link out, removal":     {stream(link("l", "../outside"), gone("l/secret")), none, 0},
		"link over a directory": {stream(file("d/f", "x"), link("d", "../outside"), file("d/escape", "x")), none, 1},
		"link to nothing":       {stream(link("l", "")), format, 0},
		"link with NUL":         {stream(link("l", "a\x00")), format, 0},
		"long link":             {stream(link("l", strings.Repeat("x", 5000))), format, 0},
		"duplicate":             {stream(file("twice", "1"), file("twice", "2")), none, 0},
		"case":                  {stream(file("Name", "1"), file("name", "2")), none, 0},
		"file below a file":     {stream(file("f", "1"), file("f/f", "2")), none, 1},
		"removal of above":      {stream(gone("../outside/secret")), format, 0},
		"removal of the top":    {stream(gone(".")), format, 0},
		"no kind":               {stream(recJSON('X', record{})), format, 0},
		"targets":               {stream(recJSON('T', []record{{"path": "/etc"}})), format, 0},
		"block without a file":  {stream(block(0, "x")), format, 0},
		"file without a size":   {stream(recJSON('F', record{"d": 1, "p": []byte("f")}), file("g", "x")), format, 0},
		"blocks in disorder":    {stream(recJSON('F', record{"d": 1, "p": []byte("f")}), block(9, "x"), block(3, "x"), size(10)), format, 0},
		"blocks that overlap":   {stream(recJSON('F', record{"d": 1, "p": []byte("f")}), block(0, "xxx"), block(2, "x"), size(3)), format, 0},
		"shorter than blocks":   {stream(recJSON('F', record{"d": 1, "p": []byte("f")}), block(0, "xxx"), size(2)), format, 0},
		"empty block":           {stream(recJSON('F', record{"d": 1, "p": []byte("f")}), block(0, ""), size(0)), format, 0},
		"block without offset":  {stream(recJSON('F', record{"d": 1, "p": []byte("f")}), rec('B', []byte("x")), size(0)), format, 0},
		"size with more":        {stream(recJSON('F', record{"d": 1, "p": []byte("f")}), rec('Z', make([]byte, 9))), format, 0},
		"huge size":             {stream(recJSON('F', record{"d": 1, "p": []byte("f")}), size(1<<62)), large, 0},
		"negative size":         {stream(recJSON('F', record{"d": 1, "p": []byte("f")}), size(1<<63)), large, 0},
		"huge offset":           {stream(recJSON('F', record{"d": 1, "p": []byte("f")}), block(1<<40, "x"), size(1<<40)), format, 0},
		"no JSON":               {stream(rec('F', []byte("{"))), format, 0},
		"large record":          {stream(rec('F', make([]byte, 1<<20))), format, 0},
		"mode":                  {stream(recJSON('F', record{"d": 1, "p": []byte("f"), "m": uint32(1<<32 - 1)}), size(0)), none, 0},
		"time":                  {stream(recJSON('F', record{"d": 1, "p": []byte("f"), "t": int64(-1 << 63)}), size(0)), none, 0},
		"end":                   {nil, none, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnds(t)
			e.put("outside/secret", "secret")
			e.put("inputs/in", "in")
			before := listed(t, e.here, "outside", "inputs")
			if c.stream == nil {
				c.stream = end
			}
			report, err := e.receive(c.stream)
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || report.LeftOut != c.leftOut {
				t.Errorf("%+v %v, want %v", report, err, c.want)
			}
			if after := listed(t, e.here, "outside", "inputs"); after != before {
				t.Errorf("outside there is now\n%s", after)
			}
			e.noTemps()
			_ = filepath.WalkDir(filepath.Join(e.here, "work"), func(path string, d fs.DirEntry, err error) error {
				must(t, err)
				if fi, err := d.Info(); err != nil || fi.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky|fs.ModeDevice) != 0 {
					t.Errorf("%s: %v %v", path, fi.Mode(), err)
				}
				return nil
			})
		})
	}
}

// listed is what is in directories, and beside them.
func listed(t *testing.T, top string, names ...string) (all string) {
	t.Helper()
	list, err := os.ReadDir(top)
	must(t, err)
	for _, e := range list {
		all += e.Name() + "\n"
	}
	for _, name := range names {
		must(t, filepath.WalkDir(filepath.Join(top, name), func(path string, d fs.DirEntry, err error) error {
			must(t, err)
			fi, err := d.Info()
			must(t, err)
			all += fmt.Sprintf("%s %v %d %v\n", path, fi.Mode(), fi.Size(), fi.ModTime())
			return nil
		}))
	}
	return all
}

// TestBrokenStream: wherever a stream breaks off, there is no half file and an error.
func TestBrokenStream(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	e.put("work/file", "old content")
	e.put("work/removed", "x")
	u := e.send()
	e.in("work/file", "the new content")
	e.in("work/dir/other", "other")
	must(t, os.Remove(filepath.Join(e.container, "work/removed")))
	whole := e.changes(u)
	for n := range len(whole) {
		_, err := e.receive(whole[:n])
		if !errors.Is(err, transfer.ErrFormat) {
			t.Fatalf("after %d of %d bytes: %v", n, len(whole), err)
		}
		if got, err := os.ReadFile(filepath.Join(e.here, "work/file")); err != nil || string(got) != "old content" && string(got) != "the new content" {
			t.Fatalf("after %d bytes: %q %v", n, got, err)
		}
		e.noTemps()
		if _, err := transfer.Unpack(bytes.NewReader(whole[:n])); err == nil {
			t.Fatal("unpacked what is no stream of files")
		}
	}
	_, err := e.receive(whole)
	must(t, err)
}

// TestManyEntries: a million names are refused before they are in memory or on the disk.
func TestManyEntries(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	var many bytes.Buffer
	for i := range 1_000_000 {
		many.Write(recJSON('L', record{"d": 1, "p": fmt.Appendf(nil, "%d", i), "l": []byte("x")}))
	}
	report, err := transfer.Receive(&many, e.dirs, transfer.Bounds{Bytes: 1, Entries: 1000}, transfer.Owner{UID: -1})
	if !errors.Is(err, transfer.ErrTooLarge) || report.Entries != 1001 {
		t.Errorf("%+v %v", report, err)
	}
	if left, err := os.ReadDir(filepath.Join(e.here, "work")); err != nil || len(left) != 1000 {
		t.Errorf("%d %v", len(left), err)
	}
	if _, err := transfer.Send(io.Discard, e.dirs, transfer.Bounds{Bytes: 1, Entries: 999}); !errors.Is(err, transfer.ErrTooLarge) {
		t.Error(err)
	}
}

// TestBomb: an endless file ends at the bound, and leaves nothing.
func TestBomb(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	r, w := io.Pipe()
	go func() {
		_, _ = w.Write(recJSON('F', record{"d": 1, "p": []byte("bomb")}))
		var err error
		for at := uint64(0); err == nil; at += 64 << 10 {
			_, err = w.Write(block(at, strings.Repeat("x", 64<<10)))
		}
	}()
	_, err := transfer.Receive(r, e.dirs, transfer.Bounds{Bytes: 10 << 20, Entries: 10}, transfer.Owner{UID: -1})
	r.Close()
	if !errors.Is(err, transfer.ErrTooLarge) {
		t.Error(err)
	}
	e.noTemps()
	e.has("work/bomb", "")
	if _, err := transfer.Receive(zeros{}, e.dirs, wide, transfer.Owner{UID: -1}); !errors.Is(err, transfer.ErrFormat) {
		t.Error(err)
	}
}

// TestFullDisk: a full disk is reported as such, with no half file, and the old file stays.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("mounting a small disk needs root; run the tests as root")
	}
	disk := t.TempDir()
	must(t, unix.Mount("secbox-test", disk, "tmpfs", 0, "size=1m,mode=0755"))
	t.Cleanup(func() { must(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	e := newEndsIn(t, disk)
	e.put("work/file", "old")
	u := e.send()
	e.in("work/file", strings.Repeat("new", 1<<20))
	if _, err := e.receive(e.changes(u)); !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
	e.has("work/file", "old")
	e.noTemps()
	e.put("work/file2", strings.Repeat("x", 500_000))
	e.container = filepath.Join(disk, "container")
	for i, name := range []string{"inputs", "work"} {
		e.dirs[i].Target = filepath.Join(e.container, name)
	}
	var sent bytes.Buffer
	_, err := transfer.Send(&sent, e.dirs, wide)
	must(t, err)
	e.put("work/file3", strings.Repeat("x", 400_000))
	if _, err := transfer.Unpack(&sent); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("in the container: %v", err)
	}
}

// FuzzReceive: no stream changes anything outside of work/, or leaves a temporary file.
func FuzzReceive(f *testing.F) {
	f.Add(stream(file("a/b", "content"), link("l", "../outside"), file("l/x", "y")))
	f.Add(stream(recJSON('D', record{"d": 1, "p": []byte("d"), "m": 0o700}), recJSON('G', record{"d": 1, "p": []byte("d"), "m": 1 << 31})))
	f.Add(stream(recJSON('F', record{"d": 1, "p": []byte("f")}), block(5, "xxx"), size(100)))
	f.Fuzz(func(t *testing.T, content []byte) {
		e := newEnds(t)
		e.put("outside/secret", "secret")
		e.put("work/a/old", "old")
		before := listed(t, e.here, "outside", "inputs")
		_, _ = transfer.Receive(bytes.NewReader(content), e.dirs, transfer.Bounds{Bytes: 1 << 20, Entries: 100}, transfer.Owner{UID: -1})
		if after := listed(t, e.here, "outside", "inputs"); after != before {
			t.Errorf("outside there is now\n%s", after)
		}
		e.noTemps()
	})
}
