package mcpserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/access/tokens"
	"secbox/api/problem"
	"secbox/audit"
	"secbox/fault"
	"secbox/internal/traces"
	"secbox/mcp/tools"
	"secbox/policy"
	"secbox/runner"
	"secbox/skills"
	"secbox/skills/invoke"
)

// Invoker runs skills; see invoke.Invoker. An error is a *fault.Error and means that the skill did
// not run.
type Invoker interface {
	Invoke(ctx context.Context, req invoke.Request) (invoke.Result, error)
}

// Catalog has the skills that become tools; see skills.Catalog.
type Catalog interface {
	Now() *skills.Snapshot
	OnChange(f func(*skills.Snapshot))
}

// History finds records; fault.UnknownExec.
type History interface {
	Get(ctx context.Context, execID string) (audit.Record, error)
}

// Runner cancels execs, opens their files, and records refusals; see runner.Runner.
type Runner interface {
	Refuse(ctx context.Context, req runner.Request, why error) error
	Cancel(ctx context.Context, execID string) error
	Artifacts(ctx context.Context, record audit.Record) (runner.Artifacts, error)
	OpenOutput(ctx context.Context, record audit.Record, stream string) (io.ReadSeekCloser, int64, error)

	// Resolve returns the policy of a request. The snapshot is complete even beside an error.
	Resolve(ctx context.Context, req runner.Request) (policy.Snapshot, error)
}

// Downloads records downloads of files of other clients' execs; see admin.Downloads. Record must
// succeed before the file is sent.
type Downloads interface {
	Record(ctx context.Context, execID, what, path string) error
}

// Config is the configuration of a Server. Fields without a default are required.
type Config struct {
	Invoker Invoker
	Catalog Catalog // its OnChange is used once
	// Packages are the users' own skills; nil: none.
	Packages Packages
	// Tools begins the work of a session in a user's workspace; nil, or a nil result: there are
	// only skills.
	Tools func(projectID string) *tools.Session
	// Servers are the MCP servers in users' sandboxes; nil: none. Its OnChange is used once. It
	// needs Packages and Tools.
	Servers UserServers
	// Sandboxes runs commands in sessions of the sandbox; nil: there are none.
	Sandboxes SandboxSessions
	History   History
	Runner    Runner
	// Downloads must be set.
	Downloads Downloads
	Version   string // of the program
	NodeID    string // of this node
	Logger    *slog.Logger
	Tracer    *traces.Tracer // nil: no spans

	MaxBodyBytes int64         // of one HTTP request; 0: no limit
	MaxSessions  int           // 0: 1,000; one token may have three quarters of them
	SessionIdle  time.Duration // after which an idle session ends; 0: 30 minutes
	UserInterval time.Duration // how often the packages of a user with a session are read again; 0: 2 seconds
}

const (
	defaultMaxSessions  = 1000
	defaultSessionIdle  = 30 * time.Minute
	defaultUserInterval = 2 * time.Second
	closeTimeout        = 5 * time.Second // for calls in progress when the server closes
	maxBatch            = 50              // messages in one request
)

// Spellings of tool names: values of the query parameter names. Without it, names have underscores.
// Calls take both spellings.
const (
	namesDotted     = "dotted"
	namesUnderscore = "underscore"
)

// Server is the MCP endpoint. It is safe for concurrent use.
type Server struct {
	cfg      Config
	tools    *toolSet // of the catalog
	users    *userTools
	handler  http.Handler
	sessions *sessions

	ended      context.Context // ends with the background work
	stop       context.CancelFunc
	background sync.WaitGroup
	closing    sync.Once
}

// New makes a Server. The caller must call Close.
func New(cfg Config) (*Server, error) {
	if cfg.Invoker == nil || cfg.Catalog == nil || cfg.History == nil || cfg.Runner == nil || cfg.Downloads == nil || cfg.Logger == nil {
		return nil, errors.New("mcpserver: the configuration is not complete")
	}
	cfg.MaxSessions = cmp.Or(max(0, cfg.MaxSessions), defaultMaxSessions)
	cfg.SessionIdle = cmp.Or(max(0, cfg.SessionIdle), defaultSessionIdle)
	cfg.UserInterval = cmp.Or(max(0, cfg.UserInterval), defaultUserInterval)
	s := &Server{cfg: cfg}
	s.ended, s.stop = context.WithCancel(context.Background())
	s.tools = s.newToolSet(instructions)
	s.users = &userTools{server: s, packages: cfg.Packages, interval: cfg.UserInterval, byKey: map[string]*user{}}
	s.sessions = newSessions(cfg.MaxSessions, s.closeSession)
	sdk := mcp.NewStreamableHTTPHandler(
		func(r *http.Request) *mcp.Server { return r.Context().Value(serverKey{}).(*mcp.Server) },
		// The HTTP server has checked the Host header; the SDK's check knows only loopback. It has
		// also limited the body.
		&mcp.StreamableHTTPOptions{
			DisableLocalhostProtection: true, MaxRequestBodyBytes: -1, Logger: s.sdkLogger(),
			EventStore: &events{sessions: map[string]*sessionEvents{}},
		},
	)
	s.handler = auth.RequireBearerToken(tokenInfo, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(sdk)
	if cfg.Servers != nil {
		cfg.Servers.OnChange(s.users.serversChanged)
	}
	cfg.Catalog.OnChange(func(*skills.Snapshot) { s.syncTools() })
	s.syncTools()
	s.background.Go(func() { s.sessions.expire(s.ended, cfg.SessionIdle) })
	return s, nil
}

func (s *Server) newProtocolServer(instructions string) *mcp.Server {
	if s.cfg.Sandboxes != nil {
		instructions += sessionInstructions
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "secbox", Title: "secbox", Version: s.cfg.Version}, &mcp.ServerOptions{
		Instructions: instructions,
		Logger:       s.sdkLogger(),
		Capabilities: &mcp.ServerCapabilities{
			Tools: &mcp.ToolCapabilities{ListChanged: true}, Resources: &mcp.ResourceCapabilities{},
		},
		// Lists and files depend on the token. The SDK's default is public.
		SetCacheable:              func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" },
		SupportedProtocolVersions: protocolVersions(),
	})
	server.AddReceivingMiddleware(s.traced, refuseForeignURIs)
	server.AddResourceTemplate(artifactTemplate(), s.readResource)
	return server
}

// protocolVersions returns the versions with sessions. The SDK knows later ones, which it serves
// only without sessions, and would name in errors.
func protocolVersions() []string {
	return slices.DeleteFunc(mcp.SupportedProtocolVersions(), func(v string) bool {
		return !new(mcp.StreamableServerTransport).SupportsProtocolVersion(v)
	})
}

const instructions = `Each tool whose name begins with skill_ runs one skill in a fresh, isolated container without a network, under limits of time, memory and disk, ` +
	`and puts it on record. Calls with the same project_id share the files of that project: what one call leaves in /workspace/work, ` +
	`the next one finds; files for you go to /workspace/artifacts and come back as links to resources exec://{exec_id}/{path}. ` +
	`A call that fails says why, with the exec's id and, where a limit was hit, which one.`

// sessionInstructions are for servers with sessions of the sandbox.
const sessionInstructions = ` session_run and session_python share one container that stays while you work: ` +
	`files in /tmp, processes, and the variables of a Python. Their files for you go to the directory in the variable SECBOX_ARTIFACTS.`

// workspaceInstructions are for sessions that have the tools of package tools, too.
const workspaceInstructions = instructions +
	` The other tools work on the user's own files in /workspace, wherever those are: files_cd, files_glob and files_grep find ` +
	`them, files_read and files_edit read and change them, shell runs commands beside them.`

// sdkLogger lowers the level of the SDK's messages: it logs every start and end of a session as
// Info.
func (s *Server) sdkLogger() *slog.Logger { return slog.New(demoter{s.cfg.Logger.Handler()}) }

// ServeHTTP answers one request. Its context must have a caller, set by WithCaller.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, ok := r.Context().Value(callerKey{}).(tokens.Token)
	if !ok {
		problem.Write(w, r, fault.New(fault.Unauthenticated, "this request needs a token: send Authorization: Bearer <token>"))
		return
	}
	query := r.URL.Query()
	names := query.Get("names")
	if len(query["names"]) > 1 || names != "" && names != namesDotted && names != namesUnderscore {
		problem.Write(w, r, fault.BadField("names", "is unknown; leave it out, or use dotted for tool names with dots"))
		return
	}
	read, err := s.readBody(w, r)
	if err != nil {
		problem.Write(w, r, fault.From(err))
		return
	}
	r = read
	who := caller{token: token, project: query.Get("project_id"), dotted: names == namesDotted}
	use, err := s.sessions.enter(r, token.ID, who.project)
	if err != nil {
		problem.Write(w, r, fault.From(err))
		return
	}
	defer use.leave()

	server, done := s.serverFor(r, who)
	defer done()
	ctx := context.WithValue(context.WithValue(r.Context(), addressKey{}, who), serverKey{}, server)
	r = r.WithContext(ctx)                         // r is a copy already
	r.Header.Set("Authorization", "Bearer caller") // the SDK needs a header to call tokenInfo, but not the secret
	pw := newResponseWriter(w, r, use.opened)
	defer pw.end()
	s.handler.ServeHTTP(pw, r)
}

// readBody returns the request with its body in memory, and removes the read deadline: the HTTP
// server keeps reading to notice a client that hangs up, and would cut off long execs and
// notification streams.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) (*http.Request, error) {
	body := r.Body
	if s.cfg.MaxBodyBytes > 0 {
		body = http.MaxBytesReader(w, r.Body, s.cfg.MaxBodyBytes)
	}
	content, err := io.ReadAll(body)
	var tooLarge *http.MaxBytesError
	var known *fault.Error
	switch {
	case errors.As(err, &tooLarge):
		return nil, fault.New(fault.BodyTooLarge, "the message has more than %d bytes", tooLarge.Limit)
	case errors.As(err, &known):
		return nil, known
	case err != nil:
		return nil, fault.Wrap(fault.InvalidRequest, err, "cannot read the body to its end")
	}
	if r.Method == http.MethodPost {
		if err := checkMessages(content); err != nil {
			return nil, err
		}
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	return r, nil
}

// checkMessages refuses a body that is neither a message nor a list of up to maxBatch messages: the
// SDK names its own Go types in its errors, and handles the messages of a list concurrently. The
// oldest version of the protocol allows lists.
func checkMessages(content []byte) error {
	bad := func() error {
		if !json.Valid(content) {
			return fault.New(fault.InvalidRequest, "the body is not valid JSON; send one JSON-RPC message")
		}
		return fault.New(fault.InvalidRequest,
			`the body is not a JSON-RPC message; send an object with "jsonrpc": "2.0", "method" and, if it needs an answer, "id", a string or a number`)
	}
	d := json.NewDecoder(bytes.NewReader(content))
	first, err := d.Token()
	if err != nil || first != json.Delim('[') {
		if _, err := jsonrpc.DecodeMessage(content); err != nil {
			return bad()
		}
		return nil
	}
	for n := 0; d.More(); n++ {
		if n == maxBatch {
			return fault.New(fault.InvalidRequest, "the batch has more than %d messages; split it", maxBatch)
		}
		var message json.RawMessage
		if d.Decode(&message) != nil {
			return bad()
		}
		if _, err := jsonrpc.DecodeMessage(message); err != nil {
			return bad()
		}
	}
	return nil // the SDK refuses an empty list, and text after it
}

// Close refuses new calls, waits at most closeTimeout for the calls in progress, and ends all
// sessions. Safe to call twice.
func (s *Server) Close() error {
	s.closing.Do(func() {
		select {
		case <-s.sessions.close():
		case <-time.After(closeTimeout):
			s.cfg.Logger.Warn("MCP sessions end with calls in progress")
			s.sessions.cancelAll()
		}
		s.stop()
		s.users.close()
		for _, server := range s.allServers() {
			for session := range server.Sessions() {
				s.background.Go(func() { _ = session.Close() })
			}
		}
		s.background.Wait()
	})
	return nil
}

// allServers returns the protocol servers of the catalog and of users.
func (s *Server) allServers() []*mcp.Server {
	return append(s.users.servers(), s.tools.server)
}

// closeSession ends one session, and the sandbox session that began with it.
func (s *Server) closeSession(one *session) {
	for _, server := range s.allServers() {
		for session := range server.Sessions() {
			if session.ID() == one.id {
				_ = session.Close()
			}
		}
	}
	s.sessions.mu.Lock()
	h := one.held
	s.sessions.mu.Unlock()
	s.release(h)
}
