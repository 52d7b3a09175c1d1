// Package visible is what api and console do alike: what a caller may read of execs and skills,
// artifacts as an archive, administrative events in pages, holds. It must not know routes or the
// form of answers.
package visible

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"secbox/access/tokens"
	"secbox/api/gate"
	"secbox/api/problem"
	"secbox/audit"
	"secbox/audit/retention"
	"secbox/fault"
	"secbox/runner"
)

// History reads audit records; see audit.Log.
type History interface {
	Get(ctx context.Context, execID string) (audit.Record, error)
	List(ctx context.Context, f audit.Filter, after *audit.Cursor, limit int) (items []audit.Record, next *audit.Cursor, err error)
	Task(ctx context.Context, taskID, requestedBy string) (audit.Task, error)
}

// Commands searches in the commands of records; see audit.Log.
type Commands interface {
	Search(ctx context.Context, f audit.Filter, after *audit.Cursor, most int, each func(audit.Record) bool) (next *audit.Cursor, err error)
}

// Tombstones tells what retention removed.
type Tombstones interface {
	Tombstones(ctx context.Context, execIDs []string) ([]retention.Tombstone, error)
}

// Tokens has the names of tokens.
type Tokens interface {
	// Names leaves out unknown ids.
	Names(ctx context.Context, ids []string) (map[string]string, error)
}

// Downloads records downloads of files of other clients' execs; see admin.Downloads.
type Downloads interface {
	// Record must succeed before the first byte is sent. It takes the actor from ctx.
	Record(ctx context.Context, execID, what, path string) error

	// RecordSearch must succeed before lines of output are sent: the streams by the ids of execs.
	RecordSearch(ctx context.Context, text string, execs map[string][]string) error
}

// Activity counts execs by hour; see audit.Activity. Its counts are of one token when requestedBy
// is not empty.
type Activity interface {
	Recent(ctx context.Context, n int, requestedBy string) (audit.Recent, error)
}

// Execs is safe for concurrent use.
type Execs struct {
	History    History
	Tombstones Tombstones
	Tokens     Tokens
	Downloads  Downloads
	Activity   Activity // of Recent
	Commands   Commands // of Search
}

// Get returns the record of an exec. An exec that the caller may not see looks like an unknown one:
// fault.UnknownExec. One that retention removed is fault.RemovedByRetention.
func (e Execs) Get(ctx context.Context, caller tokens.Token, execID string) (audit.Record, error) {
	unknown := fault.New(fault.UnknownExec, "there is no exec %s that you may see", problem.Clip(execID))
	id, ok := canonicalID(execID)
	if !ok {
		return audit.Record{}, unknown
	}
	rec, err := e.History.Get(ctx, id)
	switch {
	case fault.Is(err, fault.UnknownExec):
		if err := e.Removed(ctx, caller, id); err != nil {
			return audit.Record{}, err
		}
		return audit.Record{}, unknown
	case err != nil:
		return audit.Record{}, err
	case !gate.MaySee(caller, rec):
		return audit.Record{}, unknown
	}
	return rec, nil
}

// List returns the records of History.List that the caller may see: a worker only its own.
func (e Execs) List(ctx context.Context, caller tokens.Token, f audit.Filter, after *audit.Cursor, limit int) ([]audit.Record,
	*audit.Cursor, error,
) {
	if !Own(caller, &f) {
		return nil, nil, nil
	}
	return e.History.List(ctx, f, after, limit)
}

// Search calls each for records of Commands.Search that the caller may see.
func (e Execs) Search(ctx context.Context, caller tokens.Token, f audit.Filter, after *audit.Cursor, most int,
	each func(audit.Record) bool,
) (next *audit.Cursor, err error) {
	if !Own(caller, &f) {
		return nil, nil
	}
	return e.Commands.Search(ctx, f, after, most, each)
}

// Own narrows a filter to what the caller may see: a worker only its own execs. It returns false if
// the filter wants the execs of another token.
func Own(caller tokens.Token, f *audit.Filter) bool {
	if caller.Role != tokens.Worker {
		return true
	}
	if f.RequestedBy != "" && f.RequestedBy != caller.ID {
		return false
	}
	f.RequestedBy = caller.ID
	return true
}

// Task counts the execs of a task that the caller may see; fault.UnknownExec if there is none.
func (e Execs) Task(ctx context.Context, caller tokens.Token, taskID string) (audit.Task, error) {
	only := ""
	if caller.Role == tokens.Worker {
		only = caller.ID
	}
	task, err := e.History.Task(ctx, taskID, only)
	if err == nil && len(task.Statuses) == 0 {
		err = fault.New(fault.UnknownExec, "there is no exec of the task %q that you may see; requests name it as task_ref.task_id",
			problem.Clip(taskID))
	}
	return task, err
}

// Recent counts the execs of the newest n hours that the caller may see, and lists the slowest of
// them.
func (e Execs) Recent(ctx context.Context, caller tokens.Token, n int) (audit.Recent, error) {
	only := ""
	if caller.Role == tokens.Worker {
		only = caller.ID
	}
	return e.Activity.Recent(ctx, n, only)
}

// Near is how many execs of a project Neighbour looks at for a worker, whose own may be rare among
// them.
const Near = 100

// lists is how many lists Neighbour reads. It looks at a bounded number of records in each.
const lists = 5

// Neighbour returns the id of the exec before another one in its project, or after it, of those
// that the caller may see; empty if there is none, and for a worker if it is not among the Near
// nearest ones.
func (e Execs) Neighbour(ctx context.Context, caller tokens.Token, rec audit.Record, after bool) (string, error) {
	limit := 1
	if caller.Role == tokens.Worker {
		limit = Near
	}
	f := audit.Filter{ProjectID: rec.ProjectID, Kind: rec.Kind, Summary: true, OldestFirst: after}
	at := &audit.Cursor{CreatedAt: rec.CreatedAt, ExecID: rec.ExecID}
	for range lists {
		rows, next, err := e.History.List(ctx, f, at, limit)
		for _, r := range rows {
			if gate.MaySee(caller, r) {
				return r.ExecID, err
			}
		}
		if err != nil || next == nil || len(rows) > 0 {
			return "", err
		}
		at = next // records of another kind are between
	}
	return "", nil
}

// Names returns the names of the tokens that requested execs, by id. A worker gets its own name
// only.
func (e Execs) Names(ctx context.Context, caller tokens.Token, ids ...string) (map[string]string, error) {
	if caller.Role == tokens.Worker {
		return map[string]string{caller.ID: caller.Name}, nil
	}
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = slices.DeleteFunc(slices.Compact(ids), func(id string) bool { return id == runner.Tokenless })
	return e.Tokens.Names(ctx, ids)
}

// Removed returns fault.RemovedByRetention if the exec was removed and the caller might have seen
// it; nil if not.
func (e Execs) Removed(ctx context.Context, caller tokens.Token, execID string) error {
	tombs, err := e.Tombstones.Tombstones(ctx, []string{execID})
	if err != nil {
		return err
	}
	for _, t := range tombs {
		if t.Part == retention.Records && (caller.Role != tokens.Worker || t.RequestedBy == caller.ID) {
			return t.Removed()
		}
	}
	return nil
}

// UnlessRemoved returns an error about files of an exec, or fault.RemovedByRetention if they were
// removed.
func (e Execs) UnlessRemoved(ctx context.Context, rec audit.Record, err error) error {
	if err == nil || fault.Is(err, fault.ArtifactsPending) {
		return err
	}
	tombs, tombErr := e.Tombstones.Tombstones(ctx, []string{rec.ExecID})
	if tombErr != nil || len(tombs) == 0 {
		return err
	}
	return tombs[len(tombs)-1].Removed() // the record's, if both are gone
}

// ArtifactsRemoved returns when the artifacts of execs were removed, by exec.
func (e Execs) ArtifactsRemoved(ctx context.Context, execIDs ...string) (map[string]time.Time, error) {
	if len(execIDs) == 0 {
		return nil, nil
	}
	tombs, err := e.Tombstones.Tombstones(ctx, execIDs)
	at := map[string]time.Time{}
	for _, t := range tombs {
		if t.Part == retention.Artifacts {
			at[t.ExecID] = t.RemovedAt.UTC()
		}
	}
	return at, err
}

// RecordDownload records that the caller gets a file of another client's exec. If it fails, nothing
// may be sent. Execs of the caller itself need no event, so that workers never wait for one.
func (e Execs) RecordDownload(ctx context.Context, caller tokens.Token, rec audit.Record, what, path string) error {
	if caller.ID == rec.RequestedBy {
		return nil
	}
	return e.Downloads.Record(ctx, rec.ExecID, what, path)
}

// RecordSearch records that the caller is shown lines of output that have the text: of the streams
// of these execs, by their ids. If it fails, nothing may be sent.
func (e Execs) RecordSearch(ctx context.Context, caller tokens.Token, text string, execs []audit.Record,
	streams map[string][]string,
) error {
	others := map[string][]string{}
	for _, rec := range execs {
		if caller.ID != rec.RequestedBy && len(streams[rec.ExecID]) > 0 {
			others[rec.ExecID] = streams[rec.ExecID]
		}
	}
	if len(others) == 0 {
		return nil
	}
	return e.Downloads.RecordSearch(ctx, text, others)
}

// canonicalID returns an exec id in the form that records have, or false if s is not an exec id.
func canonicalID(s string) (string, bool) {
	id, err := uuid.Parse(s)
	if err != nil || len(s) != 36 {
		return "", false
	}
	return id.String(), true
}
