package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"secbox/api/inflight"
)

// brokenPeers are other nodes that answer nothing.
type brokenPeers struct {
	Peers
	memory *inflight.Quota
	held   float64 // bytes, at the last request
}

var errBroken = errors.New("broken")

func (p *brokenPeers) Forward(http.ResponseWriter, *http.Request, string) error {
	p.held = p.memory.Bytes()
	return errBroken
}

// TestForwardsGiveMemoryBack: a stream may forward its request as often as it likes, because only
// one counts at a time.
func TestForwardsGiveMemoryBack(t *testing.T) {
	t.Parallel()
	memory := inflight.NewMemory(1<<30, forwardPrice)
	share, err := memory.Enter("token", 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &brokenPeers{memory: memory}
	s := &Server{cfg: Config{Peers: p}}
	for range 3 {
		err := s.forward(&call{memory: share, peer: "a"}, httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody), "b")
		if !errors.Is(err, errBroken) || p.held != forwardPrice || memory.Bytes() != 0 {
			t.Fatalf("%v; %v bytes counted during the request, %v after it", err, p.held, memory.Bytes())
		}
	}
}
