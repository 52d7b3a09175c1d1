package api

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"secbox/access/tokens"
	"secbox/api/gate"
	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/export"
	"secbox/audit/report"
	"secbox/audit/retention"
	"secbox/audit/translog/proof"
	"secbox/audit/translog/verify"
	images "secbox/images/catalog"
	"secbox/packages/archive"
	"secbox/packages/catalog"
	"secbox/packages/library"
	"secbox/packages/registry"
	"secbox/policy"
	"secbox/replay"
	"secbox/runner"
	"secbox/runner/session"
	"secbox/runner/terminal"
	"secbox/runner/webhooks"
	"secbox/sandbox"
	"secbox/sandbox/places"
	"secbox/skills/invoke"
)

// All interfaces are safe for concurrent use, and their errors carry a fault code.

// Connections are the connections of execs; see audit.Connections.
type Connections interface {
	Connections(ctx context.Context, execID string, after int64, limit int) ([]audit.Connection, error)
}

// Runner runs execs.
type Runner interface {
	// Run returns when the record of the exec is complete, or, if it is asynchronous, when its
	// record says that it waits. An exit code other than 0 is not an error. An error names the
	// exec, if it has a record, in fault.Error.ExecID. The end of ctx does not stop an exec that
	// was admitted.
	Run(ctx context.Context, req runner.Request) (runner.Result, error)

	// RunAll puts asynchronous execs of one token into the queue, in one transaction, and returns
	// an outcome for each, in their order. After an error none will run.
	RunAll(ctx context.Context, reqs []runner.Request) ([]runner.Outcome, error)

	// Stdin waits until an exec on this node takes its standard input, and returns a writer for it,
	// whose Close ends the input. Writes fail with fault.ExecEnded when the command has ended.
	// fault.ExecEnded, fault.InvalidRequest.
	Stdin(ctx context.Context, rec audit.Record) (io.WriteCloser, error)

	// Refuse records a request that is refused with fault.Forbidden or fault.PathRefused, and
	// returns that error with the record's id. It returns any other error unchanged.
	Refuse(ctx context.Context, req runner.Request, why error) error

	// Cancel requests the end of an exec, by the actor of the context, and does not wait for it.
	// fault.UnknownExec, fault.ExecEnded.
	Cancel(ctx context.Context, execID string) error

	// StartSession starts a session, and returns its record when execs can run in it; replayed is
	// set if an earlier request with the same key has started it. fault.SessionLimit, and the
	// errors of Run.
	StartSession(ctx context.Context, req runner.SessionRequest) (rec audit.Record, replayed bool, err error)

	// Session returns a session that runs on this node; fault.SessionEnded.
	Session(id string) (session.State, error)

	// ExtendSession sets the times of a session that runs on this node, from now on; zero leaves
	// one as it is. record is called when the times are allowed, and nothing is set after its
	// error. fault.SessionEnded.
	ExtendSession(id string, idle, ttl time.Duration, record func() error) error

	// EndContext ends an interpreter of a session that runs on this node; false if there is none.
	EndContext(id, name string) bool

	// DialPort connects a visitor to a port of a session that runs on this node, on record. The
	// caller must close the connection. fault.SessionEnded, fault.SessionLimit,
	// fault.UpstreamFailed if no server accepts it.
	DialPort(ctx context.Context, id string, v runner.Visitor, port uint16) (net.Conn, error)

	// Inside returns the means to start programs of sandbox-init in a session.
	Inside(id string) session.Inside
	SessionUsage(ctx context.Context, rec audit.Record) (session.Samples, error)

	// WaitEnd returns the record of an exec when it has ended, or, without an error, as it is when
	// ctx ends.
	WaitEnd(ctx context.Context, rec audit.Record) (audit.Record, error)

	// Terminal waits until the command of an exec on this node has its terminal, and returns it.
	// fault.ExecEnded; fault.InvalidRequest if it has none.
	Terminal(ctx context.Context, rec audit.Record) (*terminal.Terminal, error)

	// Resolve returns the policy that Run would apply.
	Resolve(ctx context.Context, req runner.Request) (policy.Snapshot, error)

	// Artifacts opens the artifacts of an exec; fault.ArtifactsPending while it runs. The caller
	// closes them.
	Artifacts(ctx context.Context, rec audit.Record) (runner.Artifacts, error)

	// OpenPublished opens manifest.json, meta.json or terminal.cast; fault.UnknownArtifact if the
	// exec has none, fault.ArtifactAltered if it does not match the record. The caller closes it.
	OpenPublished(ctx context.Context, rec audit.Record, name string) (io.ReadSeekCloser, runner.Artifact, error)

	// OpenOutput opens the captured part of "stdout" or "stderr", and returns its size. The caller
	// closes it.
	OpenOutput(ctx context.Context, rec audit.Record, stream string) (io.ReadSeekCloser, int64, error)
}

// Webhooks has the callbacks of execs; see webhooks.Registry.
type Webhooks interface {
	// Resolve returns where the exec of a request with a callback_url, or with none, is told; empty
	// for nowhere. fault.InvalidRequest if it may not be told there.
	Resolve(ctx context.Context, requestedBy, url string) (string, error)

	// SetDefault sets the default address of a token, or removes it if it is empty; Default returns
	// it.
	SetDefault(ctx context.Context, requestedBy, url string) error
	Default(ctx context.Context, requestedBy string) (string, error)

	// NewSecret makes the secret that signs the webhooks of a token. fault.InvalidRequest while
	// webhooks are off.
	NewSecret(ctx context.Context, requestedBy string) (secret string, replaced bool, err error)

	// Delivery returns the delivery of an exec; nil if it has none.
	Delivery(ctx context.Context, execID string) (*webhooks.Delivery, error)
}

// History reads audit records. fault.DatabaseUnavailable if it cannot.
type History interface {
	// Spooled reports whether this node has the end of an exec and the database does not.
	Spooled(execID string) bool

	// Get returns one record; fault.UnknownExec if there is none.
	Get(ctx context.Context, execID string) (audit.Record, error)

	// List returns at most limit records after the cursor (nil: the newest), newest first; fewer if
	// they are large. next is nil on the last page.
	List(ctx context.Context, f audit.Filter, after *audit.Cursor, limit int) (items []audit.Record, next *audit.Cursor, err error)

	// Task counts the execs of a task, of one token if requestedBy is not empty.
	Task(ctx context.Context, taskID, requestedBy string) (audit.Task, error)

	// Stats counts records created in [since, until), of one token if requestedBy is not empty.
	Stats(ctx context.Context, since, until time.Time, requestedBy string) (audit.Stats, error)
}

// TransparencyLog is the log over the events of execs.
type TransparencyLog interface {
	// Checkpoint returns the newest checkpoint; fault.NotLogged for an empty log.
	Checkpoint(ctx context.Context) (string, error)

	// Tile returns a tile or a bundle of entries by its path below tile/ in C2SP tlog-tiles;
	// fault.UnknownFile if there is none.
	Tile(ctx context.Context, path string) ([]byte, error)

	// Subjects calls each for a page of the evidence, and returns the place of the next page; "" at
	// the end. fault.InvalidRequest for an unknown place.
	Subjects(ctx context.Context, at string, each func(verify.Subject) error) (next string, err error)

	// Prove returns the file that proves an exec; fault.NotLogged while the log does not have all
	// of its events.
	Prove(ctx context.Context, r audit.Record) ([]byte, error)

	// Attest returns an in-toto statement about an exec and its artifacts, signed with the log's
	// key. fault.NotLogged like Prove, fault.InvalidProof if the record was altered.
	Attest(ctx context.Context, r audit.Record, artifacts []proof.Subject) ([]byte, error)

	// ProveAdmin returns the file that proves an administrative event; fault.UnknownEvent, or
	// fault.NotLogged while the log does not have it.
	ProveAdmin(ctx context.Context, seq int64) ([]byte, error)
}

// AdminEvents reads administrative events; see admin.Store.
type AdminEvents interface {
	List(ctx context.Context, f admin.Filter, after *admin.Cursor, limit int) ([]admin.Event, error)
	Record(ctx context.Context, e admin.Event) error
}

// Exports writes audit records; see export.Exporter.
type Exports interface {
	// Write writes the records that match, and the checkpoint that covers them. It may fail before
	// the first byte is written.
	Write(ctx context.Context, w io.Writer, q export.Query) (export.Counts, error)
}

// Reports answers what happened in a span of time; see export.Reports.
type Reports interface {
	// Read counts at most most of the newest records of the span.
	Read(ctx context.Context, span report.Span, most int) (report.Answer, error)

	// WriteBundle writes the report with its evidence. It may fail before the first byte is
	// written: fault.NotLogged, and fault.InvalidRequest for a span with too many entries.
	WriteBundle(ctx context.Context, w io.Writer, span report.Span) error
}

// Images is the table of own images; see catalog.Store of the room images.
type Images interface {
	// List returns all images by name, without recipe and bill of materials.
	List(ctx context.Context) ([]images.Image, error)

	// Get returns an image; fault.UnknownImage.
	Get(ctx context.Context, name string) (images.Image, error)
}

// Retention tells what was removed by the rules of the settings, and has the holds that stop them.
type Retention interface {
	// Tombstones returns the tombstones of the execs.
	Tombstones(ctx context.Context, execIDs []string) ([]retention.Tombstone, error)

	visible.HoldStore
}

// Health checks what an exec needs.
type Health interface {
	// Report never fails: a check that fails is one of its problems.
	Report(ctx context.Context) wire.HealthReport

	// Ready returns nil if load balancers should send requests here, else the reason. It is called
	// often.
	Ready(ctx context.Context) error
}

// Pool reports the containers that wait for a job.
type Pool interface {
	Report() wire.PoolReport
}

// Invoker runs skills.
type Invoker interface {
	// Invoke returns when the record of the exec is complete. An exit code other than 0 is not an
	// error. An error means that the skill did not run: fault.UnknownSkill, fault.InvalidInputs, or
	// an error of Runner.Run. The end of ctx does not stop an exec that was admitted.
	Invoke(ctx context.Context, req invoke.Request) (invoke.Result, error)
}

// Replayer runs execs again.
type Replayer interface {
	// Replay returns when the record of the new exec is complete; see replay.Replayer.
	Replay(ctx context.Context, q replay.Request) (replay.Result, error)

	// Compare compares an exec with its replay. What cannot be read, or does not fit into memory,
	// is unknown.
	Compare(ctx context.Context, first, second audit.Record, reserve replay.Reserve) []replay.Point

	// Inputs lists at most limit inputs of an exec, from the one with the number from on, and says
	// which contents are kept.
	Inputs(ctx context.Context, rec audit.Record, from, limit int, reserve replay.Reserve) (replay.InputList, error)

	// OpenInput opens the kept content of an input; fault.UnknownInput, fault.InputNotKept,
	// fault.ArtifactAltered. The caller closes it.
	OpenInput(ctx context.Context, rec audit.Record, path string, reserve replay.Reserve) (io.ReadSeekCloser, audit.Input, error)
}

// Library stores the skills of agents and users, and the plain files of users' workspaces. Paths
// are relative and unchecked. Errors are UnknownSkill, UnknownFile, PathRefused, InvalidRequest,
// and for writes SkillMoved, SkillConflict, ReservedSkill, DiskFull, DatabaseUnavailable. A failed
// write has changed nothing.
type Library interface {
	visible.Packages
	libraryWrites
}

// libraryWrites is what a Library does beside reading packages.
type libraryWrites interface {
	// Upload makes the archive the newest version of a skill. It reads the archive until it
	// returns.
	UploadSome(ctx context.Context, o library.Owner, scope library.Scope, filename string, pick archive.Pick, zip io.ReaderAt,
		size int64) ([]library.Uploaded, error)

	// Edit writes a file of the user's own copy, the whole file if lines is nil.
	Edit(ctx context.Context, o library.Owner, skillID, path string, content []byte, lines *library.LineRange) error

	// Materialise copies the user's version into the workspace, where execs find it.
	Materialise(ctx context.Context, o library.Owner, skillID string) error

	// GlobalDigest returns the digest of the installation's own skill.
	GlobalDigest() (string, error)

	Delete(ctx context.Context, o library.Owner, skillID string, scope library.Scope) error
	Promote(ctx context.Context, o library.Owner, skillID string, force bool, reviewed ...string) (library.Promoted, error)
	Sync(ctx context.Context, o library.Owner, skillID string, force bool) (library.Synced, error)

	userFiles
}

// Catalog lists the skills and agents of users.
type Catalog interface {
	// Of returns the catalog of a user. It must not be changed.
	Of(ctx context.Context, user sandbox.User) (*catalog.Catalog, error)
}

// Registry has the skills and agents that users publish for each other; see registry.Registry.
// Errors are UnknownEntry, NameTaken, AlreadyInstalled, InvalidRequest, ReservedSkill, and the
// errors of the sandbox.
type Registry interface {
	Search(ctx context.Context, kind catalog.Kind, text string, by registry.Owner, after string, limit int) ([]registry.Entry, error)
	Entry(ctx context.Context, kind catalog.Kind, name string) (registry.Entry, error)
	Events(ctx context.Context, kind catalog.Kind, name string, after *registry.Cursor, limit int) ([]registry.Event, error)
	Publish(ctx context.Context, req registry.Request) (registry.Entry, error)
	Withdraw(ctx context.Context, req registry.Request) error
	Install(ctx context.Context, req registry.Request) (registry.Entry, error)
	Uninstall(ctx context.Context, req registry.Request) error
}

// Sandboxes are the users' sandboxes, with a record of every command. Errors come from package
// sandbox.
type Sandboxes interface {
	sandbox.Backend
	sandbox.Changer

	// Chosen returns the choice of a user. The default has no time.
	Chosen(ctx context.Context, userID string) (sandbox.Choice, error)

	// Choose sets the backend of a user; fault.InvalidRequest if it is not enabled.
	Choose(ctx context.Context, c sandbox.Choice) (sandbox.Choice, error)

	// Backends returns the names of the enabled backends.
	Backends() []string
}

// Projects are the projects on the disk.
type Projects interface {
	// Files returns the files of a project, which it makes if there is none and create is set;
	// fault.UnknownFile, and the errors of workspace.Project.
	Files(projectID string, create bool) (places.Files, error)

	// List returns the first limit projects after an id, in the order of their ids, for which may
	// is true, and whether there are more.
	List(ctx context.Context, after string, limit int, may func(projectID string) bool) (list []Project, more bool, err error)

	// Remove removes the files of a project on record, by the actor of the context, and returns how
	// many bytes they took; fault.UnknownFile, fault.ProjectInUse.
	Remove(ctx context.Context, projectID string) (bytes int64, err error)
}

// Project describes a project on the disk.
type Project struct {
	ID     string
	Bytes  *int64    // of work/ and the inputs on the disk; nil: not measured, or not to the end
	UsedAt time.Time // when its newest exec, session or change of a file was requested; zero: none is on record
}

// Runners are users' machines.
type Runners interface {
	// Connected returns those that are connected to any node, by user and name.
	Connected(ctx context.Context) []wire.ConnectedRunner

	// ServeLink and ServeTransfer answer a request of a runner's token. The body is unread.
	ServeLink(w http.ResponseWriter, r *http.Request, caller tokens.Token)
	ServeTransfer(w http.ResponseWriter, r *http.Request, id string, caller tokens.Token)
}

// Peers are the other nodes of the installation; see peer.Peers.
type Peers interface {
	// From returns the node that has forwarded a request; empty for one that comes from a client.
	// fault.NodeUnreachable if that cannot be verified.
	From(r *http.Request) (nodeID string, err error)

	// Other reports whether an id belongs to another node, and Reaches whether requests can be
	// forwarded to that node now.
	Other(nodeID string) bool
	Reaches(ctx context.Context, nodeID string) bool

	// Forward answers a request, which may arrive twice, with the answer of another node:
	// fault.NodeUnreachable. An error after the beginning of the answer says that it is incomplete;
	// a stream of events ends without one.
	Forward(w http.ResponseWriter, r *http.Request, nodeID string) error
}

// MCP answers a request to /mcp. The caller may use the route, the query is checked, and the body
// is limited and unread. The request's memory counts until it is answered. hold counts more bytes,
// or returns fault.ServerBusy, and keeps all of it counted until release is called.
type MCP func(w http.ResponseWriter, r *http.Request, caller tokens.Token, hold func(bytes int64) (release func(), err error))

// Tokens verifies bearer tokens.
type Tokens interface {
	gate.Tokens

	// ByID returns a token, revoked or not; fault.UnknownToken.
	ByID(ctx context.Context, id string) (tokens.Token, error)

	// Names returns the names of tokens by id. Unknown ids are left out.
	Names(ctx context.Context, ids []string) (map[string]string, error)
}
