package network

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"secbox/audit"
)

// tunnel carries bytes both ways until both sides are done, or one fails, and closes l. What the
// job sends first must not name another host than the tunnel's; the host may send first.
func (w *Way) tunnel(c *clientConn, l *link) {
	shared := false // l is one of the connections that all requests use
	defer func() {
		if !shared {
			_ = l.Close()
		}
	}()
	var spared atomic.Bool
	back := make(chan int64, 1)
	go func() {
		n, err := copyBytes(c, l)
		if spared.Load() && n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			back <- 0
			return
		}
		if err != nil {
			abort(c.Conn)
		} else {
			closeWrite(c.Conn)
		}
		back <- n
	}()
	l.mu.Lock()
	asked := target{port: uint16(l.row.Port)}
	asked, _ = parseTarget(l.row.Host, asked.port)
	l.mu.Unlock()
	kind, refused := w.look(c, asked)
	if kind == contentTLS && refused == nil && len(w.credentials(asked)) == 0 {
		refused = passHellos(l, c, asked)
	}
	switch {
	case refused != nil:
		if kind == contentTLS {
			_, _ = c.Write(alertAccessDenied)
		}
		l.finish(refused.end, refused.sentence)
		abort(c.Conn)
	case kind == contentHTTP, kind == contentTLS && len(w.credentials(asked)) > 0:
		spared.Store(true)
		_ = l.SetReadDeadline(time.Unix(1, 0))
		if <-back != 0 {
			return // the host has sent something that no request has asked for
		}
		_ = l.SetReadDeadline(time.Time{})
		if kind == contentTLS {
			shared = w.endTLS(c, l, asked)
			return
		}
		inner := &clientConn{Conn: c.Conn, r: c.r, target: &asked, spare: &atomic.Pointer[link]{}}
		inner.spare.Store(l)
		w.serveHTTP(inner)
		shared = inner.spare.Swap(nil) == nil
		return
	default:
		_, err := copyBytes(l, c)
		if errors.Is(err, errRequest) {
			l.finish(audit.ConnProtocol, errRequest.Error())
			abort(c.Conn)
		} else if err != nil {
			_ = l.Close()
		} else {
			_ = l.CloseWrite()
		}
	}
	<-back
}

// closeWrite ends one direction of a connection of the job, whose Close does just that.
func closeWrite(conn net.Conn) {
	for {
		c, wrapped := conn.(*clientConn)
		if !wrapped {
			_ = conn.Close()
			return
		}
		conn = c.Conn
	}
}

// copyBytes copies until the end of from.
func copyBytes(to io.Writer, from io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 32<<10))
}

// content is what a job sends first in a tunnel.
type content int

const (
	contentOther content = iota
	contentTLS
	contentHTTP
)

// look waits for the first bytes of the job and checks what can be checked, without taking bytes
// from c.
func (w *Way) look(c *clientConn, asked target) (content, *refusal) {
	first, err := c.r.Peek(1)
	if err != nil {
		return contentOther, nil // it only listens, or has ended
	}
	if tlsFirst <= first[0] && first[0] <= tlsLast {
		return contentTLS, w.checkHello(c, asked)
	}
	if first[0]&0x80 != 0 {
		if b, _ := c.r.Peek(4); len(b) == 4 && b[2] == 1 && (b[3] == 3 || b[3] == 0) {
			return contentTLS, refuse(audit.ConnProtocol, "the TLS connection begins as SSL 2 does, without a name; turn that off in the client")
		}
	}
	line, whole := firstLine(c.r)
	switch {
	case bytes.HasPrefix(line, []byte("PRI * HTTP/2")):
		return contentHTTP, refuse(audit.ConnProtocol, "HTTP/2 without TLS is not supported; use HTTP/1.1")
	case isRequest(line):
		return contentHTTP, nil
	case len(line) >= maxLine:
		return contentHTTP, refuse(audit.ConnProtocol, "the first line is longer than %d bytes", maxLine)
	case !whole:
		c.rest = &lineGuard{r: c.r}
	}
	return contentOther, nil
}

// maxLine is the longest first line of a request, in bytes.
const maxLine = 4 << 10

// spaces are what some servers skip before a request line, and in it.
const spaces = " \t\v\f\r\n\x1c\x1d\x1e\x1f"

// isRequest reports whether a line has a version of HTTP, as the first line of a request does.
func isRequest(line []byte) bool { return bytes.Contains(bytes.ToUpper(line), []byte("HTTP/")) }

// firstLine returns the first line that is not empty, without taking it, or what there is of it:
// whole is false if more may come. It waits for the rest of what looks like a request.
func firstLine(r *bufio.Reader) (line []byte, whole bool) {
	for n := 1; n <= maxLine; n++ {
		all, err := r.Peek(n)
		if more := min(r.Buffered(), maxLine); more > n {
			n = more
			all, _ = r.Peek(n)
		}
		line = bytes.TrimLeft(all, spaces)
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			return line[:i], true
		}
		switch {
		case err != nil:
			return line, true
		case len(line) > 0 && !likeMethod(line):
			return line, slices.ContainsFunc(line, control)
		}
	}
	return line, true
}

// methods are the usual ones of HTTP.
var methods = []string{
	"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PRI", "PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE",
	"LOCK", "UNLOCK", "REPORT", "SEARCH",
}

// likeMethod reports whether a text is, or may become, a method and more.
func likeMethod(text []byte) bool {
	i := bytes.IndexAny(text, spaces)
	complete, word := i >= 0, text
	if complete {
		word = text[:i]
	}
	return slices.ContainsFunc(methods, func(m string) bool {
		return strings.EqualFold(m, string(word)) || !complete && len(word) < len(m) && strings.EqualFold(m[:len(word)], string(word))
	})
}

// lineGuard passes on what the job sends, and fails before the version of HTTP in the first line:
// so a request that came in pieces names no host.
type lineGuard struct {
	r    io.Reader
	line []byte
	over bool
}

var errRequest = errors.New("an HTTP request came in pieces, by an unusual method")

func (g *lineGuard) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	if g.over || n == 0 {
		return n, err
	}
	g.line = append(g.line, p[:n]...)
	line, _, ended := bytes.Cut(bytes.TrimLeft(g.line, spaces), []byte("\n"))
	switch {
	case isRequest(line), len(line) >= maxLine && !slices.ContainsFunc(line, control):
		return 0, errRequest
	case ended && len(line) > 0, slices.ContainsFunc(bytes.TrimRight(line, "\r"), control):
		g.over, g.line = true, nil
	}
	return n, err
}

func control(b byte) bool { return b < ' ' && strings.IndexByte(spaces, b) < 0 || b == 0x7f }

// TLS, RFC 8446 and the encrypted ClientHello.
const (
	tlsFirst      = 20 // the types of records: some servers skip other types before a ClientHello
	tlsLast       = 24
	tlsHandshake  = 22
	tlsData       = 23
	clientHello   = 1
	maxRecord     = 16<<10 + 256
	maxHelloBytes = 64 << 10

	extensionEarlyData = 42
	extensionECH       = 0xfe0d
)

// alertAccessDenied is a fatal alert, after which clients end the connection.
var alertAccessDenied = []byte{21, 3, 3, 0, 2, 2, 49}

// checkHello checks the ClientHello that c begins with, without taking bytes from c.
func (w *Way) checkHello(c *clientConn, asked target) *refusal {
	hello, raw, err := readHello(c.r)
	c.r = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(raw), c.r), 4<<10)
	if err != nil {
		return errUnreadable
	}
	return judge(hello, asked)
}

var errUnreadable = refuse(audit.ConnProtocol, "the beginning of the TLS connection cannot be read")

// judge compares the name in a ClientHello with the host that was asked for.
func judge(hello *tls.ClientHelloInfo, asked target) *refusal {
	if slices.Contains(hello.Extensions, extensionECH) {
		return refuse(audit.ConnMismatch, "the TLS connection hides its name (encrypted ClientHello); turn that off in the client")
	}
	if asked.name == "" && hello.ServerName == "" {
		return nil
	}
	name, ok := parseTarget(hello.ServerName, asked.port)
	if !ok || name.host() != asked.host() {
		return refuse(audit.ConnMismatch, "the TLS connection names %q, and the job asked for %q", cut(hello.ServerName), asked.host())
	}
	return nil
}

// passHellos passes on the job's side of a TLS handshake as long as a ClientHello may come: the
// host can ask for a second one (HelloRetryRequest), and may take its name. A job that sends early
// data is watched to the end, since the host may skip all of it.
func passHellos(to io.Writer, from io.Reader, asked target) *refusal {
	early := false
	var records, message []byte // of a handshake message that is not complete
	for {
		record := make([]byte, 5)
		if _, err := io.ReadFull(from, record); err != nil {
			return nil // the end
		}
		kind := record[0]
		size := int(binary.BigEndian.Uint16(record[3:]))
		interleaved := len(message) > 0 && kind != tlsHandshake
		if kind < tlsFirst || kind > tlsLast || size > maxRecord || len(records) > maxHelloBytes || interleaved {
			return errUnreadable
		}
		record = append(record, make([]byte, size)...)
		if _, err := io.ReadFull(from, record[5:]); err != nil {
			return nil
		}
		records = append(records, record...)
		done := kind == tlsData && !early
		if kind == tlsHandshake {
			message = append(message, record[5:]...)
			switch {
			case len(message) < 4:
				continue
			case message[0] != clientHello || message[1] > 2: // another message, or an encrypted one: hosts take up to 128 KiB
				done = true
			case len(message) < 4+int(binary.BigEndian.Uint32(message)&0xffffff):
				continue
			default:
				hello, _, err := readHello(bytes.NewReader(records))
				if err != nil || len(message) > 4+int(binary.BigEndian.Uint32(message)&0xffffff) {
					return errUnreadable
				}
				if refused := judge(hello, asked); refused != nil {
					return refused
				}
				early = early || slices.Contains(hello.Extensions, extensionEarlyData)
				done = !slices.ContainsFunc(hello.SupportedVersions, func(v uint16) bool { return v > tls.VersionTLS12 }) // no second one
			}
		}
		if _, err := to.Write(records); err != nil || done {
			return nil
		}
		records, message = nil, nil
	}
}

var errHello = errors.New("read")

// readHello reads a ClientHello with crypto/tls, and returns the bytes that were taken.
func readHello(r io.Reader) (hello *tls.ClientHelloInfo, raw []byte, err error) {
	taken := &takenBytes{r: r}
	server := tls.Server(taken, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		hello = info
		return nil, errHello
	}})
	err = server.Handshake()
	if hello != nil {
		err = nil
	}
	return hello, taken.raw, err
}

// takenBytes is a connection that keeps what was read from it, and sends nothing.
type takenBytes struct {
	net.Conn
	r   io.Reader
	raw []byte
}

func (t *takenBytes) Read(p []byte) (int, error) {
	if len(t.raw) >= maxHelloBytes {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := t.r.Read(p)
	t.raw = append(t.raw, p[:n]...)
	return n, err
}

func (*takenBytes) Write(p []byte) (int, error) { return len(p), nil }

func (*takenBytes) Close() error { return nil }

func (*takenBytes) SetDeadline(time.Time) error { return nil }

func (*takenBytes) SetWriteDeadline(time.Time) error { return nil }
