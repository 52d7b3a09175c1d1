package runner

import (
	"bytes"
	"context"
	"io"
	"sync"

	"secbox/audit"
	"secbox/audit/hmackey"
	"secbox/fault"
)

// stdinSet are the standard inputs that clients may send, by exec. The zero value is ready.
type stdinSet struct {
	mu  sync.Mutex
	all map[string]*stdinStream
}

// stdinStream is the standard input of an exec that a client sends while the command runs. It
// is the io.Reader of the job.
type stdinStream struct {
	read  *io.PipeReader
	write *io.PipeWriter

	mu     sync.Mutex
	digest hmackey.Digest
	bytes  int64
	sent   bool // a client has begun to send it
}

// Read implements io.Reader.
func (s *stdinStream) Read(p []byte) (int, error) {
	n, err := s.read.Read(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.digest.Write(p[:n])
	s.bytes += int64(n)
	return n, err
}

// openStdin returns the standard input of the job. The caller must call end after the job, which
// completes the record.
func (x *exec) openStdin() (in io.Reader, end func()) {
	if !x.req.Command.StdinStream {
		return bytes.NewReader(x.req.Command.Stdin), func() {}
	}
	s := &stdinStream{digest: x.cfg.Key.StdinDigest(x.record.HMACSalt)}
	s.read, s.write = io.Pipe()
	set, id := &x.stdins, x.record.ExecID
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.all == nil {
		set.all = map[string]*stdinStream{}
	}
	set.all[id] = s
	return s, sync.OnceFunc(func() {
		set.mu.Lock()
		delete(set.all, id)
		set.mu.Unlock()
		_ = s.read.CloseWithError(errStdinEnded)
		s.mu.Lock()
		defer s.mu.Unlock()
		if x.record.StdinBytes = s.bytes; s.bytes > 0 {
			x.record.StdinHMAC = s.digest.Sum()
		}
	})
}

// errStdinEnded is the error of sending standard input to an exec that has ended.
var errStdinEnded = fault.New(fault.ExecEnded, "the exec has ended, and reads no more standard input")

// Stdin waits until the command of an exec on this node takes its standard input, and returns a
// writer for it, whose Close ends the input. Writes wait for the command to read, and fail with
// fault.ExecEnded when it has ended. fault.InvalidRequest if the exec takes none, or has one
// already.
func (r *Runner) Stdin(ctx context.Context, rec audit.Record) (io.WriteCloser, error) {
	for seen := (Progress{}); ; {
		if s := r.stdins.of(rec.ExecID); s != nil {
			if !s.claim() {
				return nil, fault.BadField("exec_id", "is an exec whose standard input was sent already, or is being sent")
			}
			return s.write, nil
		}
		if seen.Started {
			return nil, fault.BadField("exec_id", "is an exec that takes no standard input here; start it with exec.stdin_stream")
		}
		now, err := r.outputs.Follow(ctx, rec.ExecID, seen)
		if err != nil {
			return nil, err
		}
		if !now.Here {
			return nil, fault.New(fault.ExecEnded, "exec %s has ended", rec.ExecID)
		}
		seen = now
	}
}

func (s *stdinSet) of(execID string) *stdinStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[execID]
}

// claim reports whether the caller is the first one.
func (s *stdinStream) claim() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.sent
	s.sent = true
	return first
}
