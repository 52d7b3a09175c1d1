package inflight

import (
	"runtime"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/internal/admission"
)

// TestTurns: a token that has many requests waits, and one that has none does not.
func TestTurns(t *testing.T) {
	t.Parallel()
	turns := NewTurns(2, 4, admission.Share{AtOnce: 1, Queue: 1})
	leave, err := turns.Enter(t.Context(), "greedy")
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error)
	go func() {
		leave, err := turns.Enter(t.Context(), "greedy")
		if err == nil {
			leave()
		}
		second <- err
	}()
	for waiting, _ := turns.gate.Load(); waiting == 0; waiting, _ = turns.gate.Load() {
		runtime.Gosched()
	}
	_, err = turns.Enter(t.Context(), "greedy")
	if !fault.Is(err, fault.ServerBusy) || fault.From(err).RetryAfter <= 0 || !strings.Contains(err.Error(), "token limit") {
		t.Errorf("a third of the token: %v", err)
	}
	other, err := turns.Enter(t.Context(), "other")
	if err != nil {
		t.Errorf("another token: %v", err)
	}
	other()
	leave()
	if err := <-second; err != nil {
		t.Errorf("the second of the token: %v", err)
	}
}
