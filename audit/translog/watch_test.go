package translog_test

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"secbox/audit"
	"secbox/audit/translog"
	"secbox/store/sqlite"
	"secbox/store/storetest/sqlitetest"
)

const origin = "secbox/test"

// installation is a database with its log.
type installation struct {
	t     *testing.T
	db    *sqlite.DB
	key   translog.Key
	log   translog.Log
	q     *translog.Sequencer
	execs int
}

// install makes an installation with an empty log. Two with the same key are two histories of one
// log.
func install(t *testing.T, key translog.Key) *installation {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlitetest.Migrated(t, filepath.Join(t.TempDir(), "secbox.db")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return reopen(t, db, key)
}

// reopen returns the installation of a database after a restart.
func reopen(t *testing.T, db *sqlite.DB, key translog.Key) *installation {
	in := &installation{t: t, db: db, key: key, log: translog.Log{Store: db.TransparencyLog(), Events: db.AdminEvents()}}
	in.q = translog.NewSequencer(translog.SequencerConfig{
		Store: in.log.Store, Origin: origin, Holder: "n", Logger: slog.New(slog.DiscardHandler),
		Key: func(bool) (translog.Key, error) { return in.readKey() },
	})
	return in
}

func newKey(t *testing.T) translog.Key {
	t.Helper()
	key, err := translog.MakeKey(filepath.Join(t.TempDir(), translog.KeyFile), origin)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// readKey returns the key; the zero key is a missing file.
func (in *installation) readKey() (translog.Key, error) {
	if in.key.Verifier == "" {
		return translog.Key{}, fs.ErrNotExist
	}
	return in.key, nil
}

func (in *installation) verifier() (note.Verifier, error) {
	key, err := in.readKey()
	if err != nil {
		return nil, err
	}
	return note.NewVerifier(key.Verifier)
}

// exec records n execs, each with two events, and signs a checkpoint.
func (in *installation) exec(n int, what string) audit.Record {
	in.t.Helper()
	var r audit.Record
	for range n {
		in.execs++
		r = audit.Record{
			ExecID: fmt.Sprintf("%s%d", what, in.execs), Status: audit.Running, CreatedAt: time.Now(), StartedAt: time.Now(), ProjectID: "p",
			Kind: audit.KindExec,
		}
		if _, err := in.db.Audit().Open(in.t.Context(), r); err != nil {
			in.t.Fatal(err)
		}
	}
	for {
		n, err := in.q.Step(in.t.Context())
		if err != nil {
			in.t.Fatal(err)
		}
		if n == 0 {
			return r
		}
	}
}

// stops reports whether the sequencer takes no event any more.
func (in *installation) stops() bool {
	in.t.Helper()
	if _, err := in.db.Audit().Open(in.t.Context(), audit.Record{ExecID: "after", Status: audit.Running, CreatedAt: time.Now()}); err != nil {
		in.t.Fatal(err)
	}
	_, err := in.q.Step(in.t.Context())
	return err != nil && in.q.Halted() != nil
}

// rolledBack is a store that shows an older state, as a restored backup does.
type rolledBack struct {
	translog.Store
	state translog.State
}

func (r rolledBack) State(context.Context) (translog.State, error) { return r.state, nil }

func (in *installation) state() translog.State {
	in.t.Helper()
	state, err := in.log.Store.State(in.t.Context())
	if err != nil {
		in.t.Fatal(err)
	}
	return state
}
