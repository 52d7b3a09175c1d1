package audit

import (
	"encoding/json"
	"slices"
	"time"
)

// Status is the state of an exec.
type Status string

// The statuses. Queued and Running are open, all others are final; only Lost may still become
// another one (a correction).
const (
	Queued    Status = "queued"
	Running   Status = "running"
	Succeeded Status = "succeeded"  // exit code 0
	Failed    Status = "failed"     // any other exit code
	Timeout   Status = "timeout"    // killed at its deadline
	OOMKilled Status = "oom_killed" // the kernel killed the main process for memory
	Canceled  Status = "canceled"   // a request ended it
	Rejected  Status = "rejected"   // refused, by policy or for its inputs; nothing ran
	Errored   Status = "error"      // the engine or this service failed, not the job
	Lost      Status = "lost"       // its node ended; the outcome is not known
)

// Statuses are all of them.
var Statuses = []Status{Queued, Running, Succeeded, Failed, Timeout, OOMKilled, Canceled, Rejected, Errored, Lost}

// Ended are the statuses of execs to which nothing more is expected to happen.
var Ended = slices.DeleteFunc(slices.Clone(Statuses), func(s Status) bool { return !s.Final() })

// Final reports whether nothing more is expected to happen to the exec.
func (s Status) Final() bool { return s != Queued && s != Running }

// Valid reports whether s is one of the statuses above.
func (s Status) Valid() bool { return slices.Contains(Statuses, s) }

// Reason is why an exec did not succeed; empty for one that did. The list is closed.
type Reason string

// The reasons.
const (
	NonzeroExit       Reason = "nonzero_exit"
	ReasonTimeout     Reason = "timeout"
	OOM               Reason = "oom"
	PIDsLimit         Reason = "pids_limit"
	BusError          Reason = "bus_error" // SIGBUS: /dev/shm or /tmp was full, or a mapped file was cut
	DiskLimit         Reason = "disk_limit"
	ReasonCanceled    Reason = "canceled"
	PolicyDenied      Reason = "policy_denied"
	RefusalsOmitted   Reason = "refusals_omitted" // the row counts refusals of a token that have no rows; see Detail
	InputRefused      Reason = "input_refused"    // an input conflicts with an existing file, or one in use
	Forbidden         Reason = "forbidden"        // the token may not use the project, agent or user
	PathRefused       Reason = "path_refused"     // an argument of a restricted command leads out of its directory
	ImageMissing      Reason = "image_missing"
	InvalidOutput     Reason = "invalid_output" // a skill succeeded, but its output does not match its manifest
	EngineUnavailable Reason = "engine_unavailable"
	StartFailed       Reason = "start_failed"   // the container or the command could not be started
	ContainerLost     Reason = "container_lost" // the container vanished under the job: killed from outside
	ArtifactsLost     Reason = "artifacts_lost" // the job ended, but its artifacts, or what it changed, could not be collected
	NodeLost          Reason = "node_lost"
	ShuttingDown      Reason = "shutting_down"
	QueueTimeout      Reason = "queue_timeout" // an asynchronous exec waited too long, and never ran
	TokenRevoked      Reason = "token_revoked" // the token of an asynchronous exec was revoked while it waited; it never ran
	SessionIdle       Reason = "session_idle"  // a session had no exec for its idle_ms
	SessionExpired    Reason = "session_expired"
	SessionEnded      Reason = "session_ended" // the session of an exec ended while it ran; see the session's own reason
	InternalError     Reason = "internal_error"

	// Of commands in sandboxes.
	RunnerOffline  Reason = "runner_offline"  // the user's machine was not connected
	RunnerRefused  Reason = "runner_refused"  // the user's machine does not allow it
	OutcomeUnknown Reason = "outcome_unknown" // it may have run, and the outcome is not known; a late result corrects it
)

// Priority orders the asynchronous execs that wait; empty for other execs.
type Priority string

// The priorities. An exec of a lower one starts when none of a higher one could start instead.
const (
	High   Priority = "high"
	Normal Priority = "normal"
	Low    Priority = "low"
)

// Kind is what a row records.
type Kind string

// The backends. Their traits are in package sandbox.
const (
	BackendDocker = "docker"
	BackendNone   = "none"   // commands in a user's sandbox on core-api's machine
	BackendRemote = "remote" // commands on users' own machines
)

// Backends are all backends, the default one first.
func Backends() []string { return []string{BackendDocker, BackendRemote, BackendNone} }

// The kinds of rows.
const (
	KindExec   Kind = "exec"   // a command
	KindChange Kind = "change" // of one file of a user's workspace, or a transfer of one to or from another service
)

// Input is one input file by its path under inputs/ and the digest of its content, never the
// content.
type Input struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
	Mode   string `json:"mode,omitempty"` // ModeExecutable; empty: 0644, as in records from before inputs had modes
}

// ModeExecutable is the mode of an executable input.
const ModeExecutable = "0755"

// InputsKept says whether the contents of an exec's inputs were kept for a replay. It is empty for
// an exec without inputs, for an exec whose end is not known, and for execs of older versions. The
// list is closed.
type InputsKept string

// The values of InputsKept.
const (
	Kept       InputsKept = "kept"
	KeptOff    InputsKept = "off"         // the settings keep none
	KeptNoRoom InputsKept = "no_room"     // they exceed the bound of all inputs
	KeptShare  InputsKept = "token_limit" // they exceed the bound of the token
	KeptFailed InputsKept = "failed"      // they could not be written
)

// Record is one row of sandbox_execs. Times are UTC with microseconds, as both databases keep them;
// a zero time means "not yet".
type Record struct {
	ExecID          string          `json:"exec_id" row:"key"` // UUIDv7
	Kind            Kind            `json:"kind"`              // empty: KindExec
	ProjectID       string          `json:"project_id" row:"key"`
	TaskID          string          `json:"task_id" row:"key"`
	ConversationID  string          `json:"conversation_id" row:"key"`
	AgentID         string          `json:"agent_id" row:"key"`
	UserID          string          `json:"user_id" row:"key"`
	SkillID         string          `json:"skill_id" row:"key"`
	SkillDigest     string          `json:"skill_digest" row:"key"`     // of the files that ran; empty where they could change meanwhile
	Image           string          `json:"image"`                      // as the policy named it
	ImageID         string          `json:"image_id" row:"start,close"` // sha256:… of the image that ran; empty when none was resolved
	Cmd             string          `json:"cmd"`
	Args            []string        `json:"args" row:"large,brief"`
	Cwd             string          `json:"cwd"`
	EnvKeys         []string        `json:"env_keys" row:"large,brief"` // sorted names, never values
	Inputs          []Input         `json:"inputs" row:"large,brief"`
	PolicySnapshot  json.RawMessage `json:"policy_snapshot" row:"large"`
	Status          Status          `json:"status" row:"close"`
	ExitCode        *int            `json:"exit_code" row:"close"` // nil: it did not run, or its end was not reported
	ErrorReason     Reason          `json:"error_reason" row:"close"`
	Detail          string          `json:"detail" row:"start,close"`
	CreatedAt       time.Time       `json:"created_at"`
	StartedAt       time.Time       `json:"started_at,omitzero" row:"start,close"` // of the command; final only when it has ended
	EndedAt         time.Time       `json:"ended_at,omitzero" row:"close"`
	DurationMS      int64           `json:"duration_ms" row:"close"`    // ended_at - started_at
	ArtifactsPath   string          `json:"artifacts_path" row:"close"` // relative to the workspace root, with slashes
	ManifestDigest  string          `json:"manifest_digest" row:"close"`
	StdoutTruncated bool            `json:"stdout_truncated" row:"close"`
	StderrTruncated bool            `json:"stderr_truncated" row:"close"`
	StdoutBytes     int64           `json:"stdout_bytes" row:"close"` // all that the job wrote, kept or not
	StderrBytes     int64           `json:"stderr_bytes" row:"close"`
	ArtifactsBytes  int64           `json:"artifacts_bytes" row:"close"`
	OOMEvents       int64           `json:"oom_events" row:"close"`
	// CPU time of all processes in user and kernel mode, in microseconds; nil: not measured
	CPUUS          *int64 `json:"cpu_us" row:"close"`
	MaxRSSBytes    *int64 `json:"max_rss_bytes" row:"close"` // most resident memory of the largest process; nil: not measured
	NodeID         string `json:"node_id" row:"key,start,close"`
	Backend        string `json:"backend"`          // empty: it ran nowhere, and its sandbox was not known
	Runner         string `json:"runner" row:"key"` // which of the user's machines; of BackendRemote only
	Warm           bool   `json:"warm" row:"start,close"`
	Attached       bool   `json:"attached" row:"start,close"` // the container had been started for any project
	RequestedBy    string `json:"requested_by" row:"key"`     // the token's id; "loopback" when none was needed
	RequestDigest  string `json:"request_digest"`
	IdempotencyKey string `json:"idempotency_key" row:"key,close,clear"`
	SettingsDigest string `json:"settings_digest"`

	ReplayOf string `json:"replay_of" row:"key"` // the exec that this one runs again
	// keyed digests of the values of EnvKeys, in their order; see package hmackey
	EnvHMACs   []string   `json:"env_hmacs" row:"large,brief"`
	HMACSalt   string     `json:"hmac_salt"`               // of EnvHMACs and StdinHMAC; a replay has the salt of its first exec
	StdinHMAC  string     `json:"stdin_hmac" row:"close"`  // keyed digest of standard input; empty if there was none
	StdinBytes int64      `json:"stdin_bytes" row:"close"` // of standard input
	InputsKept InputsKept `json:"inputs_kept" row:"close"`

	// The span of a distributed trace, in hexadecimal: the span of the exec, or the span of the
	// request while this service exports no spans; empty for none.
	TraceID string `json:"trace_id" row:"key"`
	SpanID  string `json:"span_id"`

	// Of a change: the SHA-256 of the file's content in hexadecimal, empty if it is not known, and
	// "absent" if there was no file. The row of a change that did not succeed may have the digests
	// that were expected.
	SHA256Before string `json:"sha256_before" row:"close"`
	SHA256After  string `json:"sha256_after" row:"close"`
	SizeAfter    *int64 `json:"size_after" row:"close"` // of the content with SHA256After, in bytes; nil: not known

	// An asynchronous exec has no NodeID until a node starts it, and its job waits sealed in the
	// database until it ends.
	Async    bool     `json:"async"`
	Priority Priority `json:"priority"`

	// SessionID is the exec whose container this one has run in, or this exec itself if its
	// container stays for others: a session. SessionSeq is the place among the session's execs,
	// from 1; 0 for the session itself.
	SessionID  string `json:"session_id" row:"key"`
	SessionSeq int64  `json:"session_seq"`
	Context    string `json:"context"` // the session's interpreter that ran the command; empty: a process of its own

	// TTYRecord is what the recording of the exec's terminal has: RecordAll or RecordOutput; empty
	// if the command had no terminal.
	TTYRecord string `json:"tty_record"`

	// The connections that the command asked for; see Connection and Traffic.
	NetConnections int64  `json:"net_connections" row:"close"`
	NetDenied      int64  `json:"net_denied" row:"close"`
	NetBytesOut    int64  `json:"net_bytes_out" row:"close"`
	NetBytesIn     int64  `json:"net_bytes_in" row:"close"`
	NetDigest      string `json:"net_digest" row:"close"` // of the connections' rows; empty: there are none
	NetMarks       string `json:"net_marks" row:"close"`  // see RowDigests

	// LargeLists describes the large ones of args, env_keys, env_hmacs and inputs, which events do
	// not repeat; nil when there is none.
	LargeLists map[string]LargeList `json:"large_lists,omitempty" row:"large,brief"`

	// Unreadable has the beginnings of the values that the database has in columns of another type,
	// by column; nil when there is none. Only a change of the database past this program leaves
	// such a value. The field of the column is empty.
	Unreadable map[string]string `json:"unreadable,omitempty" row:"-"`

	// Request is what the caller of a skill asked: the arguments as RequestText has them; empty if
	// the settings keep no inputs, and in summaries. It is in a table of its own, and neither in
	// events nor in proofs, which have the digest of the whole input. It goes with the record.
	Request string `json:"-" row:"-"`

	// Connections are the rows of connections that the database has not taken before the exec's
	// end: Store.Close stores them, and so they wait with it in the spool. They are in no event.
	Connections []Connection `json:"connections,omitempty" row:"-"`
}

// What the recording of a terminal has.
const (
	RecordAll    = "all"    // what was shown and what was typed
	RecordOutput = "output" // what was shown; what was typed only where the terminal has echoed it
)

// IsSession reports whether the exec's container stays for others.
func (r Record) IsSession() bool { return r.SessionID != "" && r.SessionID == r.ExecID }

// Duration is from start to end; zero when either is not known.
func (r Record) Duration() time.Duration {
	if r.StartedAt.IsZero() || r.EndedAt.Before(r.StartedAt) {
		return 0
	}
	return r.EndedAt.Sub(r.StartedAt)
}

// EventKind is the kind of an event.
type EventKind string

// The kinds of events.
const (
	EventCreated   EventKind = "created"
	EventStarted   EventKind = "started"
	EventEnded     EventKind = "ended"
	EventCorrected EventKind = "corrected" // a result that arrived after the row had ended as lost
)

// Event is one line of the append-only history of an exec.
type Event struct {
	Seq    int64           `json:"seq"` // ascending within the database; gaps are normal
	ExecID string          `json:"exec_id"`
	Kind   EventKind       `json:"kind"`
	At     time.Time       `json:"at"` // by the database's clock
	NodeID string          `json:"node_id"`
	Data   json.RawMessage `json:"data"` // the record after the event; from the second event on Record.Brief
}

// Filter selects records; empty fields select all.
type Filter struct {
	TaskID, ProjectID, ConversationID, SkillID, SkillDigest, AgentID, UserID string

	Backend, Runner string

	ReplayOf   string
	TraceID    string
	SessionID  string // the session and the execs in it
	Sessions   bool   // only sessions
	InputsKept bool   // only execs whose inputs were kept

	Kind         Kind
	Statuses     []Status // any of these
	ErrorReason  Reason
	Network      NetworkUse
	ExitCodeNot  *int      // only execs with an exit code, other than this one
	Since, Until time.Time // created_at: since inclusive, until exclusive

	ExecIDs     []string // only these; nil: all
	RequestedBy string   // only execs of this token
	Projects    []string // only these projects; nil: all
	Agents      []string // only these agents; nil: all
	Users       []string // only these users; nil: all

	OldestFirst bool // the order of the list; cursors continue in it
	Summary     bool // the records come without args, env_keys, env_hmacs, inputs, policy_snapshot, large_lists and the request
	Commands    bool // the records come without what Summary leaves out, except args, large_lists and the request

	// the records have what a search looks at, and nothing else: exec_id, created_at, ids, cmd,
	// args, request, image, error_reason, detail
	OnlyCommands bool
	OnlyCallers  bool // the records have what a report needs, and nothing else: who, for whom, the outcome and its reason
}

// NetworkUse selects execs by their connections; empty: all.
type NetworkUse string

// The values of NetworkUse.
const (
	NetworkUsed   NetworkUse = "used"   // a connection was asked for
	NetworkDenied NetworkUse = "denied" // a connection was refused
)

// Cursor is the position after which a list continues: the key of the last item. Lists are in order
// of (created_at, exec_id), newest first unless the filter says otherwise.
type Cursor struct {
	CreatedAt time.Time
	ExecID    string
}
