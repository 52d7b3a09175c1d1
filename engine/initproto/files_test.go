package initproto_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"secbox/engine/initproto"
)

// TestFilesStream: the chunks of a stream are the stream again.
func TestFilesStream(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("0123456789"), 20_000)
	var frames []byte
	w := initproto.ChunkWriter(func(chunk []byte) error {
		if len(chunk) > initproto.MaxChunk {
			t.Errorf("a chunk of %d bytes", len(chunk))
		}
		frames = initproto.Append(frames, initproto.TypeFiles, chunk)
		return nil
	})
	if n, err := w.Write(content); n != len(content) || err != nil {
		t.Fatal(n, err)
	}
	frames = initproto.Append(frames, initproto.TypeFilesEnd, nil)
	frames = initproto.Append(frames, initproto.TypeKill, nil)
	r := initproto.NewReader(iotest.HalfReader(bytes.NewReader(frames)), initproto.ToInit)
	_, first, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(initproto.NewFilesReader(first, r))
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if kind, _, err := r.Next(); kind != initproto.TypeKill || err != nil {
		t.Errorf("after the stream comes %q, %v", kind, err)
	}
}

// TestBrokenFilesStream: another frame and the end of the frames are errors.
func TestBrokenFilesStream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		frames []byte
		want   error
	}{
		"no end":        {nil, io.ErrUnexpectedEOF},
		"another frame": {initproto.Append(nil, initproto.TypeKill, nil), initproto.ErrProtocol},
	} {
		r := initproto.NewFilesReader([]byte("first"), initproto.NewReader(bytes.NewReader(c.frames), initproto.ToInit))
		if got, err := io.ReadAll(r); string(got) != "first" || !errors.Is(err, c.want) {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	sent := errors.New("not sent")
	if _, err := initproto.ChunkWriter(func([]byte) error { return sent }).Write([]byte("x")); !errors.Is(err, sent) {
		t.Error(err)
	}
}
