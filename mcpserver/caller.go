package mcpserver

import (
	"context"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/audit"
	"secbox/fault"
	"secbox/tokens"
)

type (
	callerKey  struct{}
	holdKey    struct{}
	projectKey struct{}
	serverKey  struct{} // the protocol server of a session that the request may open
)

// WithCaller says who makes a request: its token was checked, and its role may use this endpoint.
func WithCaller(ctx context.Context, caller tokens.Token) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// A Hold counts bytes more for a request and keeps what it takes counted until release is called, which may be after the end of the request;
// fault.ServerBusy when they have no room, and never for none.
type Hold func(bytes int64) (release func(), err error)

// WithHold says how the memory of a request is counted.
func WithHold(ctx context.Context, hold Hold) context.Context {
	return context.WithValue(ctx, holdKey{}, hold)
}

// caller is who makes one call, and what the address it was sent to says.
type caller struct {
	token   tokens.Token
	project string // ?project_id=
	hold    Hold
}

// extraCaller is where a caller is in the SDK's information on a token.
const extraCaller = "secbox.caller"

// tokenInfo passes the caller of an HTTP request through the SDK, which keeps it with each message and refuses a session to all but the
// one who opened it.
func tokenInfo(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
	token, _ := ctx.Value(callerKey{}).(tokens.Token)
	project, _ := ctx.Value(projectKey{}).(string)
	hold, ok := ctx.Value(holdKey{}).(Hold)
	if !ok {
		hold = func(int64) (func(), error) { return func() {}, nil }
	}
	return &auth.TokenInfo{UserID: token.ID, Extra: map[string]any{extraCaller: caller{token, project, hold}}}, nil
}

// callerOf is who sent a message: the HTTP request's caller, not the session's.
func callerOf(extra *mcp.RequestExtra) (caller, error) {
	if extra != nil && extra.TokenInfo != nil {
		if c, ok := extra.TokenInfo.Extra[extraCaller].(caller); ok {
			return c, nil
		}
	}
	return caller{}, fault.New(fault.Unauthenticated, "nobody knows who calls; send the token with every request")
}

// take counts bytes until the request's answer is sent; fault.ServerBusy when they have no room.
func (c caller) take(bytes int64) error {
	release, err := c.hold(bytes)
	if err == nil {
		release()
	}
	return err
}

// maySee is who sees an exec: a worker its own ones, an admin all.
func (c caller) maySee(rec audit.Record) bool {
	return c.token.Role == tokens.Admin || rec.RequestedBy == c.token.ID
}

// ofSession is the project that a session is for: what the address of the endpoint says, else the one project of the token.
func (c caller) ofSession() string {
	if c.project == "" && len(c.token.Projects) == 1 {
		return c.token.Projects[0]
	}
	return c.project
}

// projectOf chooses the project of a call: what its argument says, else the address of the endpoint, else the one project of the token,
// else one of the token's own. A token that is limited otherwise must be told.
// With fault.Forbidden it returns the project that was refused.
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
			"is missing, and this token allows more than one project; give the argument project_id, or add ?project_id=… to the server's address")
	}
	if scope.MayUse(project, "", "") {
		return project, nil
	}
	e := fault.New(fault.Forbidden, "project_id: the project %q is not in the token's scope; use one that is, or ask an administrator for a token that covers it", clip(project))
	e.Fields = []fault.Field{{Field: "project_id", Reason: "is not in the token's scope"}}
	return project, e
}

// clip keeps what a stranger sent short enough for a sentence.
func clip(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
