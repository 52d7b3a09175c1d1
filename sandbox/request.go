package sandbox

import "context"

// Request is what an audit row says of the request that a command came from, beyond the command itself.
type Request struct {
	RequestedBy    string // the token's id, or "loopback"
	TaskID         string
	ConversationID string
	SkillID        string
}

// Tokenless is the RequestedBy of a request that needed no token.
const Tokenless = "loopback"

type requestKey struct{}

// WithRequest says in whose name the commands of a context run: for the record, and for bounds of what one token may have at once.
func WithRequest(ctx context.Context, req Request) context.Context {
	return context.WithValue(ctx, requestKey{}, req)
}

// RequestOf is what WithRequest has said.
func RequestOf(ctx context.Context) Request {
	req, _ := ctx.Value(requestKey{}).(Request)
	return req
}
