package fault

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"
)

// Code is a stable, machine-readable reason for a refusal or a failure.
type Code string

// The codes. Each has exactly one HTTP status and one exit code, see the table in codes.go.
const (
	InvalidJSON         Code = "invalid_json"          // the body is no JSON
	InvalidRequest      Code = "invalid_request"       // a field is unknown, missing or wrong; Fields says which
	InvalidCursor       Code = "invalid_cursor"        // a list cursor that this server did not create
	UnsupportedMedia    Code = "unsupported_media"     // the body's content type is not application/json
	BodyTooLarge        Code = "body_too_large"        // the body exceeds the server's limit
	BodyTooSlow         Code = "body_too_slow"         // the body arrives too slowly
	HeadersTooLarge     Code = "headers_too_large"     // the address and the headers exceed the server's limit
	TooManySignIns      Code = "too_many_sign_ins"     // too many sign-ins from the client's address have failed; again after Retry-After
	TooManyLivePages    Code = "too_many_live_pages"   // the token has as many live pages of the console open as it may
	TooManyChanges      Code = "too_many_changes"      // the token makes too many changes that leave an event; again after Retry-After
	ServerBusy          Code = "server_busy"           // running requests use all the memory, or all the time for validations
	Unauthenticated     Code = "unauthenticated"       // no token, or an unknown one
	TokenRevoked        Code = "token_revoked"         // a revoked token
	Forbidden           Code = "forbidden"             // the token's role or scope does not allow it
	ForeignHost         Code = "foreign_host"          // the Host header is not one of this server's
	ForeignOrigin       Code = "foreign_origin"        // a request of a web page of another origin
	PolicyDenied        Code = "policy_denied"         // a value above its ceiling, or one that no policy allows
	NotFound            Code = "not_found"             // no such route
	MethodNotAllowed    Code = "method_not_allowed"    // the route exists, the method does not
	UnknownExec         Code = "unknown_exec"          // no exec with this id that the caller may see
	UnknownSkill        Code = "unknown_skill"         // no skill with this id in the catalog
	UnknownArtifact     Code = "unknown_artifact"      // the exec left no such regular file
	UnknownInput        Code = "unknown_input"         // the exec has no input of this path
	InputNotKept        Code = "input_not_kept"        // there is no copy of the input's content, or none any more
	ArtifactsPending    Code = "artifacts_pending"     // the exec has not ended, so its artifacts are not collected
	ArtifactAltered     Code = "artifact_altered"      // a file of an exec does not match its manifest and its row
	NotLogged           Code = "not_logged"            // the transparency log does not have it yet
	NotReplayable       Code = "not_replayable"        // an exec cannot run again, or is no replay
	InvalidProof        Code = "invalid_proof"         // a proof does not prove what it says, or is not of the given key
	RemovedByRetention  Code = "removed_by_retention"  // the exec, or its artifacts, were removed by a rule of the settings
	UnknownHold         Code = "unknown_hold"          // no hold with this id
	UnknownToken        Code = "unknown_token"         // no token with this id
	UnknownEvent        Code = "unknown_event"         // no administrative event with this id
	UnknownSession      Code = "unknown_session"       // no MCP session with this id, or it has ended
	ProjectNameConflict Code = "project_name_conflict" // another project's name differs only by case
	ProjectDamaged      Code = "project_damaged"       // a link or a file is in the place of one of the project's directories
	InputInUse          Code = "input_in_use"          // a running exec was given this path with other content
	InputConflict       Code = "input_conflict"        // a file where a directory is needed, or the reverse
	ExecEnded           Code = "exec_ended"            // nothing left to cancel
	IdempotencyMismatch Code = "idempotency_mismatch"  // the key was used with another body
	InvalidInputs       Code = "invalid_inputs"        // the inputs do not match the skill's manifest; Fields says where
	FileChanged         Code = "file_changed"          // its content has changed since it was read
	SkillChanged        Code = "skill_changed"         // its folder changed while it was copied
	SkillMoved          Code = "skill_moved"           // another request has set another version since the caller read it
	PreconditionFailed  Code = "precondition_failed"   // If-Match names another version than the current one
	PathRefused         Code = "path_refused"          // a path that leaves its directory; Fields names it
	UnknownFile         Code = "unknown_file"          // no regular file at this path of a skill or a workspace
	SkillConflict       Code = "skill_conflict"        // the request does not fit this skill; see the message
	FileTooLarge        Code = "file_too_large"        // too many bytes to read or write at once
	TreeTooLarge        Code = "tree_too_large"        // too many files or folders to read
	InvalidArchive      Code = "invalid_archive"       // an uploaded archive that is not an accepted ZIP; the message names the entry
	SeveralSkills       Code = "several_skills"        // an uploaded archive of several skills; the errors name their folders
	ArchiveTooLarge     Code = "archive_too_large"     // an archive or its content exceeds a limit
	ReservedSkill       Code = "reserved_skill"        // the skill's id is one of the installation's own
	UnknownEntry        Code = "unknown_entry"         // no skill or agent of this name in the registry, or of this user
	NameTaken           Code = "name_taken"            // the name in the registry belongs to another author
	AlreadyInstalled    Code = "already_installed"     // the user has, or is getting, a skill or agent of this name
	ImageMissing        Code = "image_missing"         // the image is allowed, but the engine does not hold it
	RangeUnsatisfiable  Code = "range_unsatisfiable"   // a byte range beyond the end
	QueueFull           Code = "queue_full"            // too many execs wait already
	SkillsBusy          Code = "skills_busy"           // too many uploads, downloads or copies of skills at once
	DiskFull            Code = "disk_full"             // the workspace or the state dir has no room
	EngineUnavailable   Code = "engine_unavailable"    // the docker CLI or the engine behind it does not answer
	DatabaseUnavailable Code = "database_unavailable"  // the audit row cannot be written, so nothing may run
	Unsupported         Code = "unsupported"           // this backend of a sandbox cannot do it
	SandboxBusy         Code = "sandbox_busy"          // too many calls to one user's sandbox at once
	RunnerOffline       Code = "runner_offline"        // the user's machine is not connected, or disconnected before the request: nothing happened
	RunnerRefused       Code = "runner_refused"        // the user's machine does not allow it: see its --allow
	RunnerNameInUse     Code = "runner_name_in_use"    // another machine of the user is connected under this name
	RunnerProtocol      Code = "runner_protocol"       // the other side of a runner's link speaks another version, or none
	UpstreamFailed      Code = "upstream_failed"       // a service that this one uses, such as Feishu, or a user's machine refused or failed
	OutcomeUnknown      Code = "outcome_unknown"       // it may have happened; the outcome is not known
	ShuttingDown        Code = "shutting_down"         // this node ends
	Draining            Code = "draining"              // an operator drains this node: it takes no new commands
	UnknownNode         Code = "unknown_node"          // no node of this id in the database
	NodeUnreachable     Code = "node_unreachable"      // another node, which has the exec, does not answer or does not know this one
	NodeConflict        Code = "node_conflict"         // the state of the node does not allow this
	StateDirInUse       Code = "state_dir_in_use"      // another core-api holds this state dir
	InvalidSettings     Code = "invalid_settings"      // the settings file, environment or flags are wrong
	Internal            Code = "internal"              // an error of this service; see the log
)

// Field is one field that was refused and why. Asked, Ceiling and Layer are set by policy refusals only.
type Field struct {
	Field   string `json:"field"`
	Reason  string `json:"reason"`
	Asked   any    `json:"asked,omitempty"`
	Ceiling any    `json:"ceiling,omitempty"`
	Layer   string `json:"layer,omitempty"`
}

// Removal is a removal by retention, as its tombstone tells it.
type Removal struct {
	Part   string    `json:"part"`   // "record" or "artifacts"
	At     time.Time `json:"at"`     // in UTC
	Rule   string    `json:"rule"`   // the setting
	Days   int64     `json:"days"`   // its value
	Events int64     `json:"events"` // that were removed; their entries are in the transparency log
}

// Error is a failure with a stable code, a sentence for the user and, for the log only, its cause.
type Error struct {
	Code       Code
	Message    string        // the problem and its remedy; may be shown to any caller
	Fields     []Field       // the fields at fault, in the order of the request
	MoreFields int           // wrong fields that Fields leaves out
	ExecID     string        // the exec that was audited for this refusal, if any
	Removed    *Removal      // of RemovedByRetention: what was removed
	RetryAfter time.Duration // when to try again; 0: no hint
	Err        error         // the cause, for the log; never shown to a caller
}

// New returns an Error with a formatted message.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap returns an Error with a cause for the log.
func Wrap(code Code, err error, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Err: err}
}

// BadField returns the Error of one wrong field of a request.
func BadField(field, format string, args ...any) *Error {
	reason := fmt.Sprintf(format, args...)
	return &Error{Code: InvalidRequest, Message: field + ": " + reason, Fields: []Field{{Field: field, Reason: reason}}}
}

// Error returns the code, the message and the cause: for logs, not for callers.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Code))
	b.WriteString(": ")
	b.WriteString(e.Message)
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// From finds the Error in a chain; any other error becomes Internal with itself as the cause, so that its text is not shown.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: Internal, Message: "an internal error; the server's log has the details", Err: err}
}

// CodeOf returns the code of an error: "" for nil, Internal for an error without a code.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return From(err).Code
}

// Reason returns the system's description of an error, such as "permission denied", without the path.
func Reason(err error) string {
	var errno syscall.Errno
	var path *fs.PathError
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &path):
		return path.Err.Error()
	}
	return err.Error()
}

// Is reports whether err carries the code.
func Is(err error, code Code) bool { return err != nil && CodeOf(err) == code }
