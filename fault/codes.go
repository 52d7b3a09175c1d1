package fault

import "net/http"

// meaning is the external form of a code.
type meaning struct {
	status int    // HTTP
	exit   int    // of our binaries; 0 is success, 1 an unknown fault, 2 a usage error
	title  string // the problem document's title: the same words for every occurrence
}

// The table of HTTP status and exit codes. A test fails for a code without a row.
var meanings = map[Code]meaning{
	InvalidJSON:         {http.StatusBadRequest, 2, "The body is not valid JSON"},
	InvalidRequest:      {http.StatusBadRequest, 2, "The request is invalid"},
	InvalidCursor:       {http.StatusBadRequest, 2, "The cursor is invalid"},
	UnsupportedMedia:    {http.StatusUnsupportedMediaType, 2, "The content type is not supported"},
	BodyTooLarge:        {http.StatusRequestEntityTooLarge, 2, "The body is too large"},
	BodyTooSlow:         {http.StatusRequestTimeout, 7, "The body came too slowly"},
	HeadersTooLarge:     {http.StatusRequestHeaderFieldsTooLarge, 2, "The address and the headers are too large"},
	TooManySignIns:      {http.StatusTooManyRequests, 7, "Too many sign-ins have failed"},
	TooManyLivePages:    {http.StatusTooManyRequests, 7, "Too many live pages are open with this token"},
	TooManyChanges:      {http.StatusTooManyRequests, 7, "The token makes too many changes"},
	ServerBusy:          {http.StatusServiceUnavailable, 7, "The server has too much to do at once"},
	Unauthenticated:     {http.StatusUnauthorized, 3, "A valid token is needed"},
	TokenRevoked:        {http.StatusUnauthorized, 3, "The token was revoked"},
	Forbidden:           {http.StatusForbidden, 3, "The token does not allow this"},
	ForeignHost:         {http.StatusForbidden, 3, "The Host header is not this server's"},
	ForeignOrigin:       {http.StatusForbidden, 3, "Cross-origin requests are refused"},
	PolicyDenied:        {http.StatusForbidden, 3, "The policy does not allow this"},
	NotFound:            {http.StatusNotFound, 4, "There is no such route"},
	MethodNotAllowed:    {http.StatusMethodNotAllowed, 4, "The route does not take this method"},
	UnknownExec:         {http.StatusNotFound, 4, "There is no such exec"},
	UnknownSkill:        {http.StatusNotFound, 4, "There is no such skill"},
	UnknownArtifact:     {http.StatusNotFound, 4, "There is no such artifact"},
	UnknownInput:        {http.StatusNotFound, 4, "There is no such input"},
	InputNotKept:        {http.StatusGone, 4, "The content of the input is not kept"},
	ArtifactsPending:    {http.StatusConflict, 5, "The artifacts are not collected yet"},
	ArtifactAltered:     {http.StatusConflict, 5, "The artifact was changed after it was collected"},
	NotLogged:           {http.StatusConflict, 5, "The transparency log does not have it yet"},
	NotReplayable:       {http.StatusConflict, 5, "The exec cannot be replayed"},
	InvalidProof:        {http.StatusUnprocessableEntity, 6, "The proof is not valid"},
	RemovedByRetention:  {http.StatusGone, 4, "It was removed by retention"},
	UnknownHold:         {http.StatusNotFound, 4, "There is no such hold"},
	UnknownToken:        {http.StatusNotFound, 4, "There is no such token"},
	UnknownEvent:        {http.StatusNotFound, 4, "There is no such event"},
	UnknownSession:      {http.StatusNotFound, 4, "There is no such MCP session"},
	ProjectNameConflict: {http.StatusConflict, 5, "The project's name conflicts with another project"},
	ProjectDamaged:      {http.StatusConflict, 5, "Something else is in the place of a project's directory"},
	InputInUse:          {http.StatusConflict, 5, "A running exec uses this input"},
	InputConflict:       {http.StatusConflict, 5, "The input conflicts with an existing file"},
	ExecEnded:           {http.StatusConflict, 5, "The exec has ended"},
	IdempotencyMismatch: {http.StatusConflict, 5, "The idempotency key was used for another request"},
	InvalidInputs:       {http.StatusUnprocessableEntity, 6, "The inputs do not fit the skill"},
	FileChanged:         {http.StatusConflict, 5, "The file was changed meanwhile"},
	SkillChanged:        {http.StatusConflict, 5, "The skill was changed meanwhile"},
	SkillMoved:          {http.StatusConflict, 5, "Another version of the skill was set meanwhile"},
	PreconditionFailed:  {http.StatusPreconditionFailed, 5, "It is not the version that If-Match names"},
	PathRefused:         {http.StatusBadRequest, 2, "The path leads out of its directory"},
	UnknownFile:         {http.StatusNotFound, 4, "There is no such file"},
	SkillConflict:       {http.StatusConflict, 5, "The skill's state does not allow this"},
	FileTooLarge:        {http.StatusRequestEntityTooLarge, 2, "The file is too large"},
	TreeTooLarge:        {http.StatusUnprocessableEntity, 6, "There are too many files"},
	InvalidArchive:      {http.StatusBadRequest, 2, "The archive is not one that can be used"},
	SeveralSkills:       {http.StatusBadRequest, 2, "The archive holds several skills"},
	ArchiveTooLarge:     {http.StatusRequestEntityTooLarge, 2, "The archive is too large"},
	ReservedSkill:       {http.StatusConflict, 5, "The skill's id is reserved"},
	UnknownEntry:        {http.StatusNotFound, 4, "There is no such skill or agent"},
	NameTaken:           {http.StatusConflict, 5, "The name belongs to another author"},
	AlreadyInstalled:    {http.StatusConflict, 5, "It is installed already"},
	ImageMissing:        {http.StatusUnprocessableEntity, 6, "The engine does not hold the image"},
	RangeUnsatisfiable:  {http.StatusRequestedRangeNotSatisfiable, 2, "The range is beyond the end"},
	QueueFull:           {http.StatusTooManyRequests, 7, "Too many execs are waiting"},
	SkillsBusy:          {http.StatusServiceUnavailable, 7, "Too many skills are being moved at once"},
	DiskFull:            {http.StatusInsufficientStorage, 7, "There is no room on the disk"},
	EngineUnavailable:   {http.StatusServiceUnavailable, 7, "The Docker engine does not answer"},
	DatabaseUnavailable: {http.StatusServiceUnavailable, 7, "The database does not answer"},
	Unsupported:         {http.StatusNotImplemented, 5, "This sandbox cannot do that"},
	SandboxBusy:         {http.StatusServiceUnavailable, 7, "The sandbox has too much to do at once"},
	RunnerOffline:       {http.StatusServiceUnavailable, 7, "The user's machine is not connected"},
	RunnerRefused:       {http.StatusForbidden, 3, "The user's machine does not allow this"},
	RunnerNameInUse:     {http.StatusConflict, 5, "A runner of this name is connected"},
	RunnerProtocol:      {http.StatusBadGateway, 6, "The runner's link is not understood"},
	UpstreamFailed:      {http.StatusBadGateway, 7, "Another service refused or did not answer"},
	OutcomeUnknown:      {http.StatusBadGateway, 7, "It is not known whether this happened"},
	ShuttingDown:        {http.StatusServiceUnavailable, 7, "The server is shutting down"},
	Draining:            {http.StatusServiceUnavailable, 7, "The node is drained"},
	UnknownNode:         {http.StatusNotFound, 4, "There is no such node"},
	NodeUnreachable:     {http.StatusServiceUnavailable, 7, "Another node cannot be reached"},
	NodeConflict:        {http.StatusConflict, 5, "The node's state does not allow this"},
	StateDirInUse:       {http.StatusConflict, 5, "The state dir is in use"},
	InvalidSettings:     {http.StatusInternalServerError, 2, "The settings are invalid"},
	Internal:            {http.StatusInternalServerError, 1, "Internal error"},
}

// HTTPStatus returns the status of a problem document with this code.
func HTTPStatus(c Code) int { return look(c).status }

// ExitCode returns the exit code of our binaries for this error.
func ExitCode(c Code) int { return look(c).exit }

// Title returns the problem document's title: the same for every occurrence of the code.
func Title(c Code) string { return look(c).title }

func look(c Code) meaning {
	if m, ok := meanings[c]; ok {
		return m
	}
	return meanings[Internal]
}
