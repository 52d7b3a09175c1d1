// Package verify recomputes a transparency log and compares all evidence of an installation with
// it: the checkpoint's signature, tiles and entries, every event with its entry, and every row with
// its events. It believes nothing that it reads except the log's public key, so that the evidence
// may come from a database or from a core-api over HTTP. The package knows neither.
//
// Memory is constant but for one bit for each entry; the hashes of the entries are in a temporary
// file.
package verify

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit"
	"secbox/audit/translog/proof"
)

// Source is the evidence of an installation. It may change meanwhile: a subject is as it was at one
// moment, and all that the log had at the time of Checkpoint is in the subjects of later calls.
type Source interface {
	// Checkpoint returns the newest signed checkpoint; fault.NotLogged for an empty log, and
	// ErrNoState if the database has lost what it knows about the log.
	Checkpoint(ctx context.Context) (string, error)

	// Tile returns a resource of C2SP tlog-tiles by its path below tile/; fault.UnknownFile if
	// there is none.
	Tile(ctx context.Context, path string) ([]byte, error)

	// Subjects calls each for some subjects, execs first and then SourceAdmin, both in ascending
	// order of their keys, and returns the place where the next call begins; "" at the end. at is
	// such a place, "" for all subjects, or From.
	Subjects(ctx context.Context, at string, each func(Subject) error) (next string, err error)
}

// ErrNoState means that the database has neither the log's checkpoint nor its size any more.
var ErrNoState = errors.New("the log has no state")

// From is the place at which Source.Subjects returns only subjects with an entry from the index on.
// The order of subjects is not defined, and they may come twice.
func From(index int64) string { return FromPrefix + strconv.FormatInt(index, 10) }

// FromPrefix begins the places of From.
const FromPrefix = "from:"

// Sources of subjects.
const (
	SourceExec  = "exec"
	SourceAdmin = "admin" // administrative events, each a subject; keys are in the order of their numbers
)

// Subject is a thing with documents in the log, such as an exec, with all of its documents.
type Subject struct {
	Source    string
	Key       string        // unique within the source: the id of the exec
	Row       *audit.Record // of an exec; nil: there is none
	Documents []Document    // in the order of their seq
	Cut       bool          // it has more documents
	Traffic   audit.Traffic // the sums of the connections' rows of an ended exec whose row has a digest of them
}

// Document is a document of the log, such as an event.
type Document struct {
	Seq     int64
	Index   int64 // of the entry; -1: the log does not have it
	Overdue bool  // Index is -1, and the log should have it by now
	Salt    []byte

	Event     *proof.Document // the event of an exec; nil for other types
	Canonical []byte          // of other types
}

// Options configure Run.
type Options struct {
	Key string // the log's public key, as `core-api audit key` prints it

	Kept    *Kept // what an earlier run verified, which the log must extend; nil: nothing
	NewOnly bool  // leave out what LeftOut returns

	// Either of them leaves out holds, and overrides NewOnly.
	Since   time.Time // only execs created since; zero: all
	Project string    // only execs of this project; empty: all

	// Artifacts compares the artifacts of an ended exec with its row, and returns how many files it
	// compared; nil: they are not compared.
	Artifacts func(ctx context.Context, r audit.Record, report func(what, expected, found string)) (files int, err error)

	TempDir  string           // for a file with 32 bytes for each entry; empty: os.TempDir
	Report   func(Difference) // is called for the first MaxReported differences, by one goroutine at a time
	Progress func(Summary)    // the same; nil: none
}

// LeftOut is what a run does not compare because earlier runs did: the entries, and the execs that
// they begin unless an exec has newer entries, too. A change to them after that comparison is not
// found.
type LeftOut struct {
	Entries int64     `json:"entries"`
	Execs   int64     `json:"execs"`
	FullAt  time.Time `json:"full_at"` // when the last run that compared everything began
}

// LeftOut returns what a run with NewOnly leaves out; nil: nothing.
func (o Options) LeftOut() *LeftOut {
	k := o.Kept
	if !o.NewOnly || o.narrowed() || k == nil || k.otherKey != "" || k.FullAt.IsZero() {
		return nil
	}
	return &LeftOut{Entries: k.Size, Execs: k.Execs, FullAt: k.FullAt}
}

func (o Options) narrowed() bool { return !o.Since.IsZero() || o.Project != "" }

// Difference is a piece of evidence that is not as the log says.
type Difference struct {
	ExecID   string `json:"exec_id,omitempty"` // empty: of no known exec
	What     string `json:"what"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
}

// MaxReported bounds the differences that Run reports. It counts the others.
const MaxReported = 10_000

// Summary counts what Run has looked at.
type Summary struct {
	Size          int64 `json:"size"`           // entries of the log at the checkpoint
	From          int64 `json:"from"`           // the first entry that was looked at
	Entries       int64 `json:"entries"`        // that were read
	Execs         int64 `json:"execs"`          // that were compared with their events
	Events        int64 `json:"events"`         // and other documents that were compared with their entries
	Pending       int64 `json:"pending"`        // that the log does not have yet, or got after the checkpoint
	Removed       int64 `json:"removed"`        // events that retention has removed
	ColumnsNewer  int64 `json:"columns_newer"`  // execs whose row has columns that are newer than their last event, and so are not proven
	Holds         int64 `json:"holds"`          // that were compared with their events; removed holds, too
	ArtifactFiles int64 `json:"artifact_files"` // that were compared
	Differences   int64 `json:"differences"`

	Artifacts bool   `json:"artifacts"`         // the artifacts of the execs were compared
	Only      bool   `json:"only,omitzero"`     // only execs of a time or a project were compared, and no holds
	Project   string `json:"project,omitempty"` // as in Options

	LeftOut *LeftOut `json:"left_out,omitempty"` // nil: everything else was compared
}

// Run verifies the evidence. Differences are no error: an error means that it could not check. It
// returns what to keep for the next run; nil after differences, and after a run that looked only at
// some execs.
func Run(ctx context.Context, source Source, o Options) (Summary, *Kept, error) {
	r := &run{source: source, o: o, size: -1, begunAt: time.Now().UTC().Truncate(time.Second)}
	r.sum.Artifacts, r.sum.Only, r.sum.Project = o.Artifacts != nil, o.narrowed(), o.Project
	defer r.leaves.close()
	if err := r.readCheckpoint(ctx); err != nil {
		return r.sum, nil, err
	}
	if err := r.readLog(ctx); err != nil {
		return r.sum, nil, err
	}
	if err := r.readSubjects(ctx); err != nil {
		return r.sum, nil, err
	}
	if err := r.settle(ctx); err != nil {
		return r.sum, nil, err
	}
	r.reportUnseen()
	if err := r.compareHolds(ctx); err != nil {
		return r.sum, nil, err
	}
	if r.sum.Differences > 0 || o.narrowed() || r.size == 0 {
		return r.sum, nil, nil
	}
	return r.sum, r.keep(), nil
}

// run is one Run.
type run struct {
	source  Source
	o       Options
	sum     Summary
	begunAt time.Time
	begun   int64 // execs whose first entry was looked at

	checkpoint string
	origin     string
	size       int64
	root       tlog.Hash

	tree   tree
	leaves leaves
	seen   bitmap // of the entries from leaves.base on: it has a document, or an event that says that it was removed

	removals removals

	conflicts map[int64]tlog.Hash // tiles that differ from the entry, by index; not written after readLog
}

func (r *run) report(d Difference) {
	if r.sum.Differences++; r.sum.Differences <= MaxReported {
		r.o.Report(d)
	}
}

func (r *run) progress() {
	if r.o.Progress != nil {
		r.o.Progress(r.sum)
	}
}

// inOrder runs the functions of next on all processors, and passes their results to use in the
// order of next. next returns nil at the end. It runs on one goroutine, use on the caller's.
func inOrder[T any](ctx context.Context, next func(context.Context) (func(context.Context) (T, error), error), use func(T) error) error {
	type outcome struct {
		value T
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	workers := runtime.GOMAXPROCS(0)
	queue, work := make(chan chan outcome, 2*workers), make(chan func())
	done := make(chan struct{})
	for range workers {
		go func() {
			for f := range work {
				f()
			}
			done <- struct{}{}
		}()
	}
	go func() {
		defer close(work)
		defer close(queue)
		for {
			f, err := next(ctx)
			result := make(chan outcome, 1)
			if err != nil {
				result <- outcome{err: err}
			} else if f == nil {
				return
			}
			select {
			case queue <- result:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
			select {
			case work <- func() {
				value, err := f(ctx)
				result <- outcome{value, err}
			}:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range workers {
			<-done
		}
	}()
	for result := range queue {
		select {
		case o := <-result:
			if o.err != nil {
				return o.err
			}
			if err := use(o.value); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return context.Cause(ctx)
}
