package admin

import (
	"context"
	"strings"
)

// ActorType is how an actor reaches the installation.
type ActorType string

// The types.
const (
	ByToken   ActorType = "token"   // a request; without a token while none exists
	ByPerson  ActorType = "person"  // a person who signed in by OIDC
	ByCommand ActorType = "command" // core-api on the command line
	ByNode    ActorType = "node"    // a server by itself
	ByUnknown ActorType = "unknown" // not set: an error of this program
)

// Actor is who acts.
type Actor struct {
	Type ActorType `json:"type"`
	ID   string    `json:"id"`   // of the token, person or node; CommandID for a command
	Name string    `json:"name"` // of the token or person, or the user of the operating system who runs the command
}

// CommandID is the id of the actor of a command.
const CommandID = "core-api"

// PersonPrefix begins the ids of people who signed in by OIDC: no token's id has a colon.
const PersonPrefix = "oidc:"

// Caller returns the actor of a request: a token or a person.
func Caller(id, name string) Actor {
	if strings.HasPrefix(id, PersonPrefix) {
		return Actor{Type: ByPerson, ID: id, Name: name}
	}
	return Actor{Type: ByToken, ID: id, Name: name}
}

// Calls reports whether the actor made a request. Records have the id of such an actor.
func (a Actor) Calls() bool { return a.Type == ByToken || a.Type == ByPerson }

// String names the actor in a sentence: the type, the name, and the id if it is another.
func (a Actor) String() string {
	if a.Name == "" || a.Name == a.ID {
		return string(a.Type) + " " + a.ID
	}
	return string(a.Type) + " " + a.Name + " (" + a.ID + ")"
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

// ActorOf returns the actor of a context. Its texts are at most MaxText bytes long and printable.
func ActorOf(ctx context.Context) Actor {
	a := from(ctx).actor
	return Actor{a.Type, text(a.ID), text(a.Name)}
}

// OnNode returns a context for the work of a server. Its actor is the node, until By names another.
func OnNode(ctx context.Context, nodeID string) context.Context {
	return context.WithValue(ctx, key{}, acting{node: nodeID, actor: Actor{Type: ByNode, ID: nodeID}})
}

// By returns a context in which this actor acts, on the same node.
func By(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, key{}, acting{node: from(ctx).node, actor: a})
}
