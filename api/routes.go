package api

import (
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"secbox/api/contract"
	"secbox/api/wire"
	"secbox/fault"
)

// Paths of protocols other than plain HTTP. Their messages are not described by openapi.yaml, so no
// code is generated for them.
const (
	mcpPath      = "/mcp"
	linkPath     = "/ws" // the link of a user's machine
	transferPath = "/ws/transfers/{id}"
	ttyPath      = "/sandbox/execs/{exec_id}/tty"
)

// register adds every route to e, behind the gate of its operation. It fails if openapi.yaml and
// the routes differ.
func (s *Server) register(e *echo.Echo) error {
	gates := map[string][]echo.MiddlewareFunc{}
	for _, op := range s.contract.Operations {
		gates[op.ID] = []echo.MiddlewareFunc{s.gateOf(op)}
		if op.Takes(formType) {
			gates[op.ID] = append(gates[op.ID], s.uploads.Gate)
		}
	}
	wire.RegisterHandlersWithOptions(router{e}, wire.NewStrictHandler(s, []wire.StrictMiddlewareFunc{s.inTurn, writeRaw}),
		wire.RegisterHandlersOptions{OperationMiddlewares: gates})
	protocols := map[string]echo.HandlerFunc{
		mcpPath: s.serveMCP, linkPath: s.serveLink, transferPath: s.serveTransfer, ttyPath: s.serveTerminal,
	}
	for _, op := range s.contract.Operations {
		if serve := protocols[op.Path]; serve != nil {
			e.Add(op.Method, echoPath(op.Path), serve, gates[op.ID]...)
		}
	}

	// The generated code finds gates by operationId. If it is older than openapi.yaml, a route
	// could be without one.
	served := map[string]bool{}
	for _, route := range e.Routes() {
		served[route.Method+" "+contractPath(route.Path)] = true
	}
	for _, op := range s.contract.Operations {
		if !served[op.Method+" "+op.Path] {
			return fault.New(fault.Internal, "openapi.yaml has %s %s, but no route serves it: run go generate ./api", op.Method, op.Path)
		}
		delete(served, op.Method+" "+op.Path)
		if op.Method == "GET" {
			delete(served, "HEAD "+op.Path)
		}
	}
	for _, id := range takesTurns {
		if !slices.ContainsFunc(s.contract.Operations, func(op contract.Operation) bool { return op.ID == id }) {
			return fault.New(fault.Internal, "takesTurns has %s, but openapi.yaml has no such operation", id)
		}
	}
	for route := range served {
		return fault.New(fault.Internal, "%s is served, but not in openapi.yaml: run go generate ./api", route)
	}
	return nil
}

// router adds what path templates of OpenAPI cannot express: every GET answers HEAD, too, and the
// last parameter of a download takes slashes.
type router struct{ *echo.Echo }

const tail = "/:path"

func (r router) GET(path string, h echo.HandlerFunc, m ...echo.MiddlewareFunc) *echo.Route {
	if head, ok := strings.CutSuffix(path, tail); ok {
		path, h = head+"/*", nameTail(h)
	}
	r.HEAD(path, h, m...)
	return r.Echo.GET(path, h, m...)
}

// nameTail gives echo's parameter * the name that the generated code reads.
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

// echoPath turns /a/{b} into echo's /a/:b.
func echoPath(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// contractPath turns echo's /a/:b/* into /a/{b}/{path}.
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
