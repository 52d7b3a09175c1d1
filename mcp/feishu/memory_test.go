package feishu

import (
	"context"
	"io"
	"io/fs"
	"net/http"
	"runtime"
	"testing"

	"secbox/sandbox"
	"secbox/sandbox/sandboxtest"
)

// heap passes on bytes, and looks at the memory now and then.
type heap struct {
	io.Writer
	bytes, looked int64
	highest       uint64
}

func (h *heap) Write(p []byte) (int, error) {
	if h.bytes += int64(len(p)); h.bytes-h.looked > 16<<20 {
		h.looked = h.bytes
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		h.highest = max(h.highest, m.HeapInuse)
	}
	return h.Writer.Write(p)
}

// sink is a sandbox that drops what is written.
type sink struct{ heap *heap }

func (sink) MkdirAll(context.Context, string, fs.FileMode, sandbox.User) error { return nil }

func (s sink) WriteFileFrom(_ context.Context, _ string, r io.Reader, _ fs.FileMode, _ sandbox.User) (int64, error) {
	return io.CopyBuffer(s.heap, r, make([]byte, 64<<10))
}

// spring is a sandbox with a long file.
type spring struct {
	shifty
	heap *heap
}

func (s spring) ReadFileTo(ctx context.Context, path string, w io.Writer, user sandbox.User) (int64, error) {
	s.heap.Writer = w
	return s.shifty.ReadFileTo(ctx, path, s.heap, user)
}

// TestLargeFilesAreStreamed: large files, 500 MiB in a long run, need no more memory than a few
// blocks in either direction. Not parallel: it measures the whole process.
func TestLargeFilesAreStreamed(t *testing.T) {
	size := sandboxtest.Soak[int64](128<<20, sandbox.MaxFileBytes)
	f := newFake(t)
	f.drive.discard = true
	f.resources["/drive/v1/files/boxcn1/download"] = func(w http.ResponseWriter) {
		block := make([]byte, 64<<10)
		for sent := int64(0); sent < size; sent += int64(len(block)) {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
	down := &heap{Writer: io.Discard}
	got, err := f.client.Download(t.Context(), Resource{FileToken: "boxcn1"}, sink{down}, "/workspace/a", ann)
	if err != nil || got.Bytes != size {
		t.Errorf("%+v %v", got, err)
	}
	up := &heap{}
	file, err := f.client.Upload(t.Context(), Upload{Path: "/workspace/a", Folder: "fldcn1"}, spring{shifty{says: size, has: size}, up}, ann)
	if err != nil || file.Token == "" || f.drive.got != size {
		t.Errorf("%+v %v, %d bytes", file, err, f.drive.got)
	}
	const most = 64 << 20 // the fake's own blocks included
	if down.highest == 0 || down.highest > most || up.highest == 0 || up.highest > most {
		t.Errorf("heap of %d MiB at most while downloading, %d MiB while uploading", down.highest>>20, up.highest>>20)
	}
	t.Logf("heap of %d MiB at most while downloading, %d MiB while uploading", down.highest>>20, up.highest>>20)
}
