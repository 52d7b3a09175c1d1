package translog

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"

	"secbox/audit/translog/checkpoint"
	"secbox/fault"
	"secbox/internal/lockfile"
	"secbox/internal/statedir"
	hostile "secbox/workspace/tree"
)

const (
	watchPoll = time.Second // between two looks at the log's state

	// anchorQuiet is after how long without a newer checkpoint the last one is appended to the
	// anchor, also before its turn.
	anchorQuiet = 10 * time.Second

	// anchorAgain is the pause after a failure: a full disk stays full for a while.
	anchorAgain = 10 * time.Second

	// anchorSlow is how long a write may take before it is a problem: a file server may never
	// answer.
	anchorSlow = 15 * time.Second

	// anchorPatience is how long the end of the server waits for a write.
	anchorPatience = 3 * time.Second
)

// AnchorConfig configures an Anchor.
type AnchorConfig struct {
	Log      Log
	Origin   string
	Dir      string // outside the database's disk
	Every    int    // append every n-th checkpoint
	Verifier func() (note.Verifier, error)
	Conflict func(*Conflict) // called when the database does not have the log of the last checkpoint in the directory
	Logger   *slog.Logger
	Now      func() time.Time // nil: time.Now

	// Open opens the file of checkpoints for appending, and returns its size in bytes. Nil: the
	// file of Origin in Dir.
	Open func(ctx context.Context) (AnchorFile, int64, error)
}

// AnchorFile is the file of checkpoints of an anchor.
type AnchorFile interface {
	checkpoint.File
	io.Closer
}

// Anchor appends checkpoints to a file in a directory outside the database, and compares the
// database with the last one. No error stops the log, except a *Conflict.
type Anchor struct {
	cfg AnchorConfig

	mu       sync.Mutex
	status   AnchorStatus
	working  time.Time // since when a comparison or a write runs; zero: none does
	compared bool

	seen    string    // the newest checkpoint
	seenAt  time.Time // when it came
	waiting int       // checkpoints since the last append
	again   time.Time // not before, after a failure
}

// AnchorStatus is what an anchor has.
type AnchorStatus struct {
	Dir     string
	Entries int64 // of the last checkpoint in the directory
	Problem error // of the last attempt
}

// NewAnchor returns an Anchor. It does nothing until Run.
func NewAnchor(cfg AnchorConfig) *Anchor {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	a := &Anchor{cfg: cfg}
	if a.cfg.Open == nil {
		a.cfg.Open = a.OpenFile
	}
	return a
}

// Status returns what the anchor has.
func (a *Anchor) Status() AnchorStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.status
	s.Dir = a.cfg.Dir
	if !a.working.IsZero() && a.cfg.Now().Sub(a.working) > anchorSlow {
		s.Problem = fault.New(fault.DiskFull, "the directory of audit.anchor_dir, %s, does not answer; check its disk or file server",
			a.cfg.Dir)
	}
	return s
}

// Run compares and appends until ctx ends, and then the last checkpoint. It calls ready after each
// attempt.
func (a *Anchor) Run(ctx context.Context, ready func()) {
	for {
		if !a.stepOrEnd(ctx, false) {
			return
		}
		ready()
		select {
		case <-ctx.Done():
			a.stepOrEnd(context.WithoutCancel(ctx), true)
			return
		case <-time.After(watchPoll):
		}
	}
}

// Compare compares the log with the last checkpoint in the directory, and changes nothing there.
func (a *Anchor) Compare(ctx context.Context) {
	_, err := os.Stat(a.cfg.Dir)
	if err != nil {
		err = a.unusable(err)
	} else if _, missing := os.Lstat(filepath.Join(a.cfg.Dir, a.file())); !errors.Is(missing, fs.ErrNotExist) {
		_, err = a.appendNewest(ctx, false)
	}
	if !errors.Is(err, errNoKey) {
		a.mu.Lock()
		a.status.Problem = err
		a.mu.Unlock()
	}
}

// stepOrEnd leaves a step behind that does not return although the server ends: the directory may
// be on a file server that is gone.
func (a *Anchor) stepOrEnd(ctx context.Context, last bool) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Step(ctx, last)
	}()
	ended := ctx.Done()
	if last {
		closed := make(chan struct{})
		close(closed)
		ended = closed
	}
	select {
	case <-done:
		return true
	case <-ended:
	}
	select {
	case <-done:
		return true
	case <-time.After(anchorPatience):
		return false
	}
}

// Step appends the newest checkpoint if it is its turn, or if last is set.
func (a *Anchor) Step(ctx context.Context, last bool) {
	now := a.cfg.Now()
	state, err := a.cfg.Log.Store.State(ctx)
	if err != nil { // health reports the database
		return
	}
	if state.Checkpoint != a.seen {
		a.seen, a.seenAt = state.Checkpoint, now
		a.waiting++
	}
	turn := a.waiting >= a.cfg.Every || a.waiting > 0 && (last || now.Sub(a.seenAt) >= anchorQuiet)
	if a.compared && !turn || now.Before(a.again) && !last {
		return
	}
	a.mu.Lock()
	a.working = now
	a.mu.Unlock()
	entries, err := a.appendNewest(ctx, turn)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.working = time.Time{}
	if errors.Is(err, errNoKey) {
		return
	}
	conflict := (*Conflict)(nil)
	if errors.As(err, &conflict) { // the sequencer logs it
		entries = conflict.Kept.Tree.N
	} else if before := a.status.Problem; err != nil && (before == nil || before.Error() != err.Error()) {
		a.cfg.Logger.Error("cannot anchor the transparency log; execs and the log go on", "err", err)
	} else if err == nil && before != nil {
		a.cfg.Logger.Info("the transparency log is anchored again")
	}
	a.status.Problem = err
	if err == nil || entries > 0 {
		a.status.Entries = entries
	}
	if err != nil {
		a.again = now.Add(anchorAgain)
		return
	}
	a.compared = true
	if turn {
		a.waiting = 0
	}
}

// appendNewest compares the log with the last checkpoint in the directory, and then appends the
// newest one if write is set. It returns the entries of the last checkpoint.
func (a *Anchor) appendNewest(ctx context.Context, write bool) (entries int64, err error) {
	key, err := a.cfg.Log.verifier(ctx, a.cfg.Verifier)
	if err != nil {
		return 0, err
	}
	f, size, err := a.cfg.Open(ctx)
	if err != nil {
		return 0, a.unusable(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	replaced, err := a.compareOther(ctx, f, size, key)
	if err == nil && key == nil {
		err = errNoKey
	}
	if err != nil {
		return 0, err
	}
	last, found, err := checkpoint.Last(f, size, key)
	switch {
	case err != nil:
		return 0, a.unusable(err)
	case !found && size > 0 && !replaced:
		return 0,
			fault.New(fault.InvalidSettings,
				"%s in audit.anchor_dir, %s, has no checkpoint of this log at its end; move it away if it is damaged", a.file(), a.cfg.Dir)
	}
	if found {
		err := a.cfg.Log.Compare(ctx, last, "audit.anchor_dir, "+a.cfg.Dir+",",
			"move "+filepath.Join(a.cfg.Dir, a.file())+" to another directory and restart")
		if err != nil {
			return last.Tree.N, a.stop(err)
		}
	}
	state, err := a.cfg.Log.Store.State(ctx)
	if err != nil || !write || state.Size <= last.Tree.N {
		return last.Tree.N, err
	}
	newest, err := checkpoint.Open([]byte(state.Checkpoint), key)
	if err != nil || newest.Tree.N != state.Size {
		return last.Tree.N, fault.Wrap(fault.Internal, err, "the checkpoint in the database is not the one that was signed; it was altered")
	}
	if err := checkpoint.Append(f, size, newest); err != nil {
		return last.Tree.N, a.unusable(err)
	}
	return newest.Tree.N, nil
}

// compareOther compares the log with the last checkpoint of another key in the file. It returns
// whether there is one, whose key was replaced.
func (a *Anchor) compareOther(ctx context.Context, f AnchorFile, size int64, own note.Verifier) (replaced bool, err error) {
	claim, replaced, err := checkpoint.LastOfOther(f, size, a.cfg.Origin, checkpoint.IDOf(own))
	if err != nil {
		return false, a.unusable(err)
	}
	if !replaced {
		return false, nil
	}
	path := filepath.Join(a.cfg.Dir, a.file())
	return true, a.stop(a.cfg.Log.CompareOther(ctx, claim, checkpoint.IDOf(own), "audit.anchor_dir, "+a.cfg.Dir+",",
		"run `core-api audit key --replaces "+path+" --reason …`"))
}

// stop stops the log if the error is a *Conflict. It returns the error.
func (a *Anchor) stop(err error) error {
	if conflict := (*Conflict)(nil); errors.As(err, &conflict) {
		a.cfg.Conflict(conflict)
	}
	return err
}

func (a *Anchor) unusable(err error) error {
	return fault.Wrap(fault.DiskFull, err, "cannot use audit.anchor_dir, %s: %s; mount it, make room there, or check its owner and mode",
		a.cfg.Dir, fault.Reason(err))
}

// file is the name of the log's file: installations may share a directory.
func (a *Anchor) file() string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, a.cfg.Origin) + ".checkpoints"
}

// lockedFile is locked against the anchors of other nodes until it is closed.
type lockedFile struct{ *os.File }

func (f lockedFile) Close() error { return lockfile.Close(f.File) }

// OpenFile opens the file of the log in the directory, locked, and returns its size in bytes. It
// never follows a link: a process that can write to the directory may have put one, or a FIFO, in
// the place of the file.
func (a *Anchor) OpenFile(ctx context.Context) (AnchorFile, int64, error) {
	root, err := os.OpenRoot(a.cfg.Dir)
	if err != nil {
		return nil, 0, err
	}
	defer root.Close()
	const mode = os.O_RDWR | os.O_APPEND | hostile.OpenSafely
	f, err := root.OpenFile(a.file(), mode, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if f, err = root.OpenFile(a.file(), mode|os.O_CREATE|os.O_EXCL, 0o644); err == nil {
			err = statedir.SyncDir(a.cfg.Dir)
		}
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if name, lstatErr := root.Lstat(a.file()); err == nil && (lstatErr != nil || !info.Mode().IsRegular() || !os.SameFile(name, info)) {
		err = &fs.PathError{Op: "open", Path: a.file(), Err: errors.New("it is no regular file")}
	}
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, anchorPatience)
		err = lockfile.Wait(limited, f)
		cancel()
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	info, err = f.Stat() // another node may have appended before the lock
	if err != nil {
		_ = lockfile.Close(f)
		return nil, 0, err
	}
	return lockedFile{f}, info.Size(), nil
}
