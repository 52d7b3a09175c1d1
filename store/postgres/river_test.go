package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/audit"
	"secbox/store/postgres"
)

// enqueue queues an asynchronous exec.
func enqueue(t *testing.T, db *postgres.DB, id string, limit int) error {
	t.Helper()
	out, err := db.Audit().Enqueue(t.Context(), []audit.Waiting{{
		Record: audit.Record{ExecID: id, Status: audit.Queued, CreatedAt: time.Now(), RequestedBy: "tok", Async: true, Priority: audit.Normal},
		Job:    audit.Job{ExpiresAt: time.Now().Add(time.Hour), Sealed: []byte{1}},
	}}, audit.JobLimits{Waiting: limit, WaitingPerToken: limit, Bytes: 1 << 20, BytesPerToken: 1 << 20})
	if err == nil {
		err = out[0].Err
	}
	return err
}

// logged is a log that may be written and read at once.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// carry runs the carrier of a database until the end of the test.
func carry(t *testing.T, db *postgres.DB, answer func(context.Context)) *logged {
	t.Helper()
	log := &logged{}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { db.Carrier().Carry(ctx, answer, slog.New(slog.NewTextHandler(log, nil))) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return log
}

// TestCarry: a ring is heard by a node that is not busy with another, and none is inserted for an
// exec that was refused.
func TestCarry(t *testing.T) {
	t.Parallel()
	address := cluster.Migrated(t)
	db, other := open(t, address), open(t, address)
	heard := make(chan string, 10)
	busy := make(chan struct{})
	log := carry(t, db, func(ctx context.Context) {
		heard <- "n1"
		select {
		case <-busy:
		case <-ctx.Done():
		}
	})
	for i := range 2 {
		if err := enqueue(t, db, fmt.Sprint("a", i), 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := enqueue(t, db, "refused", 2); err == nil {
		t.Fatal("the queue was not full")
	}
	if got := <-heard; got != "n1" {
		t.Error(got)
	}
	carry(t, other, func(context.Context) { heard <- "n2" })
	if got := <-heard; got != "n2" {
		t.Errorf("%s hears the second ring, while n1 is busy", got)
	}
	close(busy)
	if err := enqueue(t, other, "b", 9); err != nil {
		t.Fatal(err)
	}
	<-heard
	select {
	case got := <-heard:
		t.Errorf("%s heard one too many", got)
	default:
	}
	if strings.Contains(log.String(), "pooler") {
		t.Errorf("notifications arrive, and the log says %s", log)
	}
}

// TestCarryThroughPooler: a pooler is named, with what its mode costs, and rings are heard.
func TestCarryThroughPooler(t *testing.T) {
	t.Parallel()
	for mode, deaf := range map[string]bool{"session": false, "transaction": true} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := open(t, cluster.Pooler(t, mode)(cluster.Migrated(t)))
			heard := make(chan struct{}, 10)
			log := carry(t, db, func(context.Context) { heard <- struct{}{} })
			if err := enqueue(t, db, "a", 9); err != nil {
				t.Fatal(err)
			}
			<-heard
			if !strings.Contains(log.String(), "a connection pooler answers at database_url") ||
				strings.Contains(log.String(), "let the pooler pool sessions") != deaf {
				t.Errorf("the log says %q", log)
			}
		})
	}
}
