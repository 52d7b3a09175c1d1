package api

import (
	"context"
	"io"

	"secbox/audit"
	"secbox/policy"
	"secbox/runner"
	"secbox/tokens"
)

// Runner runs execs. All methods are safe for concurrent use, and their errors carry a fault code.
type Runner interface {
	// Run runs one exec to its closed row; a result whatever the exit code. Errors name the audited exec, where there is one, in
	// fault.Error.ExecID. The end of ctx does not stop an exec that was admitted.
	Run(ctx context.Context, req runner.Request) (runner.Result, error)

	// Cancel asks for the end of an exec and does not wait for it. fault.UnknownExec, fault.ExecEnded.
	Cancel(ctx context.Context, execID string) error

	// Resolve is the policy that Run would apply. It runs nothing and writes nothing.
	Resolve(ctx context.Context, req runner.Request) (policy.Snapshot, error)

	// Artifacts opens what an exec left; fault.ArtifactsPending while it runs. The caller closes it.
	Artifacts(ctx context.Context, rec audit.Record) (runner.Artifacts, error)

	// OpenOutput opens the captured bytes of "stdout" or "stderr", so far as there are any, and says how many. The caller closes it.
	OpenOutput(ctx context.Context, rec audit.Record, stream string) (io.ReadSeekCloser, int64, error)
}

// History is the record of what ran. Safe for concurrent use; fault.DatabaseUnavailable when it cannot be read.
type History interface {
	// Get returns one record; fault.UnknownExec when there is none.
	Get(ctx context.Context, execID string) (audit.Record, error)

	// List returns at most limit records, newest first, after the cursor (nil: from the newest).
	List(ctx context.Context, f audit.Filter, after *audit.Cursor, limit int) ([]audit.Record, error)
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

// Tokens knows who may use the API. Safe for concurrent use.
type Tokens interface {
	// Verify returns the token of a secret: fault.Unauthenticated, fault.TokenRevoked, fault.DatabaseUnavailable.
	Verify(ctx context.Context, secret string) (tokens.Token, error)

	// Any reports whether a valid token exists that is not a runner's: from then on every request needs one.
	Any(ctx context.Context) (bool, error)
}
