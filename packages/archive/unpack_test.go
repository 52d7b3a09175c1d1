package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"

	"secbox/fault"
)

// some is an archive of several files, folders and methods.
func some() []byte {
	return demo(
		raw{name: "demo/lib/a.py", data: strings.Repeat("print(1)\n", 20_000), deflate: true, mode: 0o100755},
		raw{name: "demo/lib/b.bin", data: strings.Repeat("\x00\x01", 100_000)},
		raw{name: "demo/empty/"},
		raw{name: "demo/说明.txt", data: "说明"},
	)
}

func TestManyUnpackOneArchiveAtOnce(t *testing.T) {
	t.Parallel()
	b := some()
	_, want, err := unpack(t, b, "", DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	archive := bytes.NewReader(b)
	var wg sync.WaitGroup
	for range 16 {
		dir, into := newDir(t)
		wg.Go(func() {
			skill, err := unpackAll(context.Background(), archive, archive.Size(), "", into, DefaultLimits())
			if err != nil || skill.ID != "demo" || skill.Files != 4 {
				t.Errorf("got %+v, %v", skill, err)
			}
			if got := tree2map(t, dir); !maps.Equal(got, want) {
				t.Errorf("got %s", paths(got))
			}
		})
	}
	wg.Wait()
}

// TestContextEndsUnpack ends the context at each read of the archive in turn.
func TestContextEndsUnpack(t *testing.T) {
	t.Parallel()
	b := some()
	gone := errors.New("the client has gone")
	for n := 0; ; n++ {
		ctx, cancel := context.WithCancelCause(context.Background())
		reads := 0
		archive := readerAt(func(p []byte, off int64) (int, error) {
			if reads++; reads > n {
				cancel(gone)
			}
			return bytes.NewReader(b).ReadAt(p, off)
		})
		_, into := newDir(t)
		_, err := unpackAll(ctx, archive, int64(len(b)), "", into, DefaultLimits())
		cancel(nil)
		if reads <= n {
			if err != nil || n < 5 {
				t.Fatalf("after %d reads: %v", n, err)
			}
			return
		}
		// Work after the last check may still succeed, but must have no other effect.
		if err != nil && !errors.Is(err, gone) {
			t.Fatalf("at read %d: %v", n, err)
		}
		if err == nil && n < 3 {
			t.Fatalf("given up at read %d, it went on to the end", n)
		}
	}
}

func TestCanceledContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	untouched := readerAt(func([]byte, int64) (int, error) {
		t.Error("the archive is read")
		return 0, io.EOF
	})
	_, into := newDir(t)
	if _, err := unpackAll(ctx, untouched, 1000, "", into, DefaultLimits()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

type readerAt func([]byte, int64) (int, error)

func (f readerAt) ReadAt(b []byte, off int64) (int, error) { return f(b, off) }

// TestUnreadableArchive fails each read in turn: that is this machine's fault, not the archive's.
func TestUnreadableArchive(t *testing.T) {
	t.Parallel()
	b := some()
	for n := 0; ; n++ {
		reads := 0
		archive := readerAt(func(p []byte, off int64) (int, error) {
			if reads++; reads > n {
				return 0, os.ErrPermission
			}
			return bytes.NewReader(b).ReadAt(p, off)
		})
		_, into := newDir(t)
		_, err := unpackAll(context.Background(), archive, int64(len(b)), "", into, DefaultLimits())
		if reads <= n {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		if !fault.Is(err, fault.Internal) || !errors.Is(err, os.ErrPermission) {
			t.Fatalf("at read %d: %v", n, err)
		}
	}
}

// TestShrinkingArchive is one whose file is cut while it is read.
func TestShrinkingArchive(t *testing.T) {
	t.Parallel()
	b := some()
	reads := 0
	archive := readerAt(func(p []byte, off int64) (int, error) {
		if reads++; reads > 6 {
			return bytes.NewReader(b[:100]).ReadAt(p, off)
		}
		return bytes.NewReader(b).ReadAt(p, off)
	})
	_, into := newDir(t)
	_, err := unpackAll(context.Background(), archive, int64(len(b)), "", into, DefaultLimits())
	wantFault(t, err, fault.InvalidArchive, "is damaged")
	_, into = newDir(t)
	_, err = unpackAll(context.Background(), bytes.NewReader(b), int64(len(b))+100, "", into, DefaultLimits())
	wantFault(t, err, fault.InvalidArchive, "is cut off")
	_, err = unpackAll(context.Background(), bytes.NewReader(b), -1, "", into, DefaultLimits())
	wantFault(t, err, fault.InvalidArchive, "the file is empty")
}

func TestDiskFullCode(t *testing.T) {
	t.Parallel()
	for _, full := range fullDisk {
		cause := &os.PathError{Op: "write", Path: "x", Err: full}
		for _, err := range []error{unwritable(cause, "x"), unsent(fmt.Errorf("zip: %w", cause))} {
			if !fault.Is(err, fault.DiskFull) || !errors.Is(err, full) {
				t.Errorf("got %v", err)
			}
		}
	}
}
