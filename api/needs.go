package api

import (
	"context"
	"io"
	"net/http"
	"time"

	"secbox/audit"
	"secbox/policy"
	"secbox/runner"
	"secbox/sandbox"
	"secbox/skills"
	"secbox/skills/invoke"
	"secbox/skills/library"
	"secbox/tokens"
)

// Runner runs execs. All methods are safe for concurrent use, and their errors carry a fault code.
type Runner interface {
	// Run runs one exec to its closed row; a result whatever the exit code. Errors name the audited exec, where there is one, in
	// fault.Error.ExecID. The end of ctx does not stop an exec that was admitted.
	Run(ctx context.Context, req runner.Request) (runner.Result, error)

	// Refuse puts a request on record that is refused with fault.Forbidden or fault.PathRefused, and returns that error, with the record's id
	// when there is a record. Any other error comes back as it is.
	Refuse(ctx context.Context, req runner.Request, why error) error

	// Cancel asks for the end of an exec and does not wait for it. fault.UnknownExec, fault.ExecEnded.
	Cancel(ctx context.Context, execID string) error

	// Resolve is the policy that Run would apply. It runs nothing and writes nothing.
	Resolve(ctx context.Context, req runner.Request) (policy.Snapshot, error)

	// Artifacts opens what an exec left; fault.ArtifactsPending while it runs. The caller closes it.
	Artifacts(ctx context.Context, rec audit.Record) (runner.Artifacts, error)

	// OpenPublished opens manifest.json or meta.json of an exec that has ended; fault.UnknownArtifact when it has none, and
	// fault.ArtifactAltered when it is not the one on record. The caller closes it.
	OpenPublished(ctx context.Context, rec audit.Record, name string) (io.ReadSeekCloser, runner.Artifact, error)

	// OpenOutput opens the captured bytes of "stdout" or "stderr", so far as there are any, and says how many. The caller closes it.
	OpenOutput(ctx context.Context, rec audit.Record, stream string) (io.ReadSeekCloser, int64, error)
}

// History is the record of what ran. Safe for concurrent use; fault.DatabaseUnavailable when it cannot be read.
type History interface {
	// Get returns one record; fault.UnknownExec when there is none.
	Get(ctx context.Context, execID string) (audit.Record, error)

	// List returns at most limit records, newest first, after the cursor (nil: from the newest); fewer when they are large. next is where
	// the next page begins, nil when there is none.
	List(ctx context.Context, f audit.Filter, after *audit.Cursor, limit int) (items []audit.Record, next *audit.Cursor, err error)

	// Stats counts the newest records created at since or later and before until, only those of one token when requestedBy is not empty.
	Stats(ctx context.Context, since, until time.Time, requestedBy string) (audit.Stats, error)
}

// Health looks at what an exec needs. Safe for concurrent use.
type Health interface {
	// Report never fails: what could not be looked at is one of its problems. Status HealthReportStatusUnavailable means that an
	// exec could not run now.
	Report(ctx context.Context) HealthReport

	// Ready is nil when requests should be sent here, and else says why not. It is asked often, so it is cheap.
	Ready(ctx context.Context) error
}

// Pool tells which containers wait for a job. Safe for concurrent use.
type Pool interface {
	Report() PoolReport
}

// Skills is the catalog. Safe for concurrent use.
type Skills interface {
	// Now is the catalog as it is; never nil, and another pointer once it has changed.
	Now() *skills.Snapshot
}

// Invoker runs skills. Safe for concurrent use.
type Invoker interface {
	// Invoke runs a skill to its closed row; a result whatever the exit code. An error means that the skill did not run:
	// fault.UnknownSkill, fault.InvalidInputs, or what Runner.Run returns. The end of ctx does not stop an exec that was admitted.
	Invoke(ctx context.Context, req invoke.Request) (invoke.Result, error)
}

// Library keeps the skills of agents and their users, and the plain files of the users' workspaces. Safe for concurrent use; paths are
// relative, with slashes, as they came from strangers. Errors carry a fault code: UnknownSkill, UnknownFile, PathRefused, InvalidRequest,
// and for what changes something SkillMoved, SkillConflict, ReservedSkill, DiskFull, DatabaseUnavailable. What fails has changed nothing.
type Library interface {
	// Upload makes the archive the newest version of a skill. The archive is read until Upload returns.
	Upload(ctx context.Context, o library.Owner, scope library.Scope, filename string, zip io.ReaderAt, size int64) (library.Uploaded, error)

	// List returns the user's skills by id; Files and Read look into one of them.
	List(ctx context.Context, o library.Owner) ([]library.Listed, error)
	Files(ctx context.Context, o library.Owner, skillID string) ([]string, error)
	Read(ctx context.Context, o library.Owner, skillID, path string) ([]byte, error)
	ReadLines(ctx context.Context, o library.Owner, skillID, path string, r library.LineRange) ([]string, error)

	// Tools returns the user's packages that carry a manifest.json: those that can be invoked, and what is wrong with the others.
	Tools(ctx context.Context, o library.Owner) ([]*skills.Skill, []skills.Broken, error)

	// Edit writes a file of the user's own copy, whole when lines is nil.
	Edit(ctx context.Context, o library.Owner, skillID, path string, content []byte, lines *library.LineRange) error

	// Materialise puts the user's copy into the workspace, where execs find it.
	Materialise(ctx context.Context, o library.Owner, skillID string) error

	// GlobalDigest names the content of the installation's own skill.
	GlobalDigest() (string, error)

	Delete(ctx context.Context, o library.Owner, skillID string, scope library.Scope) error
	Promote(ctx context.Context, o library.Owner, skillID string, force bool, reviewed ...string) (library.Promoted, error)
	Sync(ctx context.Context, o library.Owner, skillID string, force bool) (library.Synced, error)
	Diff(ctx context.Context, o library.Owner, skillID string) (diff, digest string, err error)

	// Download writes the skill as a ZIP. What fails before the first byte has written nothing.
	Download(ctx context.Context, o library.Owner, skillID string, w io.Writer) error

	// SandboxFiles, SandboxRead, SandboxReadLines and SandboxEdit are the same for the plain files of the workspace.
	SandboxFiles(ctx context.Context, o library.Owner) ([]string, error)
	SandboxRead(ctx context.Context, o library.Owner, path string) ([]byte, error)
	SandboxReadLines(ctx context.Context, o library.Owner, path string, r library.LineRange) ([]string, error)
	SandboxEdit(ctx context.Context, o library.Owner, path string, content []byte, lines *library.LineRange) error
}

// Sandboxes are where users work: a router behind a record of what ran. Safe for concurrent use. Errors are those of package sandbox.
type Sandboxes interface {
	sandbox.Backend

	// Chosen is what holds for a user now; the choice of the default has no time.
	Chosen(ctx context.Context, userID string) (sandbox.Choice, error)

	// Choose puts a user into a backend; fault.InvalidRequest for one that is not there.
	Choose(ctx context.Context, c sandbox.Choice) (sandbox.Choice, error)

	// Backends are the names of those that are switched on.
	Backends() []string
}

// Runners are the users' machines that dial in. Safe for concurrent use.
type Runners interface {
	// Connected are those that are connected to this node, by user and name.
	Connected() []ConnectedRunner

	// ServeLink and ServeTransfer answer a request that has passed the gate: the caller is a runner's token. The body is unread.
	ServeLink(w http.ResponseWriter, r *http.Request, caller tokens.Token)
	ServeTransfer(w http.ResponseWriter, r *http.Request, id string, caller tokens.Token)
}

// MCP answers a request to /mcp that has passed the gate: the caller may use the route, and the query holds nothing that is unknown. The
// body is bounded and unread. The memory that it takes is counted until the answer is sent; hold counts bytes more, fault.ServerBusy when they have
// no room, and what keeps some of it for longer calls release when that has ended.
type MCP func(w http.ResponseWriter, r *http.Request, caller tokens.Token, hold func(bytes int64) (release func(), err error))

// Tokens knows who may use the API. Safe for concurrent use.
type Tokens interface {
	// Verify returns the token of a secret: fault.Unauthenticated, fault.TokenRevoked, fault.DatabaseUnavailable.
	Verify(ctx context.Context, secret string) (tokens.Token, error)

	// Names returns the names of tokens by their ids; one that is not known is left out.
	Names(ctx context.Context, ids []string) (map[string]string, error)

	// Any reports whether a token that is not a runner's exists or has existed: from then on every request needs one.
	Any(ctx context.Context) (bool, error)
}
