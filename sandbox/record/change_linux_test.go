package record_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"secbox/audit"
	"secbox/fault"
	"secbox/lifecycle"
	"secbox/sandbox"
	"secbox/sandbox/record"
)

// TestChangeIsOnRecord: the row is open before the file changes, and has who, path and digests, and no content.
func TestChangeIsOnRecord(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(*testing.T) audit.Store{"sqlite": onSQLite, "postgres": onPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t, store(t))
			ctx := sandbox.WithRequest(t.Context(), sandbox.Request{RequestedBy: "token"})
			c := sandbox.Change{User: user, Tool: "files.write", Path: sandbox.Root + "/a.txt", Before: sandbox.Absent, After: "434728"}
			id, err := f.Change(ctx, c, func(ctx context.Context, user sandbox.User) error {
				if row := f.only(); row.Status != audit.Running || !slices.Equal(row.Args, []string{c.Path, c.Before, c.After}) {
					t.Errorf("before the change: %+v", row)
				}
				_, err := f.ReplaceFile(ctx, c.Path, strings.NewReader("hunter2"), c.Before, user)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			row := f.only()
			if row.ExecID != id || row.Status != audit.Succeeded || row.Cmd != "files.write" || row.RequestedBy != "token" || row.UserID != "user" || row.ProjectID != "agent~user" ||
				row.Backend != sandbox.None || row.ExitCode != nil || row.EndedAt.IsZero() {
				t.Errorf("%+v", row)
			}
			events, err := f.log.Events(t.Context(), id)
			if err != nil || !slices.Equal(f.kinds(id), []audit.EventKind{audit.EventCreated, audit.EventStarted, audit.EventEnded}) {
				t.Errorf("%v %v", f.kinds(id), err)
			}
			for _, e := range events {
				if bytes.Contains(e.Data, []byte("hunter2")) {
					t.Errorf("the content is on record: %s", e.Data)
				}
			}
		})
	}
}

func TestRefusedChangeIsOnRecord(t *testing.T) {
	t.Parallel()
	f := setUp(t, onSQLite(t))
	c := sandbox.Change{User: user, Tool: "files.edit", Path: sandbox.Root + "/a.txt", Before: "1", After: "2"}
	id, err := f.Change(t.Context(), c, func(context.Context, sandbox.User) error { return fault.New(fault.FileChanged, "it was changed") })
	if !fault.Is(err, fault.FileChanged) || fault.From(err).ExecID != id {
		t.Errorf("%s %v", id, err)
	}
	if row := f.only(); row.Status != audit.Rejected || row.ErrorReason != audit.InputRefused || row.Detail != "it was changed" || !row.StartedAt.IsZero() {
		t.Errorf("%+v", row)
	}
}

// TestTransferIsOnRecord: with where the content comes from, because the digests are not known before. A refusal of the other service is a failure.
func TestTransferIsOnRecord(t *testing.T) {
	t.Parallel()
	f := setUp(t, onSQLite(t))
	c := sandbox.Change{User: user, Tool: "feishu.download", Path: sandbox.Root + "/a.txt", Args: []string{"from", "om_1"}}
	_, err := f.Change(t.Context(), c, func(context.Context, sandbox.User) error {
		return fault.New(fault.UpstreamFailed, "refused with code 1")
	})
	row := f.only()
	if !fault.Is(err, fault.UpstreamFailed) || !slices.Equal(row.Args, []string{c.Path, "from", "om_1"}) || !row.Status.Final() || row.Status == audit.Succeeded || row.Detail != "refused with code 1" {
		t.Errorf("%v %+v", err, row)
	}
}

// TestNoChangeWithoutARow: nothing changes if the row cannot be opened.
func TestNoChangeWithoutARow(t *testing.T) {
	t.Parallel()
	f := setUp(t, onSQLite(t), func(c *record.Config) { c.Log = noLog{c.Log} })
	_, err := f.Change(t.Context(), sandbox.Change{User: user, Tool: "files.write", Path: sandbox.Root + "/a.txt"}, func(context.Context, sandbox.User) error {
		t.Error("it was changed")
		return nil
	})
	if !errors.Is(err, errNoLog) {
		t.Error(err)
	}
}

// noLog is a log whose database refuses new rows.
type noLog struct{ lifecycle.Log }

var errNoLog = errors.New("no row")

func (noLog) Open(context.Context, audit.Record) (*audit.Record, error) { return nil, errNoLog }
