package initproto_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"

	"secbox/engine/initproto"
)

// sent records frames.
type sent struct {
	mu    sync.Mutex
	stdin bytes.Buffer
	ended bool
	n     int
	more  chan struct{}
}

func (s *sent) send(t initproto.Type, payload []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stdin.Write(payload)
	s.n++
	s.ended = t == initproto.TypeStdinEnd
	s.more <- struct{}{}
	return nil
}

// TestFeedKeepsToTheWindow: no chunk more than the credit, and no credit more than was used.
func TestFeedKeepsToTheWindow(t *testing.T) {
	t.Parallel()
	s := &sent{more: make(chan struct{}, 100)}
	content := strings.Repeat("x", 6*initproto.MaxChunk)
	f := initproto.NewFeed(io.MultiReader(strings.NewReader(content)), s.send)
	if f.Credit() {
		t.Error("credit for nothing was taken")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run()
	}()
	for range initproto.StdinWindow {
		<-s.more
	}
	select {
	case <-s.more:
		t.Error("a chunk beyond the window")
	default:
	}
	for range 2 {
		if !f.Credit() {
			t.Error("credit was refused")
		}
		<-s.more
	}
	<-done
	f.Stop(nil)
	if !s.ended || s.stdin.String() != content {
		t.Errorf("%d bytes, ended %t", s.stdin.Len(), s.ended)
	}
}

// TestFeedStops: Stop does not wait for a Read, and nothing is sent after it.
func TestFeedStops(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	s := &sent{more: make(chan struct{}, 100)}
	f := initproto.NewFeed(r, s.send)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run()
	}()
	_, _ = io.WriteString(w, "a")
	<-s.more
	f.Stop(nil)
	_, _ = io.WriteString(w, "b")
	_ = w.Close()
	<-done
	if s.stdin.String() != "a" || s.ended {
		t.Errorf("%q, ended %t", s.stdin.String(), s.ended)
	}
}

// TestFeedUnblocksSend: Stop calls unblock while a frame is being sent.
func TestFeedUnblocksSend(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}), make(chan struct{})
	f := initproto.NewFeed(nil, func(initproto.Type, []byte) error {
		close(begun)
		<-release
		return errors.New("closed")
	})
	go f.Run()
	<-begun
	f.Stop(func() { close(release) })
}

func TestDecodeSignal(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{"", "\x00", "\x13", "\x0f\x0f", "\xff"} {
		if s, err := initproto.DecodeSignal([]byte(payload)); !errors.Is(err, initproto.ErrProtocol) {
			t.Errorf("%q: %v %v", payload, s, err)
		}
	}
	if s, err := initproto.DecodeSignal([]byte{15}); s != syscall.SIGTERM || err != nil {
		t.Errorf("%v %v", s, err)
	}
}
