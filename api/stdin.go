package api

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"secbox/api/decode"
	"secbox/api/wire"
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
	defer share.Leave()
	if node := s.away(call, rec); node != "" {
		return nil, call.answer(s.forwardedBody(call, node))
	}
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
	return s.passStdin(ctx, rec.ExecID, stdin, in.Body)
}

func (s *Server) passStdin(ctx context.Context, execID string, to io.WriteCloser, body io.Reader) (wire.SendStdinResponseObject, error) {
	running, ended := context.WithCancel(ctx)
	defer ended()
	if b := callFrom(ctx).body; b != nil {
		defer b.EndWith(running)()
		go func() { // a body that pauses ends with the exec
			defer ended()
			rec, err := s.execs.Get(running, callFrom(ctx).caller, execID)
			if err == nil {
				_, _ = s.cfg.Runner.WaitEnd(running, rec)
			}
		}()
	}
	n, err := io.Copy(to, body)
	switch {
	case err == nil:
		err = to.Close()
	case fault.Is(err, fault.ExecEnded), running.Err() != nil && ctx.Err() == nil:
		_ = to.Close()
		return wire.SendStdin200JSONResponse{Bytes: n, Ended: true}, nil
	default: // to stays open, so that the command does not see an end before it is killed
		canceled := s.cfg.Runner.Cancel(context.WithoutCancel(ctx), execID)
		if errors.Is(err, io.ErrUnexpectedEOF) || ctx.Err() != nil {
			err = fault.Wrap(fault.InvalidRequest, err, "the standard input was cut off, and the exec is canceled")
		}
		if canceled != nil && !fault.Is(canceled, fault.ExecEnded) {
			s.cfg.Logger.Error("an exec whose standard input was cut off is not canceled", "exec", execID, "error", canceled)
		}
	}
	if err != nil {
		return nil, err
	}
	return wire.SendStdin200JSONResponse{Bytes: n}, nil
}
