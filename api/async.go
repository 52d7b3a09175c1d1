package api

import (
	"context"
	"strconv"
	"strings"
	"time"

	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
	"secbox/runner"
)

// respondAsync is the preference for an answer as soon as the exec waits (RFC 7240).
const respondAsync = "respond-async"

// prefersAsync reports whether a Prefer header has respond-async. Parameters of it, and other
// preferences, are ignored.
func prefersAsync(header *string) bool {
	for preference := range strings.SplitSeq(value(header), ",") {
		name, _, _ := strings.Cut(preference, ";")
		if strings.EqualFold(strings.TrimSpace(name), respondAsync) {
			return true
		}
	}
	return false
}

// checkStream refuses an asynchronous request for events.
func checkStream(stream, async bool, refuse refusal) {
	if stream && async {
		refuse("stream", "cannot be combined with the header Prefer: respond-async; leave one of them out, and follow an asynchronous "+
			"exec by GET /sandbox/execs/{exec_id}/events")
	}
}

// queueing returns how an asynchronous request waits; nil for any other, which must not have the
// fields for it.
func queueing(async bool, priority audit.Priority, timeoutMS *int64, refuse refusal) *runner.Queueing {
	const onlyAsync = "is for asynchronous requests; send the header Prefer: respond-async as well, or leave it out"
	q := &runner.Queueing{Priority: priority}
	switch priority {
	case "":
	case audit.High, audit.Normal, audit.Low:
		if !async {
			refuse("priority", onlyAsync)
		}
	default:
		refuse("priority", "must be low, normal or high")
	}
	if timeoutMS != nil {
		most := runner.MaxQueueTimeout.Milliseconds()
		switch {
		case *timeoutMS < 1 || *timeoutMS > most:
			refuse("queue_timeout_ms", "must be from 1 to %d", most)
		case !async:
			refuse("queue_timeout_ms", onlyAsync)
		default:
			q.Timeout = time.Duration(*timeoutMS) * time.Millisecond
		}
	}
	if !async {
		return nil
	}
	return q
}

// accepted returns the answer to an asynchronous request: its record, and the headers of RunExec,
// which InvokeSkill also sends.
func (s *Server) accepted(ctx context.Context, res runner.Result) (wire.ExecRecord, wire.RunExec202ResponseHeaders, error) {
	headers := wire.RunExec202ResponseHeaders{Location: new("/sandbox/execs/" + res.Record.ExecID), PreferenceApplied: new(respondAsync)}
	if res.Replayed {
		headers.IdempotencyReplayed = new("true")
	}
	rec, err := s.wholeRecord(ctx, res.Record)
	return rec, headers, err
}

// The time of a wait, in milliseconds.
const (
	defaultWaitMS = 30_000
	maxWaitMS     = 300_000
)

// WaitExec sends the record of an exec when it has ended, or as it is after a time.
func (s *Server) WaitExec(ctx context.Context, in wire.WaitExecRequestObject) (wire.WaitExecResponseObject, error) {
	timeout, err := waitTimeout(in.Params.TimeoutMS)
	if err != nil {
		return nil, err
	}
	rec, err := s.record(ctx, in.ExecID)
	if err != nil {
		return nil, err
	}
	if !rec.Status.Final() && timeout > 0 {
		if rec, err = s.waitEnd(ctx, rec, timeout); err != nil {
			return nil, err
		}
	}
	out, err := s.wholeRecord(ctx, rec)
	return wire.WaitExec200JSONResponse(out), err
}

// waitTimeout reads the parameter timeout_ms of a wait.
func waitTimeout(text *string) (time.Duration, error) {
	ms := defaultWaitMS
	if text != nil {
		n, err := strconv.Atoi(*text)
		if err != nil || n < 0 || n > maxWaitMS {
			return 0, fault.BadField("timeout_ms", "must be from 0 to %d", maxWaitMS)
		}
		ms = n
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// waitEnd waits for the end of an exec, within the bounds of streams, and for a token that is valid
// afterwards.
func (s *Server) waitEnd(ctx context.Context, rec audit.Record, timeout time.Duration) (audit.Record, error) {
	call := callFrom(ctx)
	share, err := s.streams.Enter(call.caller.ID, 0)
	if err != nil {
		return rec, err
	}
	defer share.Leave()
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if rec, err = s.cfg.Runner.WaitEnd(waiting, rec); err != nil {
		return rec, err
	}
	return rec, s.verifyAgain(call.request, time.Now(), min(transferInterval, s.cfg.TokenInterval))
}
