package inflight

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"secbox/fault"
)

// timedOut is a connection and its body, which comes too slowly. net/http ends the request's
// context at the first error of a read.
type timedOut struct {
	http.ResponseWriter
	end     func()
	stopped chan struct{}
}

func (c timedOut) SetReadDeadline(at time.Time) error {
	if at.Equal(time.Unix(1, 0)) {
		close(c.stopped)
	}
	return nil
}

func (c timedOut) Read([]byte) (int, error) {
	c.end()
	<-c.stopped
	return 0, os.ErrDeadlineExceeded
}

func (timedOut) Close() error { return nil }

// TestSlowBodyEndsTheContext: the end of the context at the deadline does not hide that the body
// was too slow.
func TestSlowBodyEndsTheContext(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	conn := timedOut{httptest.NewRecorder(), end, make(chan struct{})}
	r := httptest.NewRequest(http.MethodPut, "/", conn)
	b := NewBody(conn, r, nil, func() error { return nil }, false, 0)
	defer b.EndWith(ctx)()
	if _, err := b.Read(make([]byte, 1)); !fault.Is(err, fault.BodyTooSlow) {
		t.Errorf("%v, want %s", err, fault.BodyTooSlow)
	}
}
