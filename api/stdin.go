package api

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"time"

	"secbox/api/decode"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
)

// stdinPath is the path of standard inputs, whose bodies may pause.
const stdinPath = "/sandbox/execs/{exec_id}/stdin"

// noPace is the pause of a body that may pause: its exec has a limit.
const noPace = time.Duration(math.MaxInt64 / 4)

// SendStdin passes the body on to a command, within the bounds of streams.
func (s *Server) SendStdin(ctx context.Context, in wire.SendStdinRequestObject) (wire.SendStdinResponseObject, error) {
	call := callFrom(ctx)
	rec, err := s.record(ctx, in.ExecID)
	if err != nil {
		return nil, err
	}
	if err := decode.CheckBytes(call.request); err != nil {
		return nil, err
	}
	share, err := s.streams.Enter(call.caller.ID, 0)
	if err != nil {
		return nil, err
	}
	if node := s.away(call, rec); node != "" {
		return nil, call.answer(func(w http.ResponseWriter) error {
			defer share.Leave()
			if call.body != nil { // the node may answer before the end of the body
				w.Header().Set("Connection", "close")
				defer call.body.Abandon()
			}
			return s.forward(call, w, call.request, node)
		})
	}
	defer share.Leave()
	if rec.Status.Final() {
		return nil, fault.New(fault.ExecEnded, "exec %s has ended", rec.ExecID)
	}
	waiting, cancel := context.WithTimeout(ctx, terminalTimeout)
	stdin, err := s.cfg.Runner.Stdin(waiting, rec)
	late := waiting.Err() != nil
	cancel()
	if err != nil && late {
		e := fault.New(fault.ServerBusy, "exec %s waits for its turn; come again", rec.ExecID)
		e.RetryAfter = time.Second
		err = e
	}
	if err != nil {
		return nil, err
	}
	return s.passStdin(ctx, rec, stdin, in.Body)
}

func (s *Server) passStdin(ctx context.Context, rec audit.Record, to io.WriteCloser, body io.Reader) (wire.SendStdinResponseObject, error) {
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	if b := callFrom(ctx).body; b != nil {
		defer b.EndWith(running)()
		go func() { // a body that pauses ends with the exec
			if s.sawEnd(running, rec) {
				end(fault.New(fault.ExecEnded, "exec %s has ended", rec.ExecID))
			}
		}()
	}
	n, err := io.Copy(to, body)
	switch {
	case err == nil:
		err = to.Close()
	case fault.Is(err, fault.ExecEnded):
		_ = to.Close()
		if b := callFrom(ctx).body; b != nil {
			b.Abandon()
		}
		return wire.SendStdin200JSONResponse{Bytes: n, Ended: true}, nil
	default: // to stays open, so that the command does not see an end before it is killed
		canceled := s.cfg.Runner.Cancel(context.WithoutCancel(ctx), rec.ExecID)
		if _, known := errors.AsType[*fault.Error](err); !known || errors.Is(err, io.ErrUnexpectedEOF) || ctx.Err() != nil {
			err = fault.Wrap(fault.InvalidRequest, err, "the standard input was cut off, and the exec is canceled")
		}
		if canceled != nil && !fault.Is(canceled, fault.ExecEnded) {
			s.cfg.Logger.Error("an exec whose standard input was cut off is not canceled", "exec", rec.ExecID, "error", canceled)
		}
	}
	if err != nil {
		return nil, err
	}
	return wire.SendStdin200JSONResponse{Bytes: n}, nil
}

// endRetry is the pause after an error of the database.
const endRetry = 250 * time.Millisecond

// sawEnd waits until an exec has ended, and reports whether it has; false if ctx ends first.
func (s *Server) sawEnd(ctx context.Context, rec audit.Record) bool {
	for {
		now, err := s.cfg.Runner.WaitEnd(ctx, rec)
		if err == nil && now.Status.Final() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(endRetry):
		}
	}
}
