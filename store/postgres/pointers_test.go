package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"secbox/skills"
)

// TestPinWaitsForRunningMove: a baseline has been moved by a transaction that is not committed yet.
// A user who is pinned now must not be pinned to the version before: once the move is committed,
// garbage collection may find it out of use.
func TestPinWaitsForRunningMove(t *testing.T) {
	t.Parallel()
	url := cluster.Migrated(t)
	s := open(t, url).Skills()
	before, after := strings.Repeat("a", 64), strings.Repeat("b", 64)
	for _, id := range []string{"moved", "removed", "stays"} {
		if _, err := s.Set(t.Context(), skills.PointerKey{AgentID: "a", SkillID: id}, nil, skills.PointerState{Digest: before}); err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.WithoutCancel(t.Context())
	mover, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mover.Close(ctx) })
	run := func(statement string) {
		t.Helper()
		if _, err := mover.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	run("BEGIN; UPDATE agent_skill_registry SET digest = '" + after + "' WHERE skill_id = 'moved';" +
		" DELETE FROM agent_skill_registry WHERE skill_id = 'removed'")

	type outcome struct {
		pinned skills.Pinned
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		pinned, err := s.Pin(ctx, "a", "u")
		done <- outcome{pinned, err}
	}()
	for waiting := false; !waiting; { // until the pin waits for the mover, which must come before the pin's own time is up
		if err := mover.QueryRow(ctx,
			"SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		select {
		case o := <-done:
			t.Fatalf("the pin did not wait: %+v, %v", o.pinned, o.err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	run("COMMIT")
	if o := <-done; o.err != nil || o.pinned != (skills.Pinned{First: true, Added: 2}) {
		t.Fatalf("%+v, %v", o.pinned, o.err)
	}
	pins, err := s.List(ctx, "a", "u", "", 10)
	if err != nil || len(pins) != 2 || pins[0].SkillID != "moved" || pins[0].Digest != after || pins[0].BaseDigest != after || pins[1].Digest != before {
		t.Errorf("pinned %+v, %v", pins, err)
	}
}
