//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"secbox/audit/translog"
	coreapi "secbox/server"
	"secbox/settings"
	"secbox/store"
	"secbox/store/storetest/planprobe"
)

// fillCommand is the argument for which this program only fills a database, for measurements by hand and to try lists of a large installation.
const fillCommand = "fill"

// fillBatch is how many events get into the log at once: more than a core-api's, since nothing else waits for the database.
const fillBatch = 4096

// fill puts execs into a new database, with their events, which get into its transparency log.
func fill(ctx context.Context, args []string, log io.Writer) (err error) {
	f := flag.NewFlagSet("bench fill", flag.ContinueOnError)
	f.SetOutput(log)
	stateDir := f.String("state-dir", "", "gets the log's key, and secbox.db without --database-url")
	url := f.String("database-url", os.Getenv("DATABASE_URL"), "an empty PostgreSQL database")
	rows := f.Int("rows", 1_000_000, "execs of the last 60 days")
	logged := f.Int("logged", 0, "only the newest of them get events, and entries of the log; 0: all")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *stateDir == "" || *rows < 1 || *logged < 0 || *logged > *rows {
		return errors.New("give --state-dir, --rows of at least 1, and --logged of at most --rows")
	}
	if err := os.MkdirAll(*stateDir, 0o700); err != nil {
		return err
	}
	db, err := store.Open(ctx, *url, *stateDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return fillHistories(ctx, db, *stateDir, *rows, cmp.Or(*logged, *rows), log)
}

// fillHistories puts execs of the last 60 days into an empty database, and the events of the newest into its log, whose key gets into the state directory.
func fillHistories(ctx context.Context, db store.Database, stateDir string, rows, logged int, log io.Writer) error {
	probe, ok := db.(planprobe.Database)
	if !ok {
		return fmt.Errorf("a %s cannot be filled", db.Kind())
	}
	begun := time.Now()
	if err := planprobe.FillHistories(ctx, probe, rows, logged, begun); err != nil {
		return err
	}
	fmt.Fprintf(log, "%d execs after %.0f s\n", rows, time.Since(begun).Seconds())
	installation, err := db.Audit().InstallationID(ctx)
	if err != nil {
		return err
	}
	origin := translog.Origin(installation)
	dated := &datedStore{Store: db.TransparencyLog()}
	q := translog.NewSequencer(translog.SequencerConfig{
		Store: dated, Origin: origin, Holder: "bench", Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return dated.newest },
		Key: func(begun bool) (translog.Key, error) {
			return coreapi.LogKey(settings.Settings{StateDir: stateDir}, origin, begun)
		},
	})
	for entries, reported := 0, time.Now(); ; {
		n, err := q.Step(ctx)
		if err != nil {
			return err
		}
		if entries += n; n == 0 || time.Since(reported) > 10*time.Second {
			fmt.Fprintf(log, "%d entries of the log after %.0f s\n", entries, time.Since(begun).Seconds())
			reported = time.Now()
		}
		if n == 0 {
			return nil
		}
	}
}

// datedStore returns more events at once, and remembers the time of the newest: they get into the log at that time, as they would have.
type datedStore struct {
	translog.Store
	newest time.Time
}

func (s *datedStore) Unlogged(ctx context.Context, floors translog.Floors, _ int) (translog.Unlogged, error) {
	found, err := s.Store.Unlogged(ctx, floors, fillBatch)
	for _, e := range found.Events {
		if e.At.After(s.newest) {
			s.newest = e.At
		}
	}
	return found, err
}
