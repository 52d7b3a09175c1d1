package api

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"secbox/access/tokens"
	"secbox/api/contract"
	"secbox/api/inflight"
	"secbox/api/problem"
	"secbox/audit/admin"
	"secbox/fault"
)

// Media types of request bodies.
const (
	formType = "multipart/form-data"
	jsonType = "application/json"
)

// gateOf returns what a request to an operation passes before its handler: the path's parameters,
// the token and its role, the query's parameters, and the limits of requests in progress.
func (s *Server) gateOf(op contract.Operation) echo.MiddlewareFunc {
	name := op.Method + " " + op.Path
	streams := slices.Contains([]string{linkPath, transferPath, ttyPath, mcpPath}, op.Path) // MCP's messages have spans of their own
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			call := callFrom(c.Request().Context())
			call.route = op.Path
			if slices.Contains(c.ParamValues(), "") {
				return fault.New(fault.NotFound, "a part of the path is empty; /docs lists the routes")
			}
			if !op.Public {
				caller, err := s.gate.Authenticate(c.Request())
				if err != nil {
					return err
				}
				call.caller = caller
				by := admin.Actor{Type: admin.ByToken, ID: caller.ID, Name: caller.Name}
				ctx := admin.By(c.Request().Context(), by)
				if !streams {
					ctx, call.span = s.cfg.Tracer.Serve(ctx, name)
				}
				c.SetRequest(c.Request().WithContext(ctx))
				if !op.Allows(caller.Role) {
					return fault.New(fault.Forbidden, "a token with the role %s may not use %s %s; allowed are: %s",
						caller.Role, op.Method, op.Path, roleNames(op.Roles))
				}
			}
			call.request = c.Request()
			if err := checkQuery(op, c); err != nil {
				return err
			}
			return s.limited(op, c, next)
		}
	}
}

func roleNames(roles []tokens.Role) string {
	names := make([]string, len(roles))
	for i, role := range roles {
		names[i] = string(role)
	}
	return strings.Join(names, ", ")
}

// checkQuery refuses unknown parameters, since a misspelled filter must not list everything, and
// missing required ones.
func checkQuery(op contract.Operation, c echo.Context) error {
	if _, err := url.ParseQuery(c.Request().URL.RawQuery); err != nil { // QueryParams drops malformed parameters
		return fault.New(fault.InvalidRequest, "malformed query: %s; write %% as %%25 and ; as %%3B", problem.Clip(err.Error()))
	}
	var bad fault.Fields
	for name, values := range c.QueryParams() {
		switch {
		case !slices.Contains(op.Query, name):
			reason := "there is no such parameter"
			if len(op.Query) > 0 {
				reason += "; known are " + strings.Join(op.Query, ", ")
			}
			bad.Add(problem.Clip(name), "%s", reason)
		case len(values) > 1:
			bad.Add(name, "is given more than once")
		}
	}
	for _, name := range op.Needs {
		if c.QueryParam(name) == "" {
			bad.Add(name, "is missing")
		}
	}
	return bad.Err()
}

// limited counts the memory of a request until its answer is sent, and makes the client send its
// body and read the answer at a minimum rate. It exempts the paths of users' machines, whose bodies
// are streams with other limits.
func (s *Server) limited(op contract.Operation, c echo.Context, next echo.HandlerFunc) error {
	if op.Path == linkPath || op.Path == transferPath {
		return next(c)
	}
	r, call, rest := c.Request(), callFrom(c.Request().Context()), s.cfg.Bounds.Rest
	var err error
	if call.memory, err = s.memory.Enter(call.caller.ID, 0); err != nil {
		return err
	}
	defer call.memory.Leave()
	if op.Path != mcpPath && op.Path != ttyPath { // their streams do not end
		c.Response().Writer = inflight.NewWriter(c.Response().Writer, call.memory, s.stillValid(op, r, time.Time{}), rest)
	}
	if r.Body == nil || r.Body == http.NoBody {
		return next(c)
	}
	memory := call.memory
	if op.Path == stdinPath {
		memory, rest = nil, noPace
	}
	if op.Takes(formType) || op.Path == filePath || strings.HasSuffix(op.Path, contentPath) { // goes to disk, within the quota of uploads
		memory = nil
	}
	body := inflight.NewBody(c.Response().Writer, r, memory, s.stillValid(op, r, time.Now()), op.Takes(jsonType), rest)
	r.Body, call.body = body, body
	if err := next(c); err == nil || body.Err() == nil {
		return err
	}
	return body.Err()
}

// stillValid returns a function that verifies the token of a request again, at most once in
// transferInterval. The interval begins at verified. If verified is zero, it begins at the first
// call, because an answer in one piece is sent by then. The function fails only if the token is no
// longer valid. It is not safe for concurrent use.
func (s *Server) stillValid(op contract.Operation, r *http.Request, verified time.Time) func() error {
	every := min(transferInterval, s.cfg.TokenInterval)
	var next time.Time
	if !verified.IsZero() {
		next = verified.Add(every)
	}
	return func() error {
		now := time.Now()
		if op.Public || now.Before(next) {
			return nil
		}
		begins := next.IsZero()
		call := callFrom(r.Context())
		interval := cmp.Or(call.verifyEvery, every)
		next = now.Add(interval)
		if begins {
			return nil
		}
		return s.verifyAgain(r, now, interval)
	}
}

// verifyAgain verifies the token of a request as it is now, or was within a time before. It fails
// only if the token is no longer valid.
func (s *Server) verifyAgain(r *http.Request, now time.Time, within time.Duration) error {
	err := s.checks.Do(r.Context(), callFrom(r.Context()).caller.ID, now, within, func(ctx context.Context) error {
		_, err := s.gate.Authenticate(r.WithContext(ctx))
		return err
	})
	if noLongerValid(err) {
		return err
	}
	return nil
}

// transferInterval is how often the token of an upload or download is verified again.
const transferInterval = time.Second

func noLongerValid(err error) bool {
	return fault.Is(err, fault.TokenRevoked) || fault.Is(err, fault.Unauthenticated)
}

// beginDeadlines sets the deadlines of the connection for a request whose operation is not known
// yet. It removes the deadlines of the request before, and limits the wait for a body that no
// handler reads.
func (s *Server) beginDeadlines(w http.ResponseWriter, r *http.Request) {
	conn := http.NewResponseController(w)
	_ = conn.SetWriteDeadline(time.Time{})
	if r.ContentLength != 0 {
		_ = conn.SetReadDeadline(time.Now().Add(s.cfg.Bounds.Rest))
	}
}
