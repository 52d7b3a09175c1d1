package api

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"secbox/api/decode"
	"secbox/fault"
)

// serveMCP passes a request to the MCP server. A body of declared length that is too large gets a
// problem document; one of unknown length ends at the limit, together with the connection.
func (s *Server) serveMCP(c echo.Context) error {
	if s.cfg.MCP == nil {
		return fault.New(fault.NotFound, "this server does not offer MCP")
	}
	r := c.Request()
	if r.ContentLength > s.cfg.MaxBodyBytes {
		return decode.TooLarge(s.cfg.MaxBodyBytes)
	}
	if r.Body != nil {
		r.Body = http.MaxBytesReader(c.Response(), r.Body, s.cfg.MaxBodyBytes)
	}
	call := callFrom(r.Context())
	if r.Method == http.MethodGet { // a stream that does not end
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		go s.endWithToken(ctx, r, cancel)
		r = r.WithContext(ctx)
	}
	s.cfg.MCP(c.Response(), r, call.caller, func(bytes int64) (func(), error) {
		if bytes > 0 {
			if err := call.memory.Grow(bytes); err != nil {
				return nil, err
			}
		}
		return call.memory.Hold(), nil
	})
	return nil
}

// endWithToken calls end when the token of a request is no longer valid. It returns when ctx ends.
func (s *Server) endWithToken(ctx context.Context, r *http.Request, end func()) {
	ticker := time.NewTicker(s.cfg.TokenInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if _, err := s.gate.Authenticate(r); noLongerValid(err) {
			end()
			return
		}
	}
}
