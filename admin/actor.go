package admin

import "context"

// ActorType is how an actor reaches the installation.
type ActorType string

// The types.
const (
	ByToken   ActorType = "token"   // a request; without a token while none exists
	ByCommand ActorType = "command" // core-api on the command line
	ByNode    ActorType = "node"    // a server by itself
	ByUnknown ActorType = "unknown" // not set: an error of this program
)

// Actor is who acts.
type Actor struct {
	Type ActorType `json:"type"`
	ID   string    `json:"id"`   // of the token or node; "core-api" for a command
	Name string    `json:"name"` // of the token, or the user of the operating system who runs the command
}

// acting is the actor and the node of a context.
type acting struct {
	node  string
	actor Actor
}

type key struct{}

func from(ctx context.Context) acting {
	if a, ok := ctx.Value(key{}).(acting); ok {
		return a
	}
	return acting{actor: Actor{Type: ByUnknown}}
}

// OnNode returns a context for the work of a server. Its actor is the node, until By names another.
func OnNode(ctx context.Context, nodeID string) context.Context {
	return context.WithValue(ctx, key{}, acting{node: nodeID, actor: Actor{Type: ByNode, ID: nodeID}})
}

// By returns a context in which this actor acts, on the same node.
func By(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, key{}, acting{node: from(ctx).node, actor: a})
}
