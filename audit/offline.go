package audit

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"secbox/fault"
)

// SpooledFile is a file of a spool, for commands beside the server.
type SpooledFile struct {
	Name   string
	Record Record // the result; zero if Err is set
	Err    error  // why no record can be read from it
}

// ReadSpool returns the files of a spool, in the order of their names. A directory that does not
// exist holds none. The server that owns it may run.
func ReadSpool(dir string) ([]SpooledFile, error) {
	waiting, damaged, err := (&spool{dir: dir}).load()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var files []SpooledFile
	for id, r := range waiting {
		files = append(files, SpooledFile{Name: spoolFile(id), Record: r})
	}
	for name, reason := range damaged {
		files = append(files, SpooledFile{Name: name, Err: reason})
	}
	slices.SortFunc(files, func(a, b SpooledFile) int { return strings.Compare(a.Name, b.Name) })
	return files, err
}

// LookAt returns what a spool holds. Whether the database refuses it is not known outside of the
// server.
func LookAt(dir string) (Unstored, error) {
	files, err := ReadSpool(dir)
	waiting, damaged := map[string]*result{}, map[string]error{}
	for _, f := range files {
		if f.Err != nil {
			damaged[f.Name] = f.Err
		} else {
			waiting[f.Record.ExecID] = &result{Record: f.Record}
		}
	}
	return unstored(waiting, damaged), err
}

// StoreSpooled ends the row of a spooled result now, and removes its file. If the database does not
// have the exec, as after the restore of a backup, it gets the whole record. The error is the
// database's.
func StoreSpooled(ctx context.Context, store Store, dir string, f SpooledFile) (status Status, err error) {
	r := f.Record
	status, err = closeFinally(ctx, store, r)
	if fault.Is(err, fault.UnknownExec) {
		opened := r
		opened.Status, opened.EndedAt = Running, time.Time{}
		opened.ExitCode, opened.ErrorReason, opened.Detail, opened.DurationMS = nil, "", "", 0
		if r.StartedAt.IsZero() {
			opened.Status = Queued
		}
		taken, openErr := store.Open(ctx, opened)
		switch {
		case openErr != nil:
			return "", openErr
		case taken != nil:
			return "", fault.New(fault.IdempotencyMismatch, "the database does not have exec %s, and exec %s has its idempotency key",
				r.ExecID, taken.ExecID)
		}
		status, err = closeFinally(ctx, store, r)
	}
	if err != nil {
		return "", err
	}
	return status, (&spool{dir: dir}).remove(r.ExecID)
}

// DiscardSpooled ends the row of an exec as lost, if it is open, and removes the exec's file from
// the spool.
func DiscardSpooled(ctx context.Context, store Store, dir string, f SpooledFile) error {
	stored, err := store.Get(ctx, spooledID(f.Name))
	switch {
	case fault.Is(err, fault.UnknownExec):
	case err != nil:
		return err
	case !stored.Status.Final():
		stored.Status, stored.ErrorReason = Lost, NodeLost
		stored.Detail = "the result was in the node's state dir and could not be stored; an operator has ended this record"
		if stored.EndedAt = stored.StartedAt; stored.EndedAt.IsZero() {
			stored.EndedAt = stored.CreatedAt
		}
		if _, err := store.Close(ctx, stored); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(dir, f.Name)) // a damaged one may be a directory
}
