package api

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"secbox/api/terminal"
	"secbox/fault"
)

// serveTerminal opens a WebSocket to the terminal of an exec.
func (s *Server) serveTerminal(c echo.Context) error {
	ctx := c.Request().Context()
	call := callFrom(ctx)
	rec, err := s.record(ctx, c.Param("exec_id"))
	if err != nil {
		return err
	}
	at := int64(0)
	if text := c.QueryParam("offset"); text != "" {
		if at, err = strconv.ParseInt(text, 10, 64); err != nil || at < 0 {
			return fault.BadField("offset", "must be the number of bytes that you have of what the terminal has shown")
		}
	}
	share, err := s.streams.Enter(call.caller.ID, 0)
	if err != nil {
		return err
	}
	defer share.Leave()
	if node := s.away(call, rec); node != "" {
		return s.forwardTerminal(c, node)
	}
	if err := call.reserve(streamPrice); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, terminalTimeout)
	defer cancel()
	term, err := s.cfg.Runner.Terminal(waiting, rec)
	if waiting.Err() != nil {
		e := fault.New(fault.ServerBusy, "exec %s waits for its turn; come again", rec.ExecID)
		e.RetryAfter = time.Second
		err = e
	}
	if err != nil {
		return err
	}
	if err := s.recordDownload(ctx, rec, "terminal", ""); err != nil {
		return err
	}
	check := min(streamCheck, s.cfg.TokenInterval)
	terminal.Client{
		Terminal: term, At: at, Check: check, Stall: s.cfg.Bounds.Rest, Closing: s.closing,
		Valid: func() error { return s.verifyAgain(c.Request(), time.Now(), check) },
		End: func(ctx context.Context) (json.RawMessage, error) {
			rec, err := s.cfg.Runner.WaitEnd(ctx, rec)
			if err != nil {
				return nil, err
			}
			return json.Marshal(execState(rec))
		},
	}.Serve(c.Response(), c.Request())
	return nil
}

// forwardTerminal connects a client with the node that runs an exec, which checks the client's
// token, until this node shuts down.
func (s *Server) forwardTerminal(c echo.Context, nodeID string) error {
	ctx, cancel := s.untilClosing(c.Request().Context())
	defer cancel()
	return s.forward(callFrom(ctx), c.Response(), c.Request().WithContext(ctx), nodeID)
}

// terminalTimeout is how long a client waits for the terminal of an exec that waits for its turn.
const terminalTimeout = 30 * time.Second
