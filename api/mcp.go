package api

import (
	"net/http"

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
