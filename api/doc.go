// Package api is the HTTP API: it matches requests to routes, checks who may use them, decodes
// requests and encodes answers. openapi.yaml is the contract; the types, the handlers' interface,
// the roles of each route and the page at /docs are made from it.
//
// Start with openapi.yaml, needs.go (what the handlers call), server.go and gate.go (what surrounds
// a handler: authentication, limits, logs, errors), and one handler, execs.go. A handler implements
// a method of the generated wire.StrictServerInterface. Then read the packages in the order in
// which a request passes them:
//
//   - wire: the types and the routes, generated from openapi.yaml
//   - gate: Host, Origin, token and scope
//   - inflight: bounds on requests in progress: their number, memory, disk space and pace
//   - decode: strict JSON and plain text from request bodies
//   - upload: archives as multipart forms, kept on disk until they are unpacked
//   - visible: what a caller may read of execs and skills; shared with console
//   - remotefiles: plain files on a user's own machine
//   - content: answers that are bytes: pages with entity tags, files with ranges, archives
//   - sse: writes server-sent events, also for console
//   - ports: HTTP servers in sessions, from outside: host names, signed links, a proxy
//   - terminal: the WebSockets of execs' terminals
//   - sse/ssetest: only tests: a strict reader of server-sent events
//   - problem: writes errors, also for mcp
//   - contract: openapi.yaml as a table of operations and roles
//   - contracttest: only tests: compares every exchange with openapi.yaml
//   - docs: the page at /docs and the published contract
//
// The room must not know how an exec runs, where a record is kept or how a token is stored. It
// starts no container and opens no database.
package api

//go:generate go test -count=1 -run ^TestErrorCodes$ ./contract -write
//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -config oapi-codegen.yaml openapi.yaml
