package audit

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"secbox/fault"
)

// result is the end of an exec that the store does not have.
type result struct {
	Record
	held  bool          // in memory only, because the spool could not be written
	err   error         // of the last attempt to store it; nil: there was none
	delay time.Duration // between the last attempt and the next
	next  time.Time     // of the next attempt
}

// maxDelay is the longest time between two attempts to store a result: the cause is often gone
// within seconds, and attempts for many results cost the database little.
const maxDelay = 30 * time.Second

// Unstored describes the results of execs that the database does not have.
type Unstored struct {
	Results  int // that wait, for any reason
	Refused  int // of these, the results that the database did not take when it was last asked; the others have their first turn soon
	InMemory int // of these, the results that the state dir did not take either; they end with the process
	Damaged  int // files of the spool from which no record can be read

	Oldest      time.Time // the first end of the results; zero: none waits
	ExecID      string    // of a refused result, and Reason the error's message, for people; both may be empty
	Reason      string
	DamagedFile string // name of a damaged file; may be empty
}

// Unstored returns what the database does not have yet.
func (l *Log) Unstored() Unstored {
	l.mu.Lock()
	defer l.mu.Unlock()
	return unstored(l.waiting, l.damaged)
}

func unstored(waiting map[string]*result, damaged map[string]error) Unstored {
	u := Unstored{Results: len(waiting), Damaged: len(damaged)}
	for _, id := range slices.Sorted(maps.Keys(waiting)) {
		w := waiting[id]
		if u.Oldest.IsZero() || w.EndedAt.Before(u.Oldest) {
			u.Oldest = w.EndedAt
		}
		if w.held {
			u.InMemory++
		}
		if w.err == nil {
			continue
		}
		if u.Refused++; u.ExecID == "" {
			u.ExecID, u.Reason = id, fault.From(w.err).Message
		}
	}
	if len(damaged) > 0 {
		u.DamagedFile = slices.Min(slices.Collect(maps.Keys(damaged)))
	}
	return u
}

// Spooled reports whether this node has the end of an exec and the database does not.
func (l *Log) Spooled(execID string) bool {
	_, ok := l.ending(execID)
	return ok
}

// SpooledIDs returns the execs whose results the database does not have yet, also the execs of
// damaged files.
func (l *Log) SpooledIDs() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := slices.Collect(maps.Keys(l.waiting))
	for name := range l.damaged {
		if id := spooledID(name); l.waiting[id] == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// load adds the records of the spool to the waiting results. Files that hold none stay where they
// are: the row of such an exec is not ended as lost, since its result may still be repaired.
func (l *Log) load() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting, damaged, err := l.spool.load()
	if err != nil {
		return err
	}
	for id, r := range waiting {
		if l.waiting[id] == nil {
			l.waiting[id] = &result{Record: r}
		}
	}
	for name, err := range damaged {
		if l.damaged[name] == nil {
			l.cfg.Logger.Error("a file of the audit spool holds no record that can be read; see `core-api audit spool`", "file", name,
				"err", err)
		}
	}
	l.damaged = damaged
	return nil
}

// load returns the records by exec id, and the files from which no record can be read by name.
func (s *spool) load() (waiting map[string]Record, damaged map[string]error, err error) {
	found, err := s.list()
	if err != nil {
		return nil, nil, err
	}
	waiting, damaged = map[string]Record{}, map[string]error{}
	for _, name := range found {
		r, err := s.read(name)
		switch {
		case err == nil:
			waiting[r.ExecID] = r
		case !errors.Is(err, fs.ErrNotExist): // else it was written to the database meanwhile
			damaged[name] = err
		}
	}
	return waiting, damaged, nil
}

// lookAgain reads damaged files again, which an operator may have repaired or removed.
func (l *Log) lookAgain() {
	l.mu.Lock()
	look := len(l.damaged) > 0
	l.mu.Unlock()
	if !look {
		return
	}
	if err := l.load(); err != nil {
		l.cfg.Logger.Error("cannot read the audit spool; trying again", "err", err)
	}
}

// due returns the waiting results whose time has come, in the order of their ends. It forgets
// results that an operator has removed from the spool.
func (l *Log) due() []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.cfg.Now()
	var due []Record
	for id, w := range l.waiting {
		switch {
		case w.next.After(now):
		case !w.held && !l.spool.has(id):
			l.cfg.Logger.Warn("the result of an exec was removed from the audit spool; it is not written", "exec_id", id)
			delete(l.waiting, id)
		default:
			due = append(due, w.Record)
		}
	}
	slices.SortFunc(due, func(a, b Record) int {
		return cmp.Or(a.EndedAt.Compare(b.EndedAt), strings.Compare(a.ExecID, b.ExecID))
	})
	return due
}

// tryNow makes all results due.
func (l *Log) tryNow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiting {
		w.next, w.delay = time.Time{}, 0
	}
}

// refused notes that the database does not take a result, which waits twice as long as before.
func (l *Log) refused(execID string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waiting[execID]
	if w.err == nil {
		l.cfg.Logger.Error("the database does not take the end of an exec; it is kept and tried again", "exec_id", execID, "err", err)
	}
	w.delay = min(max(2*w.delay, l.cfg.Retry), maxDelay)
	w.err, w.next = err, l.cfg.Now().Add(w.delay)
}

// settle removes a result that the database has.
func (l *Log) settle(execID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waiting[execID]
	if !w.held {
		if err := l.spool.remove(execID); err != nil {
			// The next start writes it again, which changes nothing.
			l.cfg.Logger.Warn("cannot remove a file of the audit spool that is no longer needed", "exec_id", execID, "err", err)
		}
	}
	delete(l.waiting, execID)
	if w.err == nil {
		return
	}
	l.cfg.Logger.Info("the database has taken the end of an exec that it had not taken before", "exec_id", execID)
	for _, other := range l.waiting { // which it may take now, too
		other.next, other.delay = time.Time{}, 0
	}
	l.wake()
}

// keepHeld tries to write the results in memory to the spool.
func (l *Log) keepHeld() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiting {
		if w.held && l.spool.write(w.Record) == nil {
			w.held = false
		}
	}
}
