package initproto

import (
	"bytes"
	"fmt"
	"io"
)

// FilesReader is the stream of the files frames, from the first one on. It ends with files-end; any
// other frame is an ErrProtocol.
type FilesReader struct {
	frames *Reader
	chunk  []byte
	ended  bool
}

// NewFilesReader makes a FilesReader of the frames after the first one, whose payload is given.
func NewFilesReader(first []byte, frames *Reader) *FilesReader {
	return &FilesReader{frames: frames, chunk: bytes.Clone(first)}
}

// Read implements io.Reader.
func (r *FilesReader) Read(p []byte) (int, error) {
	for len(r.chunk) == 0 && !r.ended {
		t, payload, err := r.frames.Next()
		switch {
		case err != nil:
			return 0, noEOF(err)
		case t == TypeFiles:
			r.chunk = payload // until the next call
		case t == TypeFilesEnd:
			r.ended = true
		default:
			return 0, fmt.Errorf("%w: a frame of type %q among files", ErrProtocol, byte(t))
		}
	}
	if len(r.chunk) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.chunk)
	r.chunk = r.chunk[n:]
	return n, nil
}

// ChunkWriter sends what is written to it in chunks of at most MaxChunk bytes.
type ChunkWriter func(chunk []byte) error

// Write implements io.Writer.
func (w ChunkWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), MaxChunk)
		if err := w(rest[:n]); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(p), nil
}
