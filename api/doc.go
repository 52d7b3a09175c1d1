// Package api is HTTP only: routes, who may use them, decoding, and problem documents. openapi.yaml is the contract; the types, the
// handlers' interface and the table of roles and routes come from it, and so does the page at /docs.
//
// The package must not know how an exec runs, where a record is kept or what a token looks like in a database: it asks the small
// interfaces in needs.go. Handlers sit behind the generated StrictServerInterface and everything around them is net/http, so that only
// routes.go, problem.go and the decoding glue know echo.
package api

//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -config oapi-codegen.yaml openapi.yaml
