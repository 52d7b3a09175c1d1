// Package audit is the record of what ran: one row per exec, its append-only events, and the spool that keeps a result when the
// database refuses it.
//
// The row is the latest word, the events are the history; both are written in one transaction. The package knows what a record
// is and in which order its life goes; it does not know SQL (store does), HTTP or Docker. Environment values, input contents and
// standard input never reach it.
package audit

import (
	"encoding/json"
	"time"
)

// Status is where an exec stands.
type Status string

// The statuses. Queued and Running are open, all others are final; only Lost may still become another one (a correction).
const (
	Queued    Status = "queued"
	Running   Status = "running"
	Succeeded Status = "succeeded"  // exit code 0
	Failed    Status = "failed"     // any other exit code
	Timeout   Status = "timeout"    // killed at its deadline
	OOMKilled Status = "oom_killed" // the main process was killed for memory
	Canceled  Status = "canceled"   // somebody asked for its end
	Rejected  Status = "rejected"   // refused, by policy or for its inputs; nothing ran
	Errored   Status = "error"      // the engine or this service failed, not the job
	Lost      Status = "lost"       // its node died; what became of it is not known
)

// Final reports whether nothing more is expected to happen to the exec.
func (s Status) Final() bool { return s != Queued && s != Running }

// Valid reports whether s is one of the statuses above.
func (s Status) Valid() bool {
	switch s {
	case Queued, Running, Succeeded, Failed, Timeout, OOMKilled, Canceled, Rejected, Errored, Lost:
		return true
	}
	return false
}

// Reason is the closed list of why an exec did not succeed; empty for one that did.
type Reason string

// The reasons.
const (
	NonzeroExit       Reason = "nonzero_exit"
	ReasonTimeout     Reason = "timeout"
	OOM               Reason = "oom"
	PIDsLimit         Reason = "pids_limit"
	DiskLimit         Reason = "disk_limit"
	ReasonCanceled    Reason = "canceled"
	PolicyDenied      Reason = "policy_denied"
	RefusalsOmitted   Reason = "refusals_omitted" // the row stands for refusals of a token that are not on record one by one; Detail counts them
	InputRefused      Reason = "input_refused"    // an input collides with what is there or in use
	Forbidden         Reason = "forbidden"        // the token may not use the project, agent or user
	PathRefused       Reason = "path_refused"     // an argument of a restricted command leads out of its directory
	ImageMissing      Reason = "image_missing"
	InvalidOutput     Reason = "invalid_output" // a skill ended well, but its output is not what its manifest promises
	EngineUnavailable Reason = "engine_unavailable"
	StartFailed       Reason = "start_failed"   // the container or the command could not be started
	ContainerLost     Reason = "container_lost" // the container vanished under the job: killed from outside
	ArtifactsLost     Reason = "artifacts_lost" // the job ended, but what it left could not be collected
	NodeLost          Reason = "node_lost"
	ShuttingDown      Reason = "shutting_down"
	InternalError     Reason = "internal_error"

	// Of commands in sandboxes.
	RunnerOffline  Reason = "runner_offline"  // the user's machine was not connected
	RunnerRefused  Reason = "runner_refused"  // the user's machine does not allow it
	OutcomeUnknown Reason = "outcome_unknown" // it may have run, and nobody can tell how it ended; a late result corrects it
)

// Input is one input file by its path under inputs/ and the digest of its content, never the content.
type Input struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// Record is one row of sandbox_execs. Times are UTC with microseconds, as both databases keep them; a zero time means "not yet".
type Record struct {
	ExecID          string          `json:"exec_id"` // UUIDv7
	ProjectID       string          `json:"project_id"`
	TaskID          string          `json:"task_id"`
	ConversationID  string          `json:"conversation_id"`
	AgentID         string          `json:"agent_id"`
	UserID          string          `json:"user_id"`
	SkillID         string          `json:"skill_id"`
	SkillDigest     string          `json:"skill_digest"` // of the files that ran; empty where they could change meanwhile
	Image           string          `json:"image"`        // as the policy named it
	ImageID         string          `json:"image_id"`     // sha256:… that really ran; empty when none was resolved
	Cmd             string          `json:"cmd"`
	Args            []string        `json:"args"`
	Cwd             string          `json:"cwd"`
	EnvKeys         []string        `json:"env_keys"` // sorted names, never values
	Inputs          []Input         `json:"inputs"`
	PolicySnapshot  json.RawMessage `json:"policy_snapshot"`
	Status          Status          `json:"status"`
	ExitCode        *int            `json:"exit_code"` // nil: it did not run, or its end was not reported
	ErrorReason     Reason          `json:"error_reason"`
	Detail          string          `json:"detail"`
	CreatedAt       time.Time       `json:"created_at"`
	StartedAt       time.Time       `json:"started_at,omitzero"` // when the command began; known at its end only, and then for good
	EndedAt         time.Time       `json:"ended_at,omitzero"`
	DurationMS      int64           `json:"duration_ms"`    // ended_at - started_at
	ArtifactsPath   string          `json:"artifacts_path"` // relative to the workspace root, with slashes
	ManifestDigest  string          `json:"manifest_digest"`
	StdoutTruncated bool            `json:"stdout_truncated"`
	StderrTruncated bool            `json:"stderr_truncated"`
	StdoutBytes     int64           `json:"stdout_bytes"` // all the job wrote, not only what was kept
	StderrBytes     int64           `json:"stderr_bytes"`
	ArtifactsBytes  int64           `json:"artifacts_bytes"`
	OOMEvents       int64           `json:"oom_events"`
	NodeID          string          `json:"node_id"`
	Backend         string          `json:"backend"` // "docker", also of a sandbox; "none" or "remote": a command in such a one; empty: it ran nowhere, and nobody knew where it would have
	Runner          string          `json:"runner"`  // which of the user's machines; of the backend "remote" only
	Warm            bool            `json:"warm"`
	RequestedBy     string          `json:"requested_by"` // the token's id; "loopback" when none was needed
	RequestDigest   string          `json:"request_digest"`
	IdempotencyKey  string          `json:"idempotency_key"`
	SettingsDigest  string          `json:"settings_digest"`

	// LargeLists describes those of args, env_keys and inputs that are larger than a record repeats; nil when none is.
	LargeLists map[string]LargeList `json:"large_lists,omitempty"`
}

// Duration is from start to end; zero when either is not known.
func (r Record) Duration() time.Duration {
	if r.StartedAt.IsZero() || r.EndedAt.Before(r.StartedAt) {
		return 0
	}
	return r.EndedAt.Sub(r.StartedAt)
}

// EventKind is what happened to a record.
type EventKind string

// The kinds of events.
const (
	EventCreated   EventKind = "created"
	EventStarted   EventKind = "started"
	EventEnded     EventKind = "ended"
	EventCorrected EventKind = "corrected" // a result that arrived after the row had been ended as lost
)

// Event is one line of the append-only history of an exec.
type Event struct {
	Seq    int64           `json:"seq"` // ascending within the database; gaps are normal
	ExecID string          `json:"exec_id"`
	Kind   EventKind       `json:"kind"`
	At     time.Time       `json:"at"` // by the database's clock
	NodeID string          `json:"node_id"`
	Data   json.RawMessage `json:"data"` // the record as it stood after the event; from the second event on as Record.Brief
}

// Filter narrows a list; empty fields do not.
type Filter struct {
	TaskID, ProjectID, ConversationID, SkillID, SkillDigest, AgentID, UserID string

	Backend, Runner string

	Statuses     []Status // any of these
	ErrorReason  Reason
	ExitCodeNot  *int      // only execs with an exit code, other than this one
	Since, Until time.Time // created_at: since inclusive, until exclusive

	RequestedBy string   // only execs of this token: what a worker may see
	Projects    []string // only these projects; nil: all
	Agents      []string // only these agents; nil: all
	Users       []string // only these users; nil: all

	Summary bool // the records come without args, env_keys, inputs, policy_snapshot and large_lists
}

// Cursor is the place after which a list goes on: the key of the last item seen. Lists run newest first by (created_at, exec_id).
type Cursor struct {
	CreatedAt time.Time
	ExecID    string
}
