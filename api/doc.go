// Package api is the HTTP API: it matches requests to routes, checks who may use them, decodes
// requests and encodes answers. openapi.yaml is the contract; the types, the handlers' interface,
// the roles of each route and the page at /docs are made from it.
//
// The package must not know how an exec runs, where a record is kept or how a token is stored: it calls the interfaces in needs.go. A handler
// implements a method of the generated wire.StrictServerInterface; authentication, limits, logs and errors are around the handlers, in gate.go and
// server.go.
package api

//go:generate go test -count=1 -run ^TestErrorCodes$ ./contract -write
//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -config oapi-codegen.yaml openapi.yaml
