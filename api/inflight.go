package api

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"time"

	"github.com/labstack/echo/v4"

	"secbox/fault"
)

// The prices of a request in bytes of memory. They are those of the worst case, measured with the decoder that reads bodies.
const (
	// bytePrice is for one byte of a body: the decoder's buffer, which doubles, the string that comes out, and the content made of that.
	bytePrice = 4
	// memberPrice and objectPrice are for the values of JSON beside their bytes: a list's element or a member, and an object.
	memberPrice = 64
	objectPrice = 384
	// contentPrice is for one byte of a file that is shown: the content, the answer's text, and the answer encoded.
	contentPrice = 4
)

// slowest is the pace at which clients must send bodies and take answers, in bytes per second. A client may rest beside that, for Bounds.Rest.
const slowest = 16 << 10

// newMemory bounds what bodies and answers take.
func newMemory(b Bounds) *quota {
	q := newQuota("requests in memory", share{math.MaxInt, b.Memory}, share{math.MaxInt, b.MemoryPerToken})
	q.code, q.setting = fault.ServerBusy, "http.max_memory_bytes"
	return q
}

// bounded serves a request of an operation whose caller is known: what it takes in memory is counted until its answer is sent, and both its
// body and its answer must keep a pace. The paths of runners have rules of their own, since their bodies are streams.
func (s *Server) bounded(op operation, c echo.Context, next echo.HandlerFunc) error {
	if op.path == linkPath || op.path == transferPath {
		return next(c)
	}
	r, call := c.Request(), callFrom(c.Request().Context())
	var err error
	if call.memory, err = s.memory.enter(call.caller.ID, 0); err != nil {
		return err
	}
	defer call.memory.leave()
	if op.path != mcpPath { // whose streams have no end
		w := c.Response().Writer
		c.Response().Writer = &pressed{ResponseWriter: w, conn: http.NewResponseController(w), memory: call.memory, pacer: newPacer(s.cfg.Bounds.Rest)}
	}
	if r.Body == nil || r.Body == http.NoBody {
		return next(c)
	}
	b := &body{ReadCloser: r.Body, conn: http.NewResponseController(c.Response().Writer), header: c.Response().Header(), pacer: newPacer(s.cfg.Bounds.Rest)}
	switch {
	case op.takes("multipart/form-data"): // goes to the disk, by a quota of its own
	case op.takes("application/json"):
		b.memory, b.json = call.memory, &shape{}
	default:
		b.memory = call.memory
	}
	r.Body, call.body = b, b
	if err := next(c); err == nil || b.err == nil {
		return err
	}
	return b.err // whatever the reader made of it
}

// decoded gives back what the decoder took, once only the contents of a body are kept.
func (c *call) decoded() {
	if c.body != nil {
		c.memory.force(-(bytePrice - 1) * c.body.bytes)
	}
}

// pacer says how long the other end may take. Only the time counts that is spent waiting for it.
type pacer struct {
	most  time.Duration // that it may rest at once
	left  time.Duration // of that
	began time.Time
}

func newPacer(rest time.Duration) pacer { return pacer{most: rest, left: rest} }

// begin is the deadline for so many bytes more.
func (p *pacer) begin(bytes int) time.Time {
	p.began = time.Now()
	return p.began.Add(p.left + paced(bytes))
}

// end is told how many bytes have moved since.
func (p *pacer) end(bytes int) { p.left = min(p.most, p.left+paced(bytes)-time.Since(p.began)) }

func paced(bytes int) time.Duration { return time.Duration(bytes) * time.Second / slowest }

// body is a request's body that must come at a pace and has its price in memory. Its errors are those of package fault, but for io.EOF and
// those of a connection.
type body struct {
	io.ReadCloser
	conn   *http.ResponseController
	header http.Header // of the answer
	pacer
	memory *stay  // nil: the body is not kept
	json   *shape // nil: the body is no JSON
	bytes  int64
	err    error
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	// Where a deadline cannot be set, there is no connection that could be slow: a test's recorder.
	_ = b.conn.SetReadDeadline(b.begin(0))
	n, err := b.ReadCloser.Read(p)
	b.end(n)
	b.bytes += int64(n)
	if err == nil || errors.Is(err, io.EOF) {
		if e := b.pay(p[:n]); e != nil {
			return 0, b.fail(e)
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		_ = b.conn.SetReadDeadline(time.Time{}) // from here on the server only waits for the client to hang up
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, b.fail(fault.New(fault.BodyTooSlow, "the body came to a halt, or at less than %d bytes per second; send it again, faster", slowest))
	}
	return n, err
}

// fail ends the body, and the connection after the answer: the rest of the body is not read.
func (b *body) fail(err error) error {
	b.err = err
	b.header.Set("Connection", "close")
	return err
}

func (b *body) pay(p []byte) error {
	if b.memory == nil || len(p) == 0 {
		return nil
	}
	price := bytePrice * int64(len(p))
	if b.json != nil {
		price += b.json.price(p)
	}
	if b.memory.bytes+price > b.memory.q.each.bytes {
		return fault.New(fault.BodyTooLarge, "the body takes more than the %d bytes of memory that one token may take (http.max_memory_bytes_per_token): send less at once",
			b.memory.q.each.bytes)
	}
	return b.memory.grow(price)
}

// shape follows a JSON text, in pieces, to tell what its values take. It judges nothing: the text may be no JSON.
type shape struct{ inString, escaped bool }

// price is for the next piece of the text.
func (s *shape) price(p []byte) (price int64) {
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
				price += memberPrice
			}
			i++
		}
	}
	return price
}

// pieceBytes is how much of an answer is written under one deadline. What is written in larger pieces is counted as long as that takes.
const pieceBytes = 64 << 10

// pressed writes an answer that must be taken at a pace.
type pressed struct {
	http.ResponseWriter
	conn *http.ResponseController
	pacer
	memory *stay
}

func (p *pressed) Write(b []byte) (written int, err error) {
	if len(b) > pieceBytes {
		p.memory.force(int64(len(b)))
		defer p.memory.force(-int64(len(b)))
	}
	for {
		piece := b[written:min(len(b), written+pieceBytes)]
		// Where a deadline cannot be set, there is no connection that could be slow: a test's recorder.
		_ = p.conn.SetWriteDeadline(p.begin(len(piece)))
		n, err := p.ResponseWriter.Write(piece)
		p.end(n)
		written += n
		if err != nil || written == len(b) {
			return written, err
		}
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (p *pressed) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// begins sets the deadlines of a request's connection, before it is known who asks: the one of the request before goes, and a body that is
// never asked for is not waited for either.
func (s *Server) begins(w http.ResponseWriter, r *http.Request) {
	conn := http.NewResponseController(w)
	_ = conn.SetWriteDeadline(time.Time{})
	if r.ContentLength != 0 {
		_ = conn.SetReadDeadline(time.Now().Add(s.cfg.Bounds.Rest))
	}
}

// shows counts so many bytes of a file that an answer is made of; fault.ServerBusy when they have no room.
func (c *call) shows(bytes int) error { return c.takes(contentPrice * int64(bytes)) }

// takes counts bytes before they are taken; fault.ServerBusy.
func (c *call) takes(bytes int64) error {
	if c.memory == nil {
		return nil
	}
	return c.memory.grow(bytes)
}
