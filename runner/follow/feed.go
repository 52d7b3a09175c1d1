package follow

import (
	"cmp"
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/runner"
)

const (
	tailBytes = 16 << 10 // of each stream, which a feed keeps for callers that have all before

	readPause = 5 * time.Millisecond // between reads of a job that writes all the time
	rowPause  = time.Second          // between reads of the row of an exec that is not here
)

// feed reads the row and the new output of one exec that has not ended.
type feed struct {
	execs  *Execs
	stop   context.CancelFunc
	done   chan struct{}
	buffer []byte // of read

	mu      sync.Mutex
	watches map[*Watch]bool
	state   State
	tails   [2]tail
	failed  [2]error // why the end of a stream could not be read
	notes   notes
}

// tail is the newest bytes of a stream.
type tail struct {
	from  int64 // the offset of the first byte
	bytes []byte
}

func (t *tail) end() int64 { return t.from + int64(len(t.bytes)) }

// add adds bytes that begin at an offset, and forgets the oldest ones.
func (t *tail) add(at int64, b []byte) {
	if at != t.end() {
		t.from, t.bytes = at, t.bytes[:0]
	}
	if len(t.bytes)+len(b) > 2*tailBytes {
		old := len(t.bytes) - max(0, tailBytes-len(b))
		t.from += int64(old)
		t.bytes = slices.Delete(t.bytes, 0, old)
	}
	t.bytes = append(t.bytes, b...)
}

// change changes the feed and wakes its callers.
func (f *feed) change(what func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what()
	for w := range f.watches {
		w.Wake()
	}
}

// run reads the exec until it has ended, or the last caller has left.
func (f *feed) run(ctx context.Context) {
	defer close(f.done)
	rec := f.state.Record
	for seen := (runner.Progress{}); ; {
		now, err := f.execs.runner.Follow(ctx, rec.ExecID, seen)
		if err != nil {
			return
		}
		pause := readPause
		if !now.Here || now.Started != seen.Started {
			next, err := f.execs.history.Newer(ctx, rec)
			switch {
			case ctx.Err() != nil:
				return
			case fault.Is(err, fault.UnknownExec):
				f.change(func() { f.state.Gone = err })
				return
			case err != nil: // the database does not answer: the row is read again
				now.Started, pause = seen.Started, rowPause
			case next.Status.Final():
				failed := f.read(ctx, next)
				f.change(func() { f.state.Record, f.state.Ended, f.failed = next, true, failed })
				return
			default:
				rec = next
				f.change(func() { f.state.Record, f.state.Started = rec, now.Started })
			}
		}
		if now.Usage != seen.Usage {
			f.change(func() { f.state.Usage = now.Usage })
		}
		f.read(ctx, rec)
		seen = now
		f.wait(ctx, rec.ExecID, now.Here, pause)
	}
}

// wait waits before the exec is read again; if it is not here, until it is.
func (f *feed) wait(ctx context.Context, execID string, here bool, pause time.Duration) {
	var comes <-chan struct{}
	if !here {
		var leave func()
		comes, leave = f.execs.runner.Await(execID)
		defer leave()
		pause = rowPause
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-comes:
	case <-timer.C:
	}
}

// read adds what the exec has written since the last call to the tails.
func (f *feed) read(ctx context.Context, rec audit.Record) (failed [2]error) {
	for i, name := range Streams {
		out, size, err := f.execs.runner.OpenOutput(ctx, rec, name)
		if err == nil {
			err = f.readFrom(out, size, &f.tails[i])
			_ = out.Close()
		}
		failed[i] = err
	}
	return failed
}

func (f *feed) readFrom(out io.ReadSeeker, size int64, t *tail) error {
	at := max(t.end(), size-tailBytes)
	if at >= size {
		return nil
	}
	if _, err := out.Seek(at, io.SeekStart); err != nil {
		return err
	}
	n := int(size - at)
	f.buffer = slices.Grow(f.buffer[:0], n)[:n]
	if _, err := io.ReadFull(out, f.buffer); err != nil {
		return err
	}
	f.change(func() { t.add(at, f.buffer) })
	return nil
}

// newest copies bytes of a stream from an offset on. known is false if it begins before the tail.
func (f *feed) newest(stream int, p []byte, at int64) (n int, known bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := &f.tails[stream]
	if at < t.from {
		return 0, false, nil
	}
	if n = copy(p, t.bytes[min(at-t.from, int64(len(t.bytes))):]); n == 0 {
		err = cmp.Or(f.failed[stream], io.EOF)
	}
	return n, true, err
}

// Read reads a stream from an offset on until p is full. Its error is io.EOF if there is no more:
// of an exec that has ended, or until Changed. Another error says why the output cannot be read,
// which was written.
func (w *Watch) Read(ctx context.Context, stream int, p []byte, at int64) (n int, err error) {
	for n < len(p) && err == nil {
		var more int
		more, err = w.read(ctx, stream, p[n:], at+int64(n))
		n += more
	}
	return n, err
}

func (w *Watch) read(ctx context.Context, stream int, p []byte, at int64) (int, error) {
	if w.feed != nil {
		if n, known, err := w.feed.newest(stream, p, at); known {
			w.close(stream)
			return n, err
		}
	}
	out := &w.open[stream]
	if out.content == nil || at >= out.size && w.feed != nil {
		w.close(stream)
		state := w.State()
		content, size, err := w.execs.runner.OpenOutput(ctx, state.Record, Streams[stream])
		if err != nil {
			return 0, err
		}
		*out = openOutput{content: content, size: size}
		if at >= size && w.feed != nil && state.Ended {
			return 0, fault.New(fault.UnknownArtifact, "the rest of the exec's %s was not kept", Streams[stream])
		}
	}
	if at >= out.size {
		return 0, io.EOF
	}
	if at != out.at {
		if _, err := out.content.Seek(at, io.SeekStart); err != nil {
			return 0, err
		}
	}
	n, err := io.ReadFull(out.content, p[:min(int64(len(p)), out.size-at)])
	out.at = at + int64(n)
	return n, err
}

// close closes a stream, if it is open.
func (w *Watch) close(stream int) {
	if out := &w.open[stream]; out.content != nil {
		_ = out.content.Close()
		*out = openOutput{}
	}
}
