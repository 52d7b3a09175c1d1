package record_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"secbox/audit"
	"secbox/fault"
	"secbox/runner/lifecycle"
	"secbox/sandbox"
	"secbox/sandbox/record"
)

// TestChangeIsOnRecord: the row is open before the file changes, and has who, path and digests, and
// no content.
func TestChangeIsOnRecord(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(*testing.T) audit.Store{"sqlite": onSQLite, "postgres": onPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var told []sandbox.Change
			f := setUp(t, store(t), func(c *record.Config) { c.Changed = func(c sandbox.Change) { told = append(told, c) } })
			ctx := sandbox.WithRequest(t.Context(), sandbox.Request{RequestedBy: "token"})
			c := sandbox.Change{
				User: user, Tool: "files.write", Path: sandbox.Root + "/a.txt",
				Digests: sandbox.Digests{Before: sandbox.Absent, After: "434728"},
			}
			id, err := f.Change(ctx, c, func(ctx context.Context, at sandbox.Location) (sandbox.Digests, error) {
				if row := f.only(); row.Status != audit.Running || !slices.Equal(row.Args, []string{c.Path}) || row.SHA256Before != c.Before ||
					row.SHA256After != c.After {
					t.Errorf("before the change: %+v", row)
				}
				_, err := f.ReplaceFile(ctx, c.Path, strings.NewReader("hunter2"), c.Before, at.User)
				return sandbox.Digests{After: "f52fbd", Size: 7}, err
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(told) != 1 || told[0].Path != c.Path || told[0].User != c.User {
				t.Errorf("told of %+v", told)
			}
			row := f.only()
			if row.ExecID != id || row.Kind != audit.KindChange || row.SHA256Before != sandbox.Absent || row.SHA256After != "f52fbd" ||
				row.SizeAfter == nil || *row.SizeAfter != 7 ||
				row.Status != audit.Succeeded || row.Cmd != "files.write" || row.RequestedBy != "token" || row.UserID != "user" ||
				row.ProjectID != "agent~user" ||
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

// TestFailedChangeIsOnRecord: with the reason, and with the digests that were expected.
func TestFailedChangeIsOnRecord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		status audit.Status
		reason audit.Reason
	}{
		"changed":        {fault.New(fault.FileChanged, "it was changed"), audit.Rejected, audit.InputRefused},
		"a condition":    {fault.New(fault.PreconditionFailed, "no"), audit.Rejected, audit.InputRefused},
		"too large":      {fault.New(fault.FileTooLarge, "no"), audit.Rejected, audit.InputRefused},
		"a path":         {&fs.PathError{Op: "write", Path: "x", Err: fs.ErrPermission}, audit.Rejected, audit.InputRefused},
		"a wrong field":  {fault.BadField("Repr-Digest", "no"), audit.Rejected, audit.InputRefused},
		"cut off":        {fault.Wrap(fault.InvalidRequest, io.ErrUnexpectedEOF, "cut off"), audit.Canceled, audit.ReasonCanceled},
		"slow":           {fault.New(fault.BodyTooSlow, "slow"), audit.Canceled, audit.ReasonCanceled},
		"full":           {fault.New(fault.DiskFull, "full"), audit.Errored, audit.DiskLimit},
		"unknown":        {fault.New(fault.OutcomeUnknown, "perhaps"), audit.Lost, audit.OutcomeUnknown},
		"disconnected":   {fault.New(fault.RunnerOffline, "off"), audit.Errored, audit.RunnerOffline},
		"the connection": {fault.Wrap(fault.UpstreamFailed, io.ErrUnexpectedEOF, "of Feishu"), audit.Errored, audit.StartFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t, onSQLite(t))
			change := sandbox.Change{User: user, Tool: "files.edit", Path: sandbox.Root + "/a.txt", Digests: sandbox.Digests{Before: "1", After: "2"}}
			id, err := f.Change(t.Context(), change, func(context.Context, sandbox.Location) (sandbox.Digests, error) {
				return sandbox.Digests{Before: "3"}, c.err
			})
			if !errors.Is(err, c.err) && (fault.CodeOf(err) != fault.CodeOf(c.err) || fault.From(err).ExecID != id) {
				t.Errorf("%s %v", id, err)
			}
			row := f.only()
			if row.Status != c.status || row.ErrorReason != c.reason || row.Detail == "" || row.SHA256Before != "3" || row.SHA256After != "2" ||
				row.EndedAt.IsZero() {
				t.Errorf("%+v", row)
			}
		})
	}
}

// TestSentBytesAreOnRecord: with their number and digest, also if the transfer broke.
func TestSentBytesAreOnRecord(t *testing.T) {
	t.Parallel()
	for detail, failed := range map[string]error{"3 bytes were sent": nil, "of Feishu; 3 bytes were sent": fault.New(fault.UpstreamFailed, "of Feishu")} {
		f := setUp(t, onSQLite(t))
		_, err := f.Change(t.Context(), sandbox.Change{User: user, Tool: "feishu.upload", Path: sandbox.Root + "/a.txt"},
			func(context.Context, sandbox.Location) (sandbox.Digests, error) {
				return sandbox.Digests{Before: "ba7816", Sent: 3}, failed
			})
		if fault.CodeOf(err) != fault.CodeOf(failed) {
			t.Error(err)
		}
		if row := f.only(); row.Detail != detail || row.SHA256Before != "ba7816" || row.StartedAt.IsZero() {
			t.Errorf("%+v", row)
		}
	}
}

// TestCanceledChange: a change that is canceled by the id of its row ends as canceled, whatever
// error that causes.
func TestCanceledChange(t *testing.T) {
	t.Parallel()
	f := setUp(t, onSQLite(t))
	_, err := f.Change(t.Context(), sandbox.Change{User: user, Tool: "uploadSandboxFile", Path: sandbox.Root + "/a.txt"},
		func(ctx context.Context, _ sandbox.Location) (sandbox.Digests, error) {
			if !f.Cancel(t.Context(), f.only().ExecID) {
				t.Error("the change is not in progress")
			}
			<-ctx.Done()
			return sandbox.Digests{}, fault.Wrap(fault.InvalidRequest, io.ErrUnexpectedEOF, "cut off")
		})
	if row := f.only(); err == nil || row.Status != audit.Canceled || row.ErrorReason != audit.ReasonCanceled || row.Detail != "canceled by request" {
		t.Errorf("%v %+v", err, row)
	}
}

// TestTransferIsOnRecord: with where the content comes from, because the digests are not known
// before. A refusal of the other service is a failure.
func TestTransferIsOnRecord(t *testing.T) {
	t.Parallel()
	f := setUp(t, onSQLite(t))
	c := sandbox.Change{User: user, Tool: "feishu.download", Path: sandbox.Root + "/a.txt", Args: []string{"from", "om_1"}}
	_, err := f.Change(t.Context(), c, func(context.Context, sandbox.Location) (sandbox.Digests, error) {
		return sandbox.Digests{}, fault.New(fault.UpstreamFailed, "refused with code 1")
	})
	row := f.only()
	if !fault.Is(err, fault.UpstreamFailed) || !slices.Equal(row.Args, []string{c.Path, "from", "om_1"}) || !row.Status.Final() ||
		row.Status == audit.Succeeded || row.Detail != "refused with code 1" {
		t.Errorf("%v %+v", err, row)
	}
}

// TestNoChangeWithoutARow: nothing changes if the row cannot be opened.
func TestNoChangeWithoutARow(t *testing.T) {
	t.Parallel()
	f := setUp(t, onSQLite(t), func(c *record.Config) { c.Log = noLog{c.Log} })
	_, err := f.Change(t.Context(), sandbox.Change{User: user, Tool: "files.write", Path: sandbox.Root + "/a.txt"},
		func(context.Context, sandbox.Location) (sandbox.Digests, error) {
			t.Error("it was changed")
			return sandbox.Digests{}, nil
		})
	if !errors.Is(err, errNoLog) {
		t.Error(err)
	}
}

// noLog is a log whose database refuses new rows.
type noLog struct{ lifecycle.Log }

var errNoLog = errors.New("no row")

func (noLog) Open(context.Context, audit.Record) (*audit.Record, error) { return nil, errNoLog }
