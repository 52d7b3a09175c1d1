package remote

import (
	"errors"
	"io"
	"sync"

	"secbox/fault"
	"secbox/sandbox"
)

// replayBytes is how much of a reader without Seek is kept.
const replayBytes = 16 << 20

// replay reads a reader in pieces and keeps the last ones, so that they can be read again.
type replay struct {
	r     io.Reader
	again io.ReaderAt // r as an io.ReaderAt; nil if it is none
	base  int64       // the offset in again of the content

	kept  [][]byte // full pieces, except for the very last
	first int64    // offset of kept[0]
	read  int64    // bytes read from r
	ended bool     // r is at its end
	at    int      // index in kept of the next piece
	skip  int      // bytes of it to skip
}

var pieces = sync.Pool{New: func() any { return new([transferBuffer]byte) }}

// errSource is in the chain when the caller's reader failed, or gave too much.
var errSource = errors.New("read the content")

// markedError is an error with a mark that errors.Is finds.
type markedError struct{ err, mark error }

func (e *markedError) Error() string        { return e.err.Error() }
func (e *markedError) Unwrap() error        { return e.err }
func (e *markedError) Is(target error) bool { return target == e.mark }

// sourceError returns the reader's own error.
func sourceError(err error) error {
	if e, ok := errors.AsType[*markedError](err); ok {
		return e.err
	}
	return err
}

func newReplay(r io.Reader) *replay {
	p := &replay{r: r}
	at, ok := r.(io.ReaderAt)
	seeker, ok2 := r.(io.Seeker)
	if ok && ok2 {
		if base, err := seeker.Seek(0, io.SeekCurrent); err == nil { // a pipe is an *os.File, and cannot seek
			p.again, p.base = at, base
		}
	}
	return p
}

// readSmall returns the whole content if it has at most n bytes, else nil.
func (p *replay) readSmall(n int64) ([]byte, error) {
	for !p.ended && p.read <= n {
		if err := p.fetch(); err != nil {
			return nil, sourceError(err)
		}
	}
	if p.read > n {
		return nil, nil
	}
	all := make([]byte, 0, p.read)
	for _, piece := range p.kept {
		all = append(all, piece...)
	}
	return all, nil
}

// fetch reads one more piece.
func (p *replay) fetch() error {
	buf := pieces.Get().(*[transferBuffer]byte)
	n, err := io.ReadFull(p.r, buf[:])
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		p.ended = true
	case err != nil:
		pieces.Put(buf)
		return &markedError{err, errSource}
	}
	if n == 0 {
		pieces.Put(buf)
		return nil
	}
	if p.read += int64(n); p.read > sandbox.MaxFileBytes {
		pieces.Put(buf)
		return &markedError{fault.New(fault.FileTooLarge, "a file has at most %d bytes", int64(sandbox.MaxFileBytes)), errSource}
	}
	if len(p.kept) == replayBytes/transferBuffer {
		pieces.Put((*[transferBuffer]byte)(p.kept[0][:transferBuffer]))
		p.kept = append(p.kept[:0], p.kept[1:]...)
		p.first += transferBuffer
		p.at--
	}
	p.kept = append(p.kept, buf[:n])
	return nil
}

// next returns the next piece and its offset; io.EOF after the last. The piece is valid until the following call.
func (p *replay) next() (int64, []byte, error) {
	if p.at == len(p.kept) {
		if p.ended {
			return 0, nil, io.EOF
		}
		if err := p.fetch(); err != nil {
			return 0, nil, err
		}
		if p.at == len(p.kept) {
			return 0, nil, io.EOF
		}
	}
	at := p.first + int64(p.at)*transferBuffer + int64(p.skip)
	piece := p.kept[p.at][p.skip:]
	p.at, p.skip = p.at+1, 0
	return at, piece, nil
}

// seek goes to an offset that was read before; false if it is not kept.
func (p *replay) seek(offset int64) bool {
	switch {
	case offset > p.read:
		return false
	case offset < p.first && p.again == nil:
		return false
	case offset < p.first:
		p.free()
		p.r = io.NewSectionReader(p.again, p.base+offset, sandbox.MaxFileBytes+1-offset)
		p.first, p.read, p.ended, p.at, p.skip = offset, offset, false, 0, 0
		return true
	}
	p.at = int((offset - p.first) / transferBuffer)
	p.skip = int((offset - p.first) % transferBuffer)
	if p.at < len(p.kept) && p.skip == len(p.kept[p.at]) { // the end of the last, partial piece
		p.at, p.skip = p.at+1, 0
	}
	return true
}

// free returns the pieces to the pool.
func (p *replay) free() {
	for _, piece := range p.kept {
		pieces.Put((*[transferBuffer]byte)(piece[:transferBuffer]))
	}
	p.kept = nil
}
