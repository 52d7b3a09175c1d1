package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/fault"
)

// TestLookUpsDoNotWaitForLists: however many lists are asked for, a token can be checked.
func TestLookUpsDoNotWaitForLists(t *testing.T) {
	t.Parallel()
	db := open(t, filepath.Join(t.TempDir(), "x.db"))
	entered, release := make(chan struct{}, 10), make(chan struct{})
	var lists sync.WaitGroup
	for range 6 {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lists.Go(func() {
			if err := db.HoldList(ctx, entered, release); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		select {
		case <-entered:
		case <-time.After(100 * time.Millisecond): // it has to wait for the others
			cancel()
		}
	}
	if _, _, err := db.Tokens().ByHash(t.Context(), tokens.Hash{1}); !fault.Is(err, fault.UnknownToken) {
		t.Errorf("a token cannot be looked up while lists are read: %v", err)
	}
	close(release)
	lists.Wait()
}
