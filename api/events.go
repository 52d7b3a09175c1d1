package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"secbox/api/sse"
	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
	"secbox/internal/whole"
	"secbox/runner/follow"
)

// Bounds of streams of events.
const (
	streamPrice = 128 << 10 // bytes of memory that are counted for each: its connection, and its share of what is read for all

	streamCheck = 5 * time.Second      // between verifications of the token
	partBytes   = 16 << 10             // of output in an event, at most
	streamPause = 5 * time.Millisecond // between events of a job that writes all the time; longer for an exec that many clients follow
)

// Close ends the streams of events, which do not end by themselves. Safe to call twice.
func (s *Server) Close() { s.close() }

// stream answers a request with events, within the bounds of streams.
func (s *Server) stream(call *call, send func(ctx context.Context, out *sse.Stream, w http.ResponseWriter) error) raw {
	return func(w http.ResponseWriter) error {
		share, err := s.streams.Enter(call.caller.ID, 0)
		if err != nil {
			return err
		}
		defer share.Leave()
		if err := call.reserve(streamPrice); err != nil {
			return err
		}
		if call.request.Method == http.MethodHead {
			sse.SetHeader(w.Header())
			return nil
		}
		call.verifyEvery = min(streamCheck, s.cfg.TokenInterval)
		out := sse.Begin(w, s.closing)
		defer out.End()
		return send(call.request.Context(), out, w)
	}
}

// GetExecEvents streams the status, the output and the end of an exec.
func (s *Server) GetExecEvents(ctx context.Context, in wire.GetExecEventsRequestObject) (wire.GetExecEventsResponseObject, error) {
	rec, err := s.record(ctx, in.ExecID)
	if err != nil {
		return nil, err
	}
	from, all, err := parseEventID(value(in.Params.LastEventID))
	if err != nil {
		return nil, err
	}
	if all && rec.Status.Final() {
		return wire.GetExecEvents204Response{}, nil
	}
	call := callFrom(ctx)
	return nil, call.answer(s.stream(call, func(ctx context.Context, out *sse.Stream, w http.ResponseWriter) error {
		x := execStream{server: s, call: call, out: out, raw: w, at: from, watch: s.cfg.Live.Watch(rec)}
		defer x.watch.Close()
		return x.serve(ctx)
	}))
}

// endMark ends the id of the last event.
const endMark = "-end"

// parseEventID reads the id of an event of an exec; an empty one is the beginning. all is set for
// the last event.
func parseEventID(id string) (at follow.Offsets, all bool, err error) {
	if id == "" {
		return at, false, nil
	}
	text, all := strings.CutSuffix(id, endMark)
	at, ok := follow.ParseOffsets(text)
	if !ok {
		return at, false, fault.BadField("Last-Event-ID",
			"is not the id of an event of an exec, such as 120-0; leave the header out to begin with the first byte of output")
	}
	return at, all, nil
}

// execStream is one client that follows an exec.
type execStream struct {
	server *Server
	call   *call
	out    *sse.Stream
	raw    http.ResponseWriter // of out; nil: no other node is asked
	asked  time.Time           // when another node was asked last, and did not answer
	watch  *follow.Watch
	at     follow.Offsets
	status audit.Status // as sent

	run      *run // that began the exec; nil for a client that only follows it
	replayed bool // an earlier request began the exec
}

// serve sends events until the exec has ended, or the stream must end.
func (x *execStream) serve(ctx context.Context) error {
	for {
		if passed, err := x.relay(ctx); passed || err != nil {
			return err
		}
		done, err := x.send(ctx)
		if err != nil {
			return err
		}
		if done {
			return x.out.Flush()
		}
		pause := max(streamPause, time.Duration(x.watch.State().Watchers)*streamPause/50)
		if more, err := x.out.Wait(ctx, x.watch.Changed(), pause); !more {
			return err
		}
	}
}

// send sends what the client does not have yet. done is set after the last event.
func (x *execStream) send(ctx context.Context) (done bool, err error) {
	now := x.watch.State()
	if now.Gone != nil {
		return true, nil // the next request of the client gets the reason
	}
	if s := now.Record.Status; s != x.status && (x.status == "" || !s.Final()) {
		x.status = s
		if err := x.event("status", "", execState(now.Record)); err != nil {
			return false, err
		}
	}
	var missing error
	for i := range x.at {
		unread, err := x.output(ctx, i, now)
		if err != nil {
			return false, err
		}
		missing = errors.Join(missing, unread)
	}
	if x.run != nil && now.Ended {
		if another, found := x.run.other(ctx, now.Record.ExecID); found {
			if err := x.follow(ctx, another); err != nil {
				return false, err
			}
			return x.send(ctx)
		}
	}
	if !now.Ended {
		failed := x.unrecorded(ctx, now.Record.ExecID)
		if failed == nil {
			return false, nil
		}
		missing = failed
	}
	end := execState(now.Record)
	x.run.complete(&end)
	if missing != nil {
		reason := fault.From(x.server.execs.UnlessRemoved(ctx, now.Record, missing))
		end.Problem = &wire.StreamProblem{Code: reason.Code, Detail: reason.Message}
	}
	return true, x.event("end", endMark, end)
}

// output sends all that a stream has now. unread says why the output of an exec that has ended
// cannot be read.
func (x *execStream) output(ctx context.Context, stream int, now follow.State) (unread, err error) {
	part := parts.Get().(*[partBytes]byte)
	defer parts.Put(part)
	for {
		n, readErr := x.watch.Read(ctx, stream, part[:], x.at[stream])
		atEnd := errors.Is(readErr, io.EOF)
		if readErr != nil && !atEnd {
			if now.Ended {
				unread = readErr
			}
			return unread, ctx.Err()
		}
		text := part[:n]
		if !atEnd || !now.Ended {
			text = whole.End(text)
		}
		if len(text) > 0 {
			if err := x.piece(stream, now.Record, text); err != nil {
				return nil, err
			}
		}
		if atEnd {
			return nil, nil
		}
	}
}

// parts are buffers for parts of the output.
var parts = sync.Pool{New: func() any { return new([partBytes]byte) }}

// piece sends an event with a part of the output.
func (x *execStream) piece(stream int, rec audit.Record, text []byte) error {
	name, caller := follow.Streams[stream], x.call.caller
	if err := x.watch.Note(name+" "+caller.ID, func() error {
		return x.server.execs.RecordDownload(x.call.request.Context(), caller, rec, name, "")
	}); err != nil {
		return err
	}
	piece := wire.ExecOutput{Offset: x.at[stream], Data: string(text), Encoding: "utf-8"}
	if !isText(text) {
		piece.Data, piece.Encoding = base64.StdEncoding.EncodeToString(text), "base64"
	}
	x.at[stream] += int64(len(text))
	return x.event(name, "", piece)
}

// isText reports whether output is shorter as text than in base64: JSON takes six bytes for most
// control characters.
func isText(output []byte) bool {
	control := 0
	for _, b := range output {
		if b < ' ' && b != '\n' && b != '\t' && b != '\r' {
			control++
		}
	}
	return 5*control <= len(output)/3 && utf8.Valid(output)
}

func (x *execStream) event(name, mark string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return x.out.Event(name, x.at.String()+mark, text)
}

// execState converts a record for events.
func execState(rec audit.Record) wire.ExecState {
	return wire.ExecState{
		ExecID: rec.ExecID, ProjectID: rec.ProjectID, TaskID: rec.TaskID, ConversationID: rec.ConversationID, AgentID: rec.AgentID,
		UserID:  rec.UserID,
		SkillID: rec.SkillID, RequestedBy: rec.RequestedBy, TraceID: rec.TraceID, Status: rec.Status, ExitCode: rec.ExitCode,
		ErrorReason: rec.ErrorReason, Detail: rec.Detail,
		CreatedAt: visible.Timestamp(rec.CreatedAt), StartedAt: timestamp(rec.StartedAt), EndedAt: timestamp(rec.EndedAt),
		DurationMS:  rec.DurationMS,
		StdoutBytes: rec.StdoutBytes, StderrBytes: rec.StderrBytes, StdoutTruncated: rec.StdoutTruncated,
		StderrTruncated: rec.StderrTruncated,
	}
}
