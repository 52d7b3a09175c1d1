package api

import (
	"context"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"secbox/fault"
	"secbox/tokens"
)

// The paths that runners dial. What is said there is a protocol of its own.
const (
	linkPath     = "/ws"
	transferPath = "/ws/transfers/{id}"
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
	return fault.New(fault.NotFound, "this server takes no runners")
}

// ListRunners lists the machines that are connected, as far as the caller may know of their users.
func (s *Server) ListRunners(ctx context.Context, _ ListRunnersRequestObject) (ListRunnersResponseObject, error) {
	out := ListRunners200JSONResponse{Items: []ConnectedRunner{}}
	if s.cfg.Runners == nil {
		return out, nil
	}
	caller := callFrom(ctx).caller
	for _, r := range s.cfg.Runners.Connected() {
		if userInScope(caller, r.UserID) {
			out.Items = append(out.Items, r)
		}
	}
	return out, nil
}

// userInScope reports whether a token may know of a user, whichever agent serves them: one that is limited to projects, of those whose
// workspaces are among them.
func userInScope(caller tokens.Token, userID string) bool {
	if len(caller.Users) > 0 && !slices.Contains(caller.Users, userID) {
		return false
	}
	if len(caller.Projects) == 0 {
		return true
	}
	for _, project := range caller.Projects {
		if _, user, ok := strings.Cut(project, "~"); ok && user == userID {
			return true
		}
	}
	return false
}
