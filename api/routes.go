package api

import (
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"secbox/fault"
	"secbox/tokens"
)

// register puts the generated routes on e, each behind the gate of its operation in the contract.
func (s *Server) register(e *echo.Echo) error {
	gates := map[string][]echo.MiddlewareFunc{}
	for _, op := range s.contract.operations {
		gates[op.id] = []echo.MiddlewareFunc{s.gate(op)}
		if op.takes("multipart/form-data") {
			gates[op.id] = append(gates[op.id], s.uploads.gate)
		}
	}
	RegisterHandlersWithOptions(router{e}, NewStrictHandler(s, nil), RegisterHandlersOptions{OperationMiddlewares: gates})
	for _, op := range s.contract.operations {
		if serve := s.rawHandler(op.path); serve != nil {
			e.Add(op.method, echoPath(op.path), serve, gates[op.id]...)
		}
	}

	// The generated code attaches gates by operationId. Were contract and code of different ages, a route could be without one.
	served := map[string]bool{}
	for _, route := range e.Routes() {
		served[route.Method+" "+contractPath(route.Path)] = true
	}
	for _, op := range s.contract.operations {
		if !served[op.method+" "+op.path] {
			return fault.New(fault.Internal, "openapi.yaml has %s %s, but no route serves it: run go generate ./api", op.method, op.path)
		}
		delete(served, op.method+" "+op.path)
		if op.method == "GET" {
			delete(served, "HEAD "+op.path)
		}
	}
	for route := range served {
		return fault.New(fault.Internal, "%s is served, but not in openapi.yaml: run go generate ./api", route)
	}
	return nil
}

// gate is what every request to an operation passes first: known query parameters, a token, a role that may.
func (s *Server) gate(op operation) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			call := callFrom(c.Request().Context())
			call.route, call.request = op.path, c.Request()
			if slices.Contains(c.ParamValues(), "") {
				return fault.New(fault.NotFound, "a part of the path is empty; /docs lists the routes")
			}
			if !op.public {
				caller, err := s.authenticate(c.Request())
				if err != nil {
					return err
				}
				call.caller = caller
				if !op.allows(caller.Role) {
					return fault.New(fault.Forbidden, "a token with the role %s may not use %s %s; allowed are: %s",
						caller.Role, op.method, op.path, roleNames(op.roles))
				}
			}
			if err := checkQuery(op, c); err != nil {
				return err
			}
			return s.bounded(op, c, next)
		}
	}
}

// checkQuery refuses parameters that the operation does not know, because a filter with a typo must not list everything, and asks for those
// that it needs.
func checkQuery(op operation, c echo.Context) error {
	if _, err := url.ParseQuery(c.Request().URL.RawQuery); err != nil { // QueryParams leaves out what cannot be read
		return fault.New(fault.InvalidRequest, "the query of the address cannot be read: %s; write %% as %%25 and ; as %%3B", clip(err.Error()))
	}
	var bad fault.Fields
	for name, values := range c.QueryParams() {
		switch {
		case !slices.Contains(op.query, name):
			reason := "there is no such parameter"
			if len(op.query) > 0 {
				reason += "; known are " + strings.Join(op.query, ", ")
			}
			bad.Add(clip(name), "%s", reason)
		case len(values) > 1:
			bad.Add(name, "is given more than once")
		}
	}
	for _, name := range op.needs {
		if c.QueryParam(name) == "" {
			bad.Add(name, "is missing")
		}
	}
	return bad.Err()
}

// router puts the generated routes on echo: every GET answers HEAD too, and the last parameter of a download takes slashes, which the
// contract's path templates cannot say.
type router struct{ *echo.Echo }

const tail = "/:path"

func (r router) GET(path string, h echo.HandlerFunc, m ...echo.MiddlewareFunc) *echo.Route {
	if head, ok := strings.CutSuffix(path, tail); ok {
		path, h = head+"/*", nameTail(h)
	}
	r.HEAD(path, h, m...)
	return r.Echo.GET(path, h, m...)
}

// nameTail gives echo's * the name under which the generated code asks for it.
func nameTail(h echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		names := slices.Clone(c.ParamNames())
		for i, name := range names {
			if name == "*" {
				names[i] = strings.TrimPrefix(tail, "/:")
			}
		}
		c.SetParamNames(names...)
		return h(c)
	}
}

// rawHandler serves a path whose answers are not made from the contract; nil for all others.
func (s *Server) rawHandler(path string) echo.HandlerFunc {
	switch path {
	case mcpPath:
		return s.serveMCP
	case linkPath:
		return s.serveLink
	case transferPath:
		return s.serveTransfer
	}
	return nil
}

// echoPath turns the contract's /a/{b} into echo's /a/:b.
func echoPath(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// contractPath turns echo's /a/:b/* into the contract's /a/{b}/{path}.
func contractPath(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if name, ok := strings.CutPrefix(part, ":"); ok {
			parts[i] = "{" + name + "}"
		} else if part == "*" {
			parts[i] = "{path}"
		}
	}
	return strings.Join(parts, "/")
}

func roleNames(roles []tokens.Role) string {
	names := make([]string, len(roles))
	for i, role := range roles {
		names[i] = string(role)
	}
	return strings.Join(names, ", ")
}
