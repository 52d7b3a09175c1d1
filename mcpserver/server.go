package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/api/problem"
	"secbox/audit"
	"secbox/fault"
	"secbox/policy"
	"secbox/runner"
	"secbox/skills"
	"secbox/skills/invoke"
	"secbox/tokens"
)

// Invoker runs a skill to its closed row; see invoke.Invoker. An error is a *fault.Error and means that nothing ran.
type Invoker interface {
	Invoke(ctx context.Context, req invoke.Request) (invoke.Result, error)
}

// Catalog is where the tools come from; see skills.Catalog.
type Catalog interface {
	Now() *skills.Snapshot
	OnChange(f func(*skills.Snapshot))
}

// History finds records; fault.UnknownExec.
type History interface {
	Get(ctx context.Context, execID string) (audit.Record, error)
}

// Runner ends execs, opens what they left, and puts refusals on record; see runner.Runner.
type Runner interface {
	Refuse(ctx context.Context, req runner.Request, why error) error
	Cancel(ctx context.Context, execID string) error
	Artifacts(ctx context.Context, record audit.Record) (runner.Artifacts, error)
	OpenOutput(ctx context.Context, record audit.Record, stream string) (io.ReadSeekCloser, int64, error)

	// Resolve says what the policy of a request would be; also beside an error the snapshot is complete.
	Resolve(ctx context.Context, req runner.Request) (policy.Snapshot, error)
}

// Config is what a Server is made of. All fields are needed unless they say otherwise.
type Config struct {
	Invoker Invoker
	Catalog Catalog // its OnChange is used once
	// Packages are the users' own skills; nil: there are none.
	Packages Packages
	History  History
	Runner   Runner
	Version  string // of the program
	Logger   *slog.Logger

	MaxBodyBytes int64         // of one HTTP request; 0: the caller of ServeHTTP limits it
	MaxSessions  int           // 0: 1,000; three quarters of them of one token
	SessionIdle  time.Duration // how long a session may be idle; 0: 30 minutes
	LookEvery    time.Duration // how often the packages of a user with a session are looked at; 0: 2 seconds
}

// Defaults of Config, and how often idle sessions are looked for.
const (
	defaultMaxSessions = 1000
	defaultSessionIdle = 30 * time.Minute
	defaultLookEvery   = 2 * time.Second
	closePatience      = 5 * time.Second // for calls in flight when the server closes
)

// maxBatch is how many messages one request carries at most.
const maxBatch = 50

// The two spellings of tool names, by the query parameter names.
const (
	namesDotted     = ""
	namesUnderscore = "underscore"
)

// Server is the MCP endpoint. It is safe for concurrent use.
type Server struct {
	cfg      Config
	tools    *toolSet // everybody's
	users    *users
	handler  http.Handler
	sessions *sessions

	ended      context.Context // of what runs beside requests
	stop       context.CancelFunc
	background sync.WaitGroup
	closing    sync.Once
}

// New makes a Server; Close ends it.
func New(cfg Config) (*Server, error) {
	if cfg.Invoker == nil || cfg.Catalog == nil || cfg.History == nil || cfg.Runner == nil || cfg.Logger == nil {
		return nil, errors.New("mcpserver: the configuration is not complete")
	}
	if cfg.MaxSessions <= 0 {
		cfg.MaxSessions = defaultMaxSessions
	}
	if cfg.SessionIdle <= 0 {
		cfg.SessionIdle = defaultSessionIdle
	}
	if cfg.LookEvery <= 0 {
		cfg.LookEvery = defaultLookEvery
	}
	s := &Server{cfg: cfg}
	s.ended, s.stop = context.WithCancel(context.Background())
	s.tools = s.newToolSet(namesDotted, namesUnderscore)
	s.users = &users{server: s, packages: cfg.Packages, every: cfg.LookEvery, byKey: map[userKey]*user{}}
	s.sessions = newSessions(cfg.MaxSessions, s.closeSession)
	sdk := mcp.NewStreamableHTTPHandler(
		func(r *http.Request) *mcp.Server { return r.Context().Value(serverKey{}).(*mcp.Server) },
		// The gate in front of this handler knows by which names this server is called; the SDK's own check knows loopback only.
		// Bodies have been read, within their limit.
		&mcp.StreamableHTTPOptions{DisableLocalhostProtection: true, MaxRequestBodyBytes: -1, Logger: s.sdkLogger()},
	)
	s.handler = auth.RequireBearerToken(tokenInfo, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(sdk)
	cfg.Catalog.OnChange(func(*skills.Snapshot) { s.syncTools() })
	s.syncTools()
	s.background.Go(func() { s.sessions.expire(s.ended, cfg.SessionIdle) })
	return s, nil
}

func (s *Server) newProtocolServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "secbox", Title: "secbox", Version: s.cfg.Version}, &mcp.ServerOptions{
		Instructions: instructions,
		Logger:       s.sdkLogger(),
		Capabilities: &mcp.ServerCapabilities{
			Tools: &mcp.ToolCapabilities{ListChanged: true}, Resources: &mcp.ResourceCapabilities{},
		},
	})
	server.AddReceivingMiddleware(onlyOurResources)
	server.AddResourceTemplate(artifactTemplate(), s.readResource)
	return server
}

const instructions = `Each tool runs one skill in a fresh, isolated container without a network, under limits of time, memory and disk, ` +
	`and puts it on record. Calls with the same project_id share the files of that project: what one call leaves in /workspace/work, ` +
	`the next one finds; files for you go to /workspace/artifacts and come back as links to resources exec://{exec_id}/{path}. ` +
	`A call that fails says why, with the exec's id and, where a limit was hit, which one.`

// sdkLogger takes the SDK's words one level down: what is news to it, a session that came or went, is a detail here.
func (s *Server) sdkLogger() *slog.Logger { return slog.New(quieter{s.cfg.Logger.Handler()}) }

// ServeHTTP serves one request of the protocol. Its context must say who calls, by WithCaller.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, ok := r.Context().Value(callerKey{}).(tokens.Token)
	if !ok {
		problem.Write(w, r, fault.New(fault.Unauthenticated, "this request needs a token: send Authorization: Bearer <token>"))
		return
	}
	query := r.URL.Query()
	names := query.Get("names")
	if len(query["names"]) > 1 || s.tools.servers[names] == nil {
		problem.Write(w, r, fault.BadField("names", "is not known; leave it out, or say underscore for tool names without dots"))
		return
	}
	received, err := s.received(w, r)
	if err != nil {
		problem.Write(w, r, fault.From(err))
		return
	}
	r = received
	use, err := s.sessions.enter(r, token.ID)
	if err != nil {
		problem.Write(w, r, fault.From(err))
		return
	}
	defer use.leave()

	who := caller{token: token, project: query.Get("project_id")}
	server, done := s.serverFor(r, who, names)
	defer done()
	ctx := context.WithValue(context.WithValue(r.Context(), projectKey{}, who.project), serverKey{}, server)
	r = r.WithContext(ctx)                         // a copy already
	r.Header.Set("Authorization", "Bearer caller") // the secret ends here; the SDK insists on a header before it asks who it is
	pw := newResponseWriter(w, r, use.opened)
	defer pw.end()
	s.handler.ServeHTTP(pw, r)
}

// received is the request with its body read, within the time that the HTTP server allows for that. From then on there is no limit: an
// exec may take longer, and a stream of notifications has no end. The HTTP server would cut both off, because it goes on reading to
// notice a client that hangs up.
func (s *Server) received(w http.ResponseWriter, r *http.Request) (*http.Request, error) {
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
		return nil, fault.Wrap(fault.InvalidRequest, err, "the body could not be read to its end")
	}
	if longBatch(content) {
		return nil, fault.New(fault.InvalidRequest, "the batch has more than %d messages; send them in several, or one by one", maxBatch)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	return r, nil
}

// longBatch reports whether a body is a list of more than maxBatch messages. The protocol's oldest version allows lists, and the SDK works on
// all messages of one at once.
func longBatch(content []byte) bool {
	d := json.NewDecoder(bytes.NewReader(content))
	if first, err := d.Token(); err != nil || first != json.Delim('[') {
		return false
	}
	var message json.RawMessage
	for n := 0; d.More(); n++ {
		if n == maxBatch {
			return true
		}
		if d.Decode(&message) != nil {
			return false // the SDK says what is wrong
		}
	}
	return false
}

// Close ends all sessions: calls in flight get a moment to answer, no new ones begin. Safe to call twice.
func (s *Server) Close() error {
	s.closing.Do(func() {
		select {
		case <-s.sessions.close():
		case <-time.After(closePatience):
			s.cfg.Logger.Warn("MCP sessions end with calls in flight")
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

// allServers are everybody's and the users'.
func (s *Server) allServers() []*mcp.Server {
	return slices.AppendSeq(s.users.servers(), maps.Values(s.tools.servers))
}

// closeSession ends one session on the server's side.
func (s *Server) closeSession(id string) {
	for _, server := range s.allServers() {
		for session := range server.Sessions() {
			if session.ID() == id {
				_ = session.Close()
				return
			}
		}
	}
}
