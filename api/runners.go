package api

import (
	"context"

	"github.com/labstack/echo/v4"

	"secbox/api/gate"
	"secbox/api/wire"
	"secbox/fault"
)

func (s *Server) serveLink(c echo.Context) error {
	if s.cfg.Runners == nil {
		return noRunners()
	}
	s.cfg.Runners.ServeLink(c.Response(), c.Request(), callFrom(c.Request().Context()).caller)
	return nil
}

func (s *Server) serveTransfer(c echo.Context) error {
	if s.cfg.Runners == nil {
		return noRunners()
	}
	s.cfg.Runners.ServeTransfer(c.Response(), c.Request(), c.Param("id"), callFrom(c.Request().Context()).caller)
	return nil
}

func noRunners() error {
	return fault.New(fault.NotFound, "this server accepts no runners")
}

// ListRunners lists the connected machines of users in the token's scope.
func (s *Server) ListRunners(ctx context.Context, _ wire.ListRunnersRequestObject) (wire.ListRunnersResponseObject, error) {
	out := wire.ListRunners200JSONResponse{Items: []wire.ConnectedRunner{}}
	if s.cfg.Runners == nil {
		return out, nil
	}
	caller := callFrom(ctx).caller
	for _, r := range s.cfg.Runners.Connected(ctx) {
		if gate.HasUser(caller, r.UserID) {
			out.Items = append(out.Items, r)
		}
	}
	return out, nil
}
