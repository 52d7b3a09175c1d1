package retention_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"secbox/audit/retention"
)

// database is a retention.Store in memory, whose clock is the bubble's. Everything in it is due but
// what the fields say.
type database struct {
	retention.Store // panics: holds and tombstones are the SQL's

	mu      sync.Mutex
	skew    time.Duration // of its clock
	clockAt time.Time
	newest  time.Time
	holder  string
	until   time.Time
	begun   time.Time
	lapsed  bool // another could have begun while a run went on
	ended   retention.Done
	execs   []exec // in the order of time
	tombs   map[string][]retention.Part
	queue   []retention.Queued
	largest int // batch
	renew   func() error
	removed func(id string) // called after each removal

	recorded []retention.Workspace // removed ones
	refuse   error                 // of their record; nil: none
	held     string                // the workspace that is held once a run has begun
}

type exec struct {
	id      string
	created time.Time
	verdict retention.Verdict // empty: by its age
	altered string
	project string
}

func (db *database) now() time.Time { return time.Now().Add(db.skew) }

func (db *database) State(context.Context) (retention.State, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	return retention.State{
		Now: db.now(), ClockAt: db.clockAt, NewestAt: db.newest, Queued: int64(len(db.queue)), Running: db.holder != "", BeganAt: db.begun,
		Done: db.ended,
	}, nil
}

func (db *database) Tick(_ context.Context, gap time.Duration, accept bool) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if now := db.now(); accept || db.clockAt.IsZero() || !db.clockAt.After(now) && now.Sub(db.clockAt) <= gap {
		db.clockAt = now
	}
	return nil
}

func (db *database) Begin(_ context.Context, holder string, lease, every time.Duration) (bool, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if now := db.now(); db.holder != "" && db.holder != holder && !db.until.Before(now) || now.Sub(db.begun) < every {
		return false, nil
	}
	db.holder, db.until, db.begun = holder, db.now().Add(lease), db.now()
	return true, nil
}

func (db *database) Renew(_ context.Context, holder string, lease time.Duration) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.renew != nil {
		if err := db.renew(); err != nil {
			return err
		}
	}
	return db.extend(holder, lease)
}

func (db *database) extend(holder string, lease time.Duration) error {
	if db.holder != holder {
		return retention.ErrLeaseLost
	}
	db.lapsed = db.lapsed || db.until.Before(db.now())
	db.until = db.now().Add(lease)
	return nil
}

func (db *database) End(_ context.Context, holder string, done retention.Done) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.holder == holder {
		db.lapsed = db.lapsed || db.until.Before(db.now())
		db.holder, db.ended = "", done
	}
	return nil
}

func (db *database) verdict(q retention.Query, x exec) retention.Verdict {
	switch {
	case slices.Contains(db.tombs[x.id], retention.Records) || slices.Contains(db.tombs[x.id], q.Part):
		return retention.Gone
	case x.verdict != "":
		return x.verdict
	case !x.created.Before(q.Before):
		return retention.Young
	}
	return retention.Due
}

func (db *database) Scan(_ context.Context, q retention.Query, after retention.Cursor, limit int) (found []retention.Found, err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, x := range db.execs {
		at := retention.Cursor{CreatedAt: x.created, ExecID: x.id}
		if cmp.Or(at.CreatedAt.Compare(after.CreatedAt), strings.Compare(at.ExecID, after.ExecID)) > 0 && x.created.Before(q.Before) && len(found) < limit &&
			!slices.Contains(db.tombs[x.id], retention.Records) {
			found = append(found, retention.Found{Cursor: at, Verdict: db.verdict(q, x), Bytes: 1})
		}
	}
	return found, nil
}

func (db *database) Judge(_ context.Context, q retention.Query, ids []string) (j retention.Judged, err error) {
	for _, x := range db.execs {
		if !slices.Contains(ids, x.id) || db.verdict(q, x) != retention.Due {
			continue
		}
		if x.altered != "" {
			j.Altered = append(j.Altered, retention.Altered{ExecID: x.id, Why: x.altered})
		} else {
			j.Due = append(j.Due, x.id)
		}
	}
	return j, nil
}

func (db *database) Remove(ctx context.Context, q retention.Query, ids []string, holder string, lease time.Duration) (retention.Judged, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := db.extend(holder, lease); err != nil {
		return retention.Judged{}, err
	}
	db.largest = max(db.largest, len(ids))
	j, err := db.Judge(ctx, q, ids)
	for _, id := range j.Due {
		if len(db.tombs[id]) == 0 {
			db.queue = append(db.queue, retention.Queued{ExecID: id, QueuedAt: db.now()})
		}
		db.tombs[id] = append(db.tombs[id], q.Part)
		if db.removed != nil {
			db.removed(id)
		}
	}
	return j, err
}

func (db *database) Queued(_ context.Context, after retention.Queued, limit int) ([]retention.Queued, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(db.queue), func(q retention.Queued) bool {
		return cmp.Or(q.QueuedAt.Compare(after.QueuedAt), strings.Compare(q.ExecID, after.ExecID)) <= 0
	})
	slices.SortFunc(rest, func(a, b retention.Queued) int {
		return cmp.Or(a.QueuedAt.Compare(b.QueuedAt), strings.Compare(a.ExecID, b.ExecID))
	})
	return rest[:min(limit, len(rest))], nil
}

func (db *database) Dequeue(_ context.Context, ids []string) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.queue = slices.DeleteFunc(db.queue, func(q retention.Queued) bool { return slices.Contains(ids, q.ExecID) })
	return nil
}

func (db *database) ProjectDue(_ context.Context, project, _ string, before time.Time) (bool, error) {
	for _, x := range db.execs {
		if x.project == project && (x.verdict != "" || !x.created.Before(before)) {
			return false, nil
		}
	}
	return true, nil
}

func (db *database) RemoveProject(context.Context, string, string, int64) (bool, error) {
	return false, nil
}

func (db *database) RemoveWorkspace(ctx context.Context, w retention.Workspace, holder string, lease time.Duration) (bool, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := cmp.Or(db.refuse, db.extend(holder, lease)); err != nil {
		return false, err
	}
	due, err := db.ProjectDue(ctx, w.ProjectID, w.UserID, w.Before)
	if due = due && w.ProjectID != db.held; due {
		db.recorded = append(db.recorded, w)
	}
	return due, err
}

// files are the projects' files.
type files struct {
	remove func(ctx context.Context, execID string) error // nil: at once
	gone   []string                                       // execs whose artifacts were removed
	unused map[string]int64                               // by project
	idle   map[string]int64                               // the workspaces of users that were not used for long, and their sizes
}

func (f *files) RemoveArtifacts(ctx context.Context, _, execID string) error {
	if f.remove != nil {
		if err := f.remove(ctx, execID); err != nil {
			return err
		}
	}
	f.gone = append(f.gone, execID)
	return ctx.Err()
}

func (f *files) Projects(visit func(projectID, userID string) error) error {
	for id := range f.unused {
		if err := visit(id, ""); err != nil {
			return err
		}
	}
	for id := range f.idle {
		if err := visit(id, "user"); err != nil {
			return err
		}
	}
	return nil
}

func (f *files) RemoveUnused(_ context.Context, projectID string, _ time.Time, dry bool) (int64, error) {
	bytes := f.unused[projectID]
	if !dry {
		f.unused[projectID] = 0
	}
	return bytes, nil
}

func (f *files) RemoveWorkspace(_ context.Context, projectID string, _ time.Time, commit func(int64) (bool, error)) (int64, bool, error) {
	bytes, found := f.idle[projectID]
	if !found || commit == nil {
		return bytes, found, nil
	}
	removed, err := commit(bytes)
	if removed {
		delete(f.idle, projectID)
	}
	return bytes, removed, err
}
