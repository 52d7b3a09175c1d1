package api

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"secbox/fault"
)

// mcpPath is a path whose answers are not made from the contract: MCP is a protocol of its own, and a stream in both directions.
const mcpPath = "/mcp"

// serveMCP hands a request over. Only a body that says how long it is can be refused with a problem document; another one ends at the limit,
// and then the connection does, too.
func (s *Server) serveMCP(c echo.Context) error {
	if s.cfg.MCP == nil {
		return fault.New(fault.NotFound, "this server offers no MCP")
	}
	limit := bodyBinder{maxBytes: s.cfg.MaxBodyBytes}
	r := c.Request()
	if r.ContentLength > limit.maxBytes {
		return limit.tooLarge()
	}
	if r.Body != nil {
		r.Body = http.MaxBytesReader(c.Response(), r.Body, limit.maxBytes)
	}
	call := callFrom(r.Context())
	if r.Method == http.MethodGet { // a stream without an end
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		go s.endWithToken(ctx, r, cancel)
		r = r.WithContext(ctx)
	}
	s.cfg.MCP(c.Response(), r, call.caller, func(bytes int64) (func(), error) {
		if bytes > 0 {
			if err := call.memory.grow(bytes); err != nil {
				return nil, err
			}
		}
		return call.memory.hold(), nil
	})
	return nil
}

// endWithToken calls end when the token of a request is not valid any more. It returns when ctx ends.
func (s *Server) endWithToken(ctx context.Context, r *http.Request, end func()) {
	look := time.NewTicker(s.cfg.TokenLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		switch _, err := s.authenticate(r); fault.CodeOf(err) {
		case fault.TokenRevoked, fault.Unauthenticated:
			end()
			return
		}
	}
}
