package inflight

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"secbox/fault"
)

// Prices in bytes of memory, measured with the JSON decoder in the worst case.
const (
	// BytePrice is the price of one byte of a body: the decoder's buffer, which doubles, the
	// decoded string, and the content made of it.
	BytePrice = 4

	elementPrice = 64  // of an element of a list or a member of an object, beside its bytes
	objectPrice  = 384 // of an object
)

// Body is the body of a request. It must arrive at minRate, and Read counts its price before it
// returns the bytes. Its errors are faults, except io.EOF and errors of the connection.
type Body struct {
	io.ReadCloser
	conn   *http.ResponseController
	header http.Header // of the answer
	pace   pace
	memory *Reservation // nil: the body is not kept in memory
	valid  func() error
	json   *jsonPrice // nil: the body is not JSON
	bytes  int64
	err    error

	stopped atomic.Pointer[error] // why, if the context of EndWith has ended
}

// NewBody wraps r.Body. A nil memory leaves the body uncounted. rest is how long the client may
// pause beside minRate. An error of valid, which is called after each piece, ends the body.
func NewBody(w http.ResponseWriter, r *http.Request, memory *Reservation, valid func() error, isJSON bool, rest time.Duration) *Body {
	b := &Body{
		ReadCloser: r.Body, conn: http.NewResponseController(w), header: w.Header(), pace: newPace(rest), memory: memory,
		valid: valid,
	}
	if isJSON {
		b.json = &jsonPrice{}
	}
	return b
}

// Err returns the fault that ended the body, if any: a decoder may have replaced it.
func (b *Body) Err() error { return b.err }

// Decoded gives back the decoder's memory, once only the decoded content is kept.
func (b *Body) Decoded() {
	if b.memory != nil {
		b.memory.Force(-(BytePrice - 1) * b.bytes)
	}
}

// EndWith ends a Read in progress and all later ones when ctx ends, until release is called.
func (b *Body) EndWith(ctx context.Context) (release func()) {
	stop := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		b.stopped.Store(&cause)
		_ = b.conn.SetReadDeadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() { // the deadline may be set after the request's end, so no other request may use the connection
			b.header.Set("Connection", "close")
		}
	}
}

// Abandon leaves the rest of the body unread: the connection ends after an answer of success, for
// which net/http otherwise waits to read some more.
func (b *Body) Abandon() {
	b.header.Set("Connection", "close")
	_ = b.conn.SetReadDeadline(time.Unix(1, 0))
}

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	deadline := b.pace.begin(0)
	_ = b.conn.SetReadDeadline(deadline)         // fails only in tests, without a connection
	if cause := b.stopped.Load(); cause != nil { // loaded after the deadline was set, which EndWith sets after it stores
		return 0, b.fail(stopped(*cause))
	}
	n, err := b.ReadCloser.Read(p)
	b.pace.end(n)
	b.bytes += int64(n)
	if err == nil || errors.Is(err, io.EOF) {
		if e := b.valid(); e != nil {
			return 0, b.fail(e)
		}
		if e := b.pay(p[:n]); e != nil {
			return 0, b.fail(e)
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		_ = b.conn.SetReadDeadline(time.Time{}) // from here on the server only waits for the client to hang up
	// net/http ends the context at the deadline, too
	case errors.Is(err, os.ErrDeadlineExceeded) && b.stopped.Load() != nil && time.Now().Before(deadline):
		return 0, b.fail(stopped(*b.stopped.Load()))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, b.fail(fault.New(fault.BodyTooSlow,
			"the body stopped, or arrived at less than %d bytes per second; send it again, faster", minRate))
	}
	return n, err
}

func stopped(cause error) error {
	if known, ok := errors.AsType[*fault.Error](cause); ok {
		return known
	}
	return fault.Wrap(fault.InvalidRequest, errors.Join(io.ErrUnexpectedEOF, cause),
		"the request was ended before all of its body was read")
}

// fail ends the body. The rest of it stays unread, so the connection ends after the answer.
func (b *Body) fail(err error) error {
	b.err = err
	b.header.Set("Connection", "close")
	return err
}

func (b *Body) pay(p []byte) error {
	if b.memory == nil || len(p) == 0 {
		return nil
	}
	price := BytePrice * int64(len(p))
	if b.json != nil {
		price += b.json.of(p)
	}
	// A body that can never fit is not a reason to try again.
	if limit := b.memory.quota.perToken.Bytes; b.memory.bytes+price > limit {
		return fault.New(fault.BodyTooLarge, "the body needs more than the %d bytes of memory that one token may use "+
			"(http.max_memory_bytes_per_token): send less at once", limit)
	}
	return b.memory.Grow(price)
}

// jsonPrice scans a JSON text in pieces for the memory that its values take. It does not validate
// the text.
type jsonPrice struct{ inString, escaped bool }

// of returns the price of the next piece of the text.
func (s *jsonPrice) of(p []byte) (price int64) {
	for i := 0; i < len(p); {
		switch {
		case s.escaped:
			s.escaped = false
			i++
		case s.inString:
			n := bytes.IndexAny(p[i:], `"\`)
			if n < 0 {
				return price
			}
			i += n + 1
			s.escaped, s.inString = p[i-1] == '\\', p[i-1] != '"'
		default:
			switch p[i] {
			case '"':
				s.inString = true
			case '{':
				price += objectPrice
			case '[', ',', ':':
				price += elementPrice
			}
			i++
		}
	}
	return price
}
