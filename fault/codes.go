package fault

import (
	"net/http"
	"slices"
)

// The codes: their names, HTTP status, exit codes and titles. Our binaries exit with the exit code;
// 0 is success, 1 an unknown fault, 2 a usage error. The title is a problem document's title, the
// same words for every occurrence. `go generate ./api` writes the names into openapi.yaml.
var (
	InvalidJSON = code("invalid_json", http.StatusBadRequest, 2, "The body is not valid JSON")
	// a field is unknown, missing or wrong; Fields says which
	InvalidRequest = code("invalid_request", http.StatusBadRequest, 2, "The request is invalid")
	// a list cursor that this server did not create
	InvalidCursor = code("invalid_cursor", http.StatusBadRequest, 2, "The cursor is invalid")
	// the body's content type is not application/json
	UnsupportedMedia = code("unsupported_media", http.StatusUnsupportedMediaType, 2, "The content type is not supported")
	BodyTooLarge     = code("body_too_large", http.StatusRequestEntityTooLarge, 2, "The body is too large")
	// no token, or an unknown one
	Unauthenticated = code("unauthenticated", http.StatusUnauthorized, 3, "A valid token is needed")
	TokenRevoked    = code("token_revoked", http.StatusUnauthorized, 3, "The token was revoked")
	// the token's role or scope does not allow it
	Forbidden   = code("forbidden", http.StatusForbidden, 3, "The token does not allow this")
	ForeignHost = code("foreign_host", http.StatusForbidden, 3, "The Host header is not this server's")
	// a request of a web page of another origin
	ForeignOrigin = code("foreign_origin", http.StatusForbidden, 3, "Cross-origin requests are refused")
	// a value above its ceiling, or one that no policy allows
	PolicyDenied     = code("policy_denied", http.StatusForbidden, 3, "The policy does not allow this")
	NotFound         = code("not_found", http.StatusNotFound, 4, "There is no such route")
	MethodNotAllowed = code("method_not_allowed", http.StatusMethodNotAllowed, 4, "The route does not take this method")
	// no exec with this id that the caller may see
	UnknownExec  = code("unknown_exec", http.StatusNotFound, 4, "There is no such exec")
	UnknownSkill = code("unknown_skill", http.StatusNotFound, 4, "There is no such skill")
	// the exec left no such regular file
	UnknownArtifact = code("unknown_artifact", http.StatusNotFound, 4, "There is no such artifact")
	// the exec has no input of this path
	UnknownInput = code("unknown_input", http.StatusNotFound, 4, "There is no such input")
	// there is no copy of the input's content, or none any more
	InputNotKept = code("input_not_kept", http.StatusGone, 4, "The content of the input is not kept")
	// the exec has not ended, so its artifacts are not collected
	ArtifactsPending = code("artifacts_pending", http.StatusConflict, 5, "The artifacts are not collected yet")
	// a file of an exec does not match its manifest and its row
	ArtifactAltered = code("artifact_altered", http.StatusConflict, 5, "The artifact was changed after it was collected")
	NotLogged       = code("not_logged", http.StatusConflict, 5, "The transparency log does not have it yet")
	// an exec cannot run again, or is no replay
	NotReplayable = code("not_replayable", http.StatusConflict, 5, "The exec cannot be replayed")
	// a proof does not prove what it says, or is not of the given key
	InvalidProof = code("invalid_proof", http.StatusUnprocessableEntity, 6, "The proof is not valid")
	// the exec, or its artifacts, were removed by a rule of the settings
	RemovedByRetention = code("removed_by_retention", http.StatusGone, 4, "It was removed by retention")
	UnknownHold        = code("unknown_hold", http.StatusNotFound, 4, "There is no such hold")
	UnknownToken       = code("unknown_token", http.StatusNotFound, 4, "There is no such token")
	UnknownEvent       = code("unknown_event", http.StatusNotFound, 4, "There is no such event")
	// no MCP session with this id, or it has ended
	UnknownSession = code("unknown_session", http.StatusNotFound, 4, "There is no such MCP session")
	// another project's name differs only by case
	ProjectNameConflict = code("project_name_conflict", http.StatusConflict, 5, "The project's name conflicts with another project")
	// a link or a file is in the place of one of the project's directories
	ProjectDamaged = code("project_damaged", http.StatusConflict, 5, "Something else is in the place of a project's directory")
	// execs or sessions run in the project, or it is held
	ProjectInUse = code("project_in_use", http.StatusConflict, 5, "The project is in use")
	InputInUse   = code("input_in_use", http.StatusConflict, 5, "A running exec uses this input")
	// a file where a directory is needed, or the reverse
	InputConflict       = code("input_conflict", http.StatusConflict, 5, "The input conflicts with an existing file")
	ExecEnded           = code("exec_ended", http.StatusConflict, 5, "The exec has ended")
	IdempotencyMismatch = code("idempotency_mismatch", http.StatusConflict, 5, "The idempotency key was used for another request")
	// the inputs do not match the skill's manifest; Fields says where
	InvalidInputs = code("invalid_inputs", http.StatusUnprocessableEntity, 6, "The inputs do not fit the skill")
	FileChanged   = code("file_changed", http.StatusConflict, 5, "The file was changed meanwhile")
	// its folder changed while it was copied
	SkillChanged = code("skill_changed", http.StatusConflict, 5, "The skill was changed meanwhile")
	// another request has set another version since the caller read it
	SkillMoved         = code("skill_moved", http.StatusConflict, 5, "Another version of the skill was set meanwhile")
	PreconditionFailed = code("precondition_failed", http.StatusPreconditionFailed, 5, "It is not the version that If-Match names")
	// a path that leaves its directory; Fields names it
	PathRefused = code("path_refused", http.StatusBadRequest, 2, "The path leads out of its directory")
	// no regular file at this path of a skill or a workspace
	UnknownFile = code("unknown_file", http.StatusNotFound, 4, "There is no such file")
	// the request does not fit this skill; see the message
	SkillConflict = code("skill_conflict", http.StatusConflict, 5, "The skill's state does not allow this")
	FileTooLarge  = code("file_too_large", http.StatusRequestEntityTooLarge, 2, "The file is too large")
	TreeTooLarge  = code("tree_too_large", http.StatusUnprocessableEntity, 6, "There are too many files")
	// an uploaded archive that is not an accepted ZIP; the message names the entry
	InvalidArchive = code("invalid_archive", http.StatusBadRequest, 2, "The archive is not one that can be used")
	// an uploaded archive of several skills; the errors name their folders
	SeveralSkills   = code("several_skills", http.StatusBadRequest, 2, "The archive holds several skills")
	ArchiveTooLarge = code("archive_too_large", http.StatusRequestEntityTooLarge, 2, "The archive is too large")
	// the skill's id is one of the installation's own
	ReservedSkill = code("reserved_skill", http.StatusConflict, 5, "The skill's id is reserved")
	// no skill or agent of this name in the registry, or of this user
	UnknownEntry = code("unknown_entry", http.StatusNotFound, 4, "There is no such skill or agent")
	NameTaken    = code("name_taken", http.StatusConflict, 5, "The name belongs to another author")
	// the user has, or is getting, a skill or agent of this name
	AlreadyInstalled = code("already_installed", http.StatusConflict, 5, "It is installed already")
	ImageMissing     = code("image_missing", http.StatusUnprocessableEntity, 6, "The engine does not hold the image")
	// no own image of this name
	UnknownImage = code("unknown_image", http.StatusNotFound, 4, "There is no such image")
	// another command builds or has changed the image
	ImageConflict = code("image_conflict", http.StatusConflict, 5, "The image was changed meanwhile")
	// it runs as root, has no sandbox-init, or failed a probe
	ImageUnfit         = code("image_unfit", http.StatusUnprocessableEntity, 6, "The image is not fit for execs")
	BuildFailed        = code("build_failed", http.StatusUnprocessableEntity, 6, "The image could not be built")
	RangeUnsatisfiable = code("range_unsatisfiable", http.StatusRequestedRangeNotSatisfiable, 2, "The range is beyond the end")
	QueueFull          = code("queue_full", http.StatusTooManyRequests, 7, "Too many execs are waiting")
	// too many sessions, or too many execs in one
	SessionLimit   = code("session_limit", http.StatusTooManyRequests, 7, "Too many sessions run, or too many execs in one")
	UnknownContext = code("unknown_context", http.StatusNotFound, 4, "The session has no such context")
	// no exec can run in it any more
	SessionEnded = code("session_ended", http.StatusConflict, 5, "The session has ended")
	// too many uploads, downloads or copies of skills at once
	SkillsBusy = code("skills_busy", http.StatusServiceUnavailable, 7, "Too many skills are being moved at once")
	// running requests use all the memory, or all the time for validations
	ServerBusy      = code("server_busy", http.StatusServiceUnavailable, 7, "The server has too much to do at once")
	BodyTooSlow     = code("body_too_slow", http.StatusRequestTimeout, 7, "The body came too slowly")
	HeadersTooLarge = code("headers_too_large", http.StatusRequestHeaderFieldsTooLarge, 2, "The address and the headers are too large")
	// too many sign-ins from the client's address have failed; again after Retry-After
	TooManySignIns   = code("too_many_sign_ins", http.StatusTooManyRequests, 7, "Too many sign-ins have failed")
	TooManyLivePages = code("too_many_live_pages", http.StatusTooManyRequests, 7, "Too many live pages are open with this token")
	// the token makes too many changes that leave an event; again after Retry-After
	TooManyChanges = code("too_many_changes", http.StatusTooManyRequests, 7, "The token makes too many changes")
	Unsupported    = code("unsupported", http.StatusNotImplemented, 5, "This sandbox cannot do that")
	// too many calls to one user's sandbox at once
	SandboxBusy = code("sandbox_busy", http.StatusServiceUnavailable, 7, "The sandbox has too much to do at once")
	// the user's machine is not connected, or disconnected before the request: nothing happened
	RunnerOffline = code("runner_offline", http.StatusServiceUnavailable, 7, "The user's machine is not connected")
	// the user's machine does not allow it: see its --allow
	RunnerRefused = code("runner_refused", http.StatusForbidden, 3, "The user's machine does not allow this")
	// another machine of the user is connected under this name
	RunnerNameInUse = code("runner_name_in_use", http.StatusConflict, 5, "A runner of this name is connected")
	// the other side of a runner's link speaks another version, or none
	RunnerProtocol = code("runner_protocol", http.StatusBadGateway, 6, "The runner's link is not understood")
	// a service that this one uses, such as Feishu, or a user's machine refused or failed
	UpstreamFailed = code("upstream_failed", http.StatusBadGateway, 7, "Another service refused or did not answer")
	OutcomeUnknown = code("outcome_unknown", http.StatusBadGateway, 7, "It is not known whether this happened")
	// the workspace or the state dir has no room
	DiskFull = code("disk_full", http.StatusInsufficientStorage, 7, "There is no room on the disk")
	// the docker CLI or the engine behind it does not answer
	EngineUnavailable = code("engine_unavailable", http.StatusServiceUnavailable, 7, "The Docker engine does not answer")
	// the audit row cannot be written, so nothing may run
	DatabaseUnavailable = code("database_unavailable", http.StatusServiceUnavailable, 7, "The database does not answer")
	// this node ends
	ShuttingDown = code("shutting_down", http.StatusServiceUnavailable, 7, "The server is shutting down")
	// an operator drains this node: it takes no new commands
	Draining     = code("draining", http.StatusServiceUnavailable, 7, "The node is drained")
	UnknownNode  = code("unknown_node", http.StatusNotFound, 4, "There is no such node")
	NodeConflict = code("node_conflict", http.StatusConflict, 5, "The node's state does not allow this")
	// another node, which has the exec, does not answer or does not know this one
	NodeUnreachable = code("node_unreachable", http.StatusServiceUnavailable, 7, "Another node cannot be reached")
	StateDirInUse   = code("state_dir_in_use", http.StatusConflict, 5, "The state dir is in use")
	// the settings file, environment or flags are wrong
	InvalidSettings = code("invalid_settings", http.StatusInternalServerError, 2, "The settings are invalid")
	// an error of this service; see the log
	Internal = code("internal", http.StatusInternalServerError, 1, "Internal error")
)

// meaning is the external form of a code.
type meaning struct {
	status int // HTTP
	exit   int
	title  string
}

// The table by its codes, and in its order.
var (
	codes    []Code
	meanings = map[Code]meaning{}
)

// code adds a code to the table.
func code(name Code, status, exit int, title string) Code {
	codes = append(codes, name)
	meanings[name] = meaning{status, exit, title}
	return name
}

// Codes returns all codes.
func Codes() []Code { return slices.Clone(codes) }

// HTTPStatus returns the status of a problem document with this code.
func HTTPStatus(c Code) int { return meaningOf(c).status }

// ExitCode returns the exit code of our binaries for this error.
func ExitCode(c Code) int { return meaningOf(c).exit }

// Title returns the problem document's title: the same for every occurrence of the code.
func Title(c Code) string { return meaningOf(c).title }

func meaningOf(c Code) meaning {
	if m, ok := meanings[c]; ok {
		return m
	}
	return meanings[Internal]
}
