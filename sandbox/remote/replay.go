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

// aheadPieces is how many pieces are read while the runner does not take them, so that reading and
// sending overlap.
const aheadPieces = 2

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

	failed error         // of the reader, or of its content
	ahead  chan piece    // of the goroutine of readAhead; nil: none
	quit   chan struct{} // closed to end it
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

// piece is a full piece of the content, or its last one, with the error that follows it.
type piece struct {
	buf *[transferBuffer]byte
	n   int
	err error
}

// fill reads a piece.
func fill(r io.Reader) piece {
	buf := pieces.Get().(*[transferBuffer]byte)
	n, err := io.ReadFull(r, buf[:])
	return piece{buf, n, err}
}

// fetch adds one more piece to the kept ones. It must not be called after the end.
func (p *replay) fetch() error {
	if p.failed != nil {
		return p.failed
	}
	var got piece
	if p.ahead != nil {
		got = <-p.ahead
	} else {
		got = fill(p.r)
	}
	switch {
	case errors.Is(got.err, io.EOF) || errors.Is(got.err, io.ErrUnexpectedEOF):
		p.ended = true
	case got.err != nil:
		p.failed = &markedError{got.err, errSource}
	}
	if p.failed == nil && p.read+int64(got.n) > sandbox.MaxFileBytes {
		p.failed = &markedError{fault.New(fault.FileTooLarge, "a file has at most %d bytes", int64(sandbox.MaxFileBytes)), errSource}
	}
	if got.n == 0 || p.failed != nil {
		pieces.Put(got.buf)
		return p.failed
	}
	p.read += int64(got.n)
	if len(p.kept) == replayBytes/transferBuffer {
		pieces.Put((*[transferBuffer]byte)(p.kept[0][:transferBuffer]))
		p.kept = append(p.kept[:0], p.kept[1:]...)
		p.first += transferBuffer
		p.at--
	}
	p.kept = append(p.kept, got.buf[:got.n])
	return nil
}

// readAhead starts a goroutine that uses the reader from now on, and reads some pieces more than
// were fetched.
func (p *replay) readAhead() {
	if p.ahead != nil || p.ended || p.failed != nil {
		return
	}
	ahead, quit := make(chan piece, aheadPieces), make(chan struct{})
	p.ahead, p.quit = ahead, quit
	go func(r io.Reader) {
		defer close(ahead)
		for {
			got := fill(r)
			select {
			case ahead <- got:
			case <-quit:
				pieces.Put(got.buf)
				return
			}
			if got.err != nil {
				return
			}
		}
	}(p.r)
}

// stopReading ends the goroutine of readAhead, and drops what it has read.
func (p *replay) stopReading() {
	if p.ahead == nil {
		return
	}
	close(p.quit)
	for got := range p.ahead {
		pieces.Put(got.buf)
	}
	p.ahead = nil
}

// next returns the next piece and its offset; io.EOF after the last. The piece is valid until the
// following call.
func (p *replay) next() (int64, []byte, error) {
	p.readAhead()
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

// free returns the pieces to the pool. The reader is not used afterwards.
func (p *replay) free() {
	p.stopReading()
	for _, piece := range p.kept {
		pieces.Put((*[transferBuffer]byte)(piece[:transferBuffer]))
	}
	p.kept = nil
}
