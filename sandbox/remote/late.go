package remote

import (
	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// Bounds of the results that wait to be recorded. The runner keeps the rest until its next link.
const (
	maxLate      = 256
	maxLateBytes = 16 << 20
)

// lateResult is the result of a command whose caller no longer waits.
type lateResult struct {
	id     string
	result *wire.ExecResult
}

// size returns the bytes of text in the result.
func (r lateResult) size() int {
	return len(r.result.Stdout) + len(r.result.Stderr) + len(r.result.Detail)
}

// lateQueue holds results while Config.Late runs: it may wait for a database, and the reader of the
// link must not.
type lateQueue struct {
	results chan lateResult
	bytes   int // guarded by Hub.mu
}

// put queues a result, and reports false if the queue is full. Hub.mu is held.
func (q *lateQueue) put(r lateResult) bool {
	n := r.size()
	if q.bytes+n > maxLateBytes {
		return false
	}
	select {
	case q.results <- r:
		q.bytes += n
		return true
	default:
		return false
	}
}

// recordLate records late results one by one, and acknowledges each that was recorded.
func (l *link) recordLate() {
	h := l.hub
	for {
		var r lateResult
		select {
		case <-l.ctx.Done():
			return
		case r = <-l.late.results:
		}
		user := sandbox.User{ID: l.machine.key.user, Runner: l.machine.key.name}
		err := h.cfg.Late(l.ctx, user, r.id, *resultOf(r.result, r.result.Stdout, r.result.Stderr, user.Runner))
		h.mu.Lock()
		l.late.bytes -= r.size()
		if err == nil || fault.Is(err, fault.UnknownExec) {
			l.ack(r.id)
		}
		h.mu.Unlock()
		if err != nil {
			h.cfg.Log.Warn("record the late result of a command", "user", user.ID, "runner", user.Runner, "exec", r.id, "err", err)
		}
	}
}

// resultOf converts a result of the protocol.
func resultOf(r *wire.ExecResult, stdout, stderr, runner string) *sandbox.ExecResult {
	return &sandbox.ExecResult{
		Stdout: stdout, Stderr: stderr, ExitCode: r.ExitCode, TimedOut: r.TimedOut, StdoutBytes: r.StdoutBytes, StderrBytes: r.StderrBytes,
		Detail: wire.Cleaned(r.Detail), OOMKilled: r.OOMKilled, Canceled: r.Canceled, Runner: runner,
	}
}
