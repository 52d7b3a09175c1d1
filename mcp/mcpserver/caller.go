package mcpserver

import (
	"context"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/access/tokens"
	"secbox/api/problem"
	"secbox/audit"
	"secbox/fault"
)

type (
	callerKey  struct{}
	holdKey    struct{}
	addressKey struct{} // the caller, as far as the address of the request tells
	serverKey  struct{} // the protocol server for a session that the request may open
)

// WithCaller sets the caller of a request. Its token is verified, and its role may use this
// endpoint.
func WithCaller(ctx context.Context, caller tokens.Token) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// A Hold counts more bytes of memory for a request, and keeps all of its bytes counted until
// release is called, even after the request. It returns fault.ServerBusy if they do not fit; never
// for 0.
type Hold func(bytes int64) (release func(), err error)

// WithHold sets the Hold of a request.
func WithHold(ctx context.Context, hold Hold) context.Context {
	return context.WithValue(ctx, holdKey{}, hold)
}

// caller is the caller of one request.
type caller struct {
	token   tokens.Token
	project string // ?project_id= of the address
	dotted  bool   // ?names=dotted of the address
	hold    Hold
	request context.Context // of the HTTP request; it ends when the client has gone
}

// extraCaller is the key of the caller in auth.TokenInfo.Extra.
const extraCaller = "secbox.caller"

// tokenInfo passes the caller of an HTTP request to the SDK. The SDK attaches it to each message,
// and lets only the caller that opened a session use it.
func tokenInfo(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
	who, _ := ctx.Value(addressKey{}).(caller)
	hold, ok := ctx.Value(holdKey{}).(Hold)
	if !ok {
		hold = func(int64) (func(), error) { return func() {}, nil }
	}
	who.hold, who.request = hold, ctx
	return &auth.TokenInfo{UserID: who.token.ID, Extra: map[string]any{extraCaller: who}}, nil
}

// callerOf returns the caller of the HTTP request that a message came with.
func callerOf(extra *mcp.RequestExtra) (caller, error) {
	if extra != nil && extra.TokenInfo != nil {
		if c, ok := extra.TokenInfo.Extra[extraCaller].(caller); ok {
			return c, nil
		}
	}
	return caller{}, fault.New(fault.Unauthenticated, "the caller is unknown; send the token with every request")
}

// reserve counts bytes of memory until the answer is sent; fault.ServerBusy if they do not fit.
func (c caller) reserve(bytes int64) error {
	release, err := c.hold(bytes)
	if err == nil {
		release()
	}
	return err
}

// maySee reports whether the caller may read a record: an admin all, others only their own.
func (c caller) maySee(rec audit.Record) bool {
	return c.token.Role == tokens.Admin || rec.RequestedBy == c.token.ID
}

// sessionProject returns the project of a session: the project in the endpoint's address, or else
// the only project of the token.
func (c caller) sessionProject() string {
	if c.project == "" && len(c.token.Projects) == 1 {
		return c.token.Projects[0]
	}
	return c.project
}

// projectOf returns the project of a call: its argument, or else the project in the endpoint's
// address, or else the only project of the token, or else a project for the token itself. A token
// with another scope needs an argument. With fault.Forbidden it returns the refused project.
func (c caller) projectOf(argument string) (string, error) {
	scope := c.token
	project := argument
	switch {
	case project != "":
	case c.project != "":
		project = c.project
	case len(scope.Projects) == 1:
		project = scope.Projects[0]
	case len(scope.Projects) == 0 && len(scope.Agents) == 0 && len(scope.Users) == 0:
		return "mcp-" + scope.ID, nil
	default:
		return "", fault.BadField("project_id",
			"is missing, and this token allows more than one project; give the argument project_id, or add ?project_id=… to the server's "+
				"address")
	}
	if scope.MayUse(project, "", "") {
		return project, nil
	}
	e := fault.New(fault.Forbidden, "project_id: the project %q is not in the token's scope; use one that is, or ask an administrator "+
		"for a token that covers it", problem.Clip(project))
	e.Fields = []fault.Field{{Field: "project_id", Reason: "is not in the token's scope"}}
	return project, e
}
