package console

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"secbox/access/sessions"
	"secbox/access/tokens"
	"secbox/access/views"
	"secbox/api/visible"
	"secbox/audit"
	"secbox/audit/export"
	"secbox/audit/report"
	"secbox/audit/translog"
	"secbox/cluster/nodes"
	"secbox/cluster/samples"
	"secbox/engine"
	"secbox/health"
	images "secbox/images/catalog"
	"secbox/packages/catalog"
	"secbox/packages/registry"
	"secbox/policy"
	"secbox/replay"
	"secbox/runner"
	"secbox/runner/session"
	"secbox/runner/webhooks"
	"secbox/sandbox/remote"
)

// All interfaces are safe for concurrent use, and their errors carry a fault code.

// Door applies the checks and limits of package api to one request for a page; api.Door implements
// it.
type Door interface {
	// WithoutToken returns the caller of a request that needs no token; fault.Unauthenticated for
	// every other one.
	WithoutToken(r *http.Request) (tokens.Token, error)

	// ClientAddress returns the address of the client, behind trusted proxies, too.
	ClientAddress(r *http.Request) string

	// Secure reports whether the browser reaches this server by TLS.
	Secure(r *http.Request) bool

	// Enter counts a request against the limits of its caller until leave is called:
	// fault.ServerBusy. It returns the writer for the answer and the request with the caller as the
	// actor. valid is called while the answer is sent, and its error cuts the answer off.
	Enter(w http.ResponseWriter, r *http.Request, route string, caller tokens.Token, valid func() error) (out http.ResponseWriter,
		in *http.Request, leave func(), err error)

	// Export answers a request with all records that match, after Enter, as GET /audit/export does
	// and within the same bounds: fault.ServerBusy. A HEAD request gets the header only.
	Export(w http.ResponseWriter, r *http.Request, q export.Query) error

	// ExportReport answers a request with the bundle of a report, after Enter, within the bounds of
	// Export.
	ExportReport(w http.ResponseWriter, r *http.Request, span report.Span) error

	// Turn waits until it is the caller's turn to have a page made, after Enter. leave must be
	// called before the page is sent: fault.ServerBusy.
	Turn(ctx context.Context) (leave func(), err error)

	// Reserve counts bytes of memory before they are used, after Enter: fault.ServerBusy.
	Reserve(bytes int64) error

	// Away returns the node that runs the command of an exec, or has it in its queue, if that is
	// another one; empty: none. reachable is set if Forward and Relay can ask it.
	Away(ctx context.Context, rec audit.Record) (nodeID string, reachable bool)

	// Forward answers a request, after Enter, with the answer of another node:
	// fault.NodeUnreachable.
	Forward(w http.ResponseWriter, r *http.Request, nodeID string) error

	// Relay resumes an event stream from another node after the given event id. The header was
	// sent. passed is false if that node sent nothing.
	Relay(w http.ResponseWriter, r *http.Request, nodeID, lastEventID string) (passed bool)

	// Skills returns what callers may read of skills and packages, after Enter. Reading changes
	// nothing.
	Skills() visible.Skills
}

// Sessions keeps browsers signed in; see sessions.Service.
type Sessions interface {
	// Begin exchanges the secret of a token for the secret of a session.
	Begin(ctx context.Context, secret, address string) (session string, caller tokens.Token, err error)

	// Caller returns the token or person of a session: fault.Unauthenticated or fault.TokenRevoked
	// when it has ended.
	Caller(ctx context.Context, session string) (tokens.Token, error)

	// BeginPerson begins a session of the person whom identify returns; fault.Forbidden for one who
	// may not sign in, and the errors of identify.
	BeginPerson(ctx context.Context, address string, identify func(context.Context) (sessions.Person, error)) (session string,
		caller tokens.Token, err error)

	// End ends a session of a token or person.
	End(ctx context.Context, session string, caller tokens.Token) error

	// People returns people who signed in by single sign-on, newest first, after the one with an id
	// (empty: from the first).
	People(ctx context.Context, after string, limit int) ([]sessions.Person, error)

	// Block ends the sessions of a person, who cannot sign in until Unblock, by the actor of the
	// context. fault.NotFound.
	Block(ctx context.Context, id string) error
	Unblock(ctx context.Context, id string) error
}

// Images is the table of own images; see catalog.Store of the room images.
type Images interface {
	// List returns all images by name, without recipe and bill of materials.
	List(ctx context.Context) ([]images.Image, error)

	// Get returns an image; fault.UnknownImage.
	Get(ctx context.Context, name string) (images.Image, error)
}

// Connections are the connections of execs; see audit.Connections.
type Connections interface {
	Connections(ctx context.Context, execID string, after int64, limit int) ([]audit.Connection, error)
}

// Views keeps the views of the history that each token or person has saved; see views.Store.
type Views interface {
	// List returns the views of an owner by name.
	List(ctx context.Context, owner string) ([]views.View, error)

	// Save replaces the owner's view of this name; fault.InvalidRequest names the fields.
	Save(ctx context.Context, owner string, v views.View) error

	// Remove does nothing when there is no such view.
	Remove(ctx context.Context, owner, name string) error
}

// SignOn asks an OIDC provider who signs in; see sso.Provider.
type SignOn interface {
	// Name is the provider's host, and Origin the scheme and host of the console to which it sends
	// browsers back.
	Name() string
	Origin() string

	// Begin returns the provider's address to which a browser goes to sign in; secret is known to
	// this browser only.
	Begin(ctx context.Context, secret string) (address string, err error)

	// EndAddress returns the provider's address that ends the browser's session there and leads
	// back; empty if it has none.
	EndAddress(ctx context.Context) (string, error)

	// Finish returns the person whom the provider's answer names, by its parameters.
	Finish(ctx context.Context, secret string, answer url.Values) (sessions.Person, error)
}

// Tokens makes, lists and revokes tokens, by the actor of the context; see tokens.Service.
type Tokens interface {
	// Create returns a token with its secret, which is not stored; fault.InvalidRequest names the
	// fields.
	Create(ctx context.Context, spec tokens.Spec) (tokens.Token, string, error)

	// Page returns at most limit tokens, newest first, after the one with an id (empty: from the
	// newest); revoked ones only if they are asked for.
	Page(ctx context.Context, after string, revoked bool, limit int) ([]tokens.Token, error)

	// ByID returns the token with an id, revoked or not: fault.UnknownToken when there is none.
	ByID(ctx context.Context, id string) (tokens.Token, error)

	// OtherAdmin reports whether an admin token is valid apart from the one with an id.
	OtherAdmin(ctx context.Context, id string) (bool, error)

	// Revoke revokes a token; fault.UnknownToken when there is none with this id.
	Revoke(ctx context.Context, id string) (tokens.Token, error)
}

// Execs is what a caller may read of execs; see visible.Execs.
type Execs interface {
	Get(ctx context.Context, caller tokens.Token, execID string) (audit.Record, error)
	List(ctx context.Context, caller tokens.Token, f audit.Filter, after *audit.Cursor, limit int) ([]audit.Record, *audit.Cursor, error)
	Search(ctx context.Context, caller tokens.Token, f audit.Filter, after *audit.Cursor, most int,
		each func(audit.Record) bool) (*audit.Cursor, error)
	Recent(ctx context.Context, caller tokens.Token, hours int) (audit.Recent, error)
	Neighbour(ctx context.Context, caller tokens.Token, rec audit.Record, after bool) (execID string, err error)
	Names(ctx context.Context, caller tokens.Token, ids ...string) (map[string]string, error)
	ArtifactsRemoved(ctx context.Context, execIDs ...string) (map[string]time.Time, error)
	UnlessRemoved(ctx context.Context, rec audit.Record, err error) error
	RecordDownload(ctx context.Context, caller tokens.Token, rec audit.Record, what, path string) error
	RecordSearch(ctx context.Context, caller tokens.Token, text string, execs []audit.Record, streams map[string][]string) error
}

// Callbacks has the webhooks of execs; see webhooks.Store.
type Callbacks interface {
	// Delivery returns the webhook of an exec; nil if it has none.
	Delivery(ctx context.Context, execID string) (*webhooks.Delivery, error)
}

// Events has the history of each exec; see audit.Log.
type Events interface {
	Events(ctx context.Context, execID string) ([]audit.Event, error)

	// Spooled reports whether the database does not have the end of the exec yet, and this node has
	// it.
	Spooled(execID string) bool
}

// Runner has the files of execs, and ends them; see api.Runner.
type Runner interface {
	Cancel(ctx context.Context, execID string) error
	Artifacts(ctx context.Context, rec audit.Record) (runner.Artifacts, error)
	OpenOutput(ctx context.Context, rec audit.Record, stream string) (io.ReadSeekCloser, int64, error)
	OpenPublished(ctx context.Context, rec audit.Record, name string) (io.ReadSeekCloser, runner.Artifact, error)
	Resolve(ctx context.Context, req runner.Request) (policy.Snapshot, error)

	// Follow waits until the progress of an exec differs from seen; it returns the zero value for
	// an exec that this node does not run.
	Follow(ctx context.Context, execID string, seen runner.Progress) (runner.Progress, error)

	// Session returns a session that runs on this node; fault.SessionEnded.
	Session(id string) (session.State, error)
	Inside(id string) session.Inside

	// SessionUsage returns what the container of a session used; none if that is not known.
	SessionUsage(ctx context.Context, rec audit.Record) (session.Samples, error)

	// Refuse records a request that is refused, and returns the error with the record's id.
	Refuse(ctx context.Context, req runner.Request, why error) error
}

// Replayer runs execs again, and compares; see replay.Replayer.
type Replayer interface {
	Replay(ctx context.Context, q replay.Request) (replay.Result, error)
	Compare(ctx context.Context, first, second audit.Record, reserve replay.Reserve) []replay.Point
	Inputs(ctx context.Context, rec audit.Record, from, limit int, reserve replay.Reserve) (replay.InputList, error)
	OpenInput(ctx context.Context, rec audit.Record, path string, reserve replay.Reserve) (io.ReadSeekCloser, audit.Input, error)
}

// Proofs is the transparency log, which proves execs and administrative events; see translog.Log.
type Proofs interface {
	// Standing compares a row with its events, and these with the tree of the newest checkpoint.
	Standing(ctx context.Context, row audit.Record) (translog.Standing, error)

	// Prove returns fault.NotLogged while the log does not have all events of the exec.
	Prove(ctx context.Context, r audit.Record) ([]byte, error)

	// ProveAdmin returns fault.UnknownEvent, or fault.NotLogged while the log does not have the
	// event.
	ProveAdmin(ctx context.Context, seq int64) ([]byte, error)

	// State returns the state of the log. An error that wraps translog.ErrNoState says that the
	// database has lost it.
	State(ctx context.Context) (translog.State, error)

	// Checkpoint returns the newest checkpoint with the cosignatures that have arrived;
	// fault.NotLogged for an empty log.
	Checkpoint(ctx context.Context) (string, error)
}

// Nodes has the installation's nodes; see nodes.Store.
type Nodes interface {
	// List returns those that were seen within the duration, by their ids.
	List(ctx context.Context, within time.Duration) ([]nodes.Node, error)
}

// Samples has the numbers of the nodes of the last day; see samples.Store.
type Samples interface {
	Day(ctx context.Context, nodeID string) (samples.Day, error)
	Latest(ctx context.Context) (map[string]samples.Sample, error)
}

// Health checks this node; see health.Checker.
type Health interface {
	// Known never waits. Its Status is empty while the health is not known yet.
	Known(ctx context.Context) health.Report

	// Latest never fails: a check that fails is one of its problems. It may be some seconds old.
	Latest(ctx context.Context) health.Report
}

// Pool has the containers of this node that wait for a job; see engine.Pool.
type Pool interface {
	Stats() engine.PoolStats
}

// Runners has the users' machines; see relay.Machines.
type Runners interface {
	// Runners returns those that are connected to any node, by user and name.
	Runners(ctx context.Context) []remote.RunnerInfo
}

// Registry has what users published; see registry.Registry.
type Registry interface {
	Search(ctx context.Context, kind catalog.Kind, text string, by registry.Owner, after string, limit int) ([]registry.Entry, error)
	Entry(ctx context.Context, kind catalog.Kind, name string) (registry.Entry, error)
	Installed(ctx context.Context, o registry.Owner, kind catalog.Kind, name string) (registry.Install, bool, error)
	Events(ctx context.Context, kind catalog.Kind, name string, after *registry.Cursor, limit int) ([]registry.Event, error)
}
