package ports

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"time"
)

// Pace is how long a client may hold a connection without taking part in it.
type Pace struct {
	Stall time.Duration // without reading what is sent to it
	Idle  time.Duration // of an upgraded connection, without a byte either way
}

// ClientPace is the Pace of all clients.
var ClientPace = Pace{Stall: 2 * time.Minute, Idle: 10 * time.Minute}

// Paced returns a writer whose client has a Pace. An upgraded connection also ends with ctx: a
// proxy that waits for the client does not notice that the other side has ended.
func Paced(ctx context.Context, w http.ResponseWriter, p Pace) http.ResponseWriter {
	return &pacedWriter{ResponseWriter: w, ctx: ctx, conn: http.NewResponseController(w), pace: p}
}

type pacedWriter struct {
	http.ResponseWriter
	ctx  context.Context
	conn *http.ResponseController
	pace Pace
}

func (w *pacedWriter) Write(p []byte) (int, error) {
	_ = w.conn.SetWriteDeadline(time.Now().Add(w.pace.Stall))
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker.
func (w *pacedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := w.conn.Hijack()
	if err != nil {
		return nil, nil, err
	}
	paced := &pacedConn{Conn: conn, pace: w.pace}
	context.AfterFunc(w.ctx, func() { _ = conn.Close() })
	buffered.Writer.Reset(paced)
	return paced, buffered, nil
}

type pacedConn struct {
	net.Conn
	pace Pace
}

func (c *pacedConn) Read(p []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(c.pace.Idle))
	return c.Conn.Read(p)
}

func (c *pacedConn) Write(p []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(c.pace.Idle))
	_ = c.SetWriteDeadline(time.Now().Add(c.pace.Stall))
	return c.Conn.Write(p)
}

// CloseWrite ends the direction to the client.
func (c *pacedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
