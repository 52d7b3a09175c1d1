package remote

import (
	"errors"
	"io"
	"sync"

	"secbox/fault"
	"secbox/sandbox"
)

// replayBytes is how much of a reader that cannot be rewound is kept.
const replayBytes = 16 << 20

// replay reads a reader in pieces and keeps the last of them, so that they can be read again.
type replay struct {
	r     io.Reader
	again io.ReaderAt // the same from its beginning, when that is possible
	base  int64       // where in again the content begins

	kept  [][]byte // full pieces, but for the last of all
	first int64    // the offset of kept[0]
	read  int64    // how far r was read
	ended bool     // r has no more
	at    int      // the index in kept of the piece that next gives
	skip  int      // bytes of it to leave out
}

var pieces = sync.Pool{New: func() any { return new([transferBuffer]byte) }}

// errSource is in the chain when the caller's reader has failed, or gives too much.
var errSource = errors.New("the content could not be read")

type readError struct{ err error }

func (e *readError) Error() string        { return e.err.Error() }
func (e *readError) Unwrap() error        { return e.err }
func (e *readError) Is(target error) bool { return target == errSource }

// sourceError is the error as the caller gets it: the reader's own.
func sourceError(err error) error {
	var e *readError
	if errors.As(err, &e) {
		return e.err
	}
	return err
}

func newReplay(r io.Reader) *replay {
	p := &replay{r: r}
	at, ok := r.(io.ReaderAt)
	seeker, ok2 := r.(io.Seeker)
	if ok && ok2 {
		if base, err := seeker.Seek(0, io.SeekCurrent); err == nil { // a pipe is an *os.File too, and cannot
			p.again, p.base = at, base
		}
	}
	return p
}

// upTo reads until it is known whether there are more than n bytes: all of them, or nil.
func (p *replay) upTo(n int64) ([]byte, error) {
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
		return &readError{err}
	}
	if n == 0 {
		pieces.Put(buf)
		return nil
	}
	if p.read += int64(n); p.read > sandbox.MaxFileBytes {
		pieces.Put(buf)
		return &readError{fault.New(fault.FileTooLarge, "a file has at most %d bytes", int64(sandbox.MaxFileBytes))}
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

// next is the piece that comes next, and its offset; io.EOF after the last. It is good until the next call.
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

// seek goes to an offset that was read before; false when it is not kept.
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
	if p.at < len(p.kept) && p.skip == len(p.kept[p.at]) { // the end of the last piece, which is not full
		p.at, p.skip = p.at+1, 0
	}
	return true
}

// free gives the pieces back.
func (p *replay) free() {
	for _, piece := range p.kept {
		pieces.Put((*[transferBuffer]byte)(piece[:transferBuffer]))
	}
	p.kept = nil
}
