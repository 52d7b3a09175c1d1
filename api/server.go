package api

import (
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"secbox/admission"
	"secbox/fault"
)

// DefaultMaxBodyBytes is the limit of a request's body when Config sets none: 32 MiB.
const DefaultMaxBodyBytes = 32 << 20

// Config is what a Server needs. Runner, History, Health, Pool, Skills, Invoker, Tokens, Library, Sandboxes, UploadDir and ListenAddr must be set.
type Config struct {
	Runner  Runner
	History History
	Health  Health
	Pool    Pool
	Skills  Skills
	Invoker Invoker
	Tokens  Tokens
	Library Library
	MCP     MCP // nil: /mcp answers 404

	Sandboxes Sandboxes
	Runners   Runners // nil: no machine can dial in

	// ListenAddr is where the server is bound, host:port. It decides whether a token may be left out (loopback only, and only until
	// the first one exists) and which Host headers are answered. The Server itself does not listen.
	ListenAddr string

	// AllowedHosts are further Host headers to answer, "name" for any port or "name:port". On loopback they come on top of
	// localhost, 127.0.0.1 and [::1]; elsewhere every Host is answered when the list is empty.
	AllowedHosts []string

	// TrustedProxies are addresses and networks of reverse proxies. With any of them, every request needs a token, and the log has the address
	// that a proxy names in X-Forwarded-For.
	TrustedProxies []string

	// UploadDir is a directory of this server's own, where archives wait until they are unpacked; New empties it.
	UploadDir      string
	MaxUploadBytes int64 // 0: DefaultMaxUploadBytes
	// UploadRoom is how much is free on the disk of UploadDir; nil: an upload that has no room is found out while it is written.
	UploadRoom func() (bytes uint64, err error)
	Bounds     Bounds

	TokenLook    time.Duration        // how often the token of an open stream of MCP is looked at; 0: 10 s
	MaxBodyBytes int64                // 0: DefaultMaxBodyBytes
	Logger       *slog.Logger         // nil: nothing is logged
	Registry     *prometheus.Registry // what /metrics shows; nil: a new one with the HTTP metrics only
	Now          func() time.Time     // nil: time.Now
}

// Server answers HTTP requests. It is an http.Handler and safe for concurrent use.
type Server struct {
	cfg      Config
	log      *slog.Logger
	contract *contract
	guard    hostGuard
	address  echo.IPExtractor
	metrics  *metrics
	uploads  uploads
	edits    admission.Locks               // of files on users' machines
	docs     map[bool]func() (page, error) // by whether a token may be left out; made when first asked for
	script   page
	notFound page
	memory   *quota
	catalog  catalogPages
	handler  http.Handler
	routes   []*echo.Route
}

// New builds a Server and checks that contract and routes agree, so that a route without roles cannot be served.
func New(cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxBodyBytes <= 0 {
		cfg.MaxBodyBytes = DefaultMaxBodyBytes
	}
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	if cfg.TokenLook <= 0 {
		cfg.TokenLook = 10 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Runner == nil || cfg.History == nil || cfg.Health == nil || cfg.Pool == nil || cfg.Skills == nil || cfg.Invoker == nil || cfg.Tokens == nil ||
		cfg.Library == nil || cfg.Sandboxes == nil || cfg.UploadDir == "" {
		return nil, fault.New(fault.Internal, "api.New needs a Runner, a History, a Health, a Pool, Skills, an Invoker, Tokens, a Library, Sandboxes and an UploadDir")
	}
	cfg.Bounds = cfg.Bounds.withDefaults(cfg.MaxBodyBytes)
	cfg.Library = newBounded(cfg.Library, cfg.Bounds)
	s := &Server{cfg: cfg, log: cfg.Logger, memory: newMemory(cfg.Bounds)}
	var err error
	if s.guard, err = newHostGuard(cfg.ListenAddr, cfg.AllowedHosts); err != nil {
		return nil, err
	}
	if s.address, err = clientAddress(cfg.TrustedProxies); err != nil {
		return nil, err
	}
	if s.contract, err = ownContract(); err != nil {
		return nil, err
	}
	s.docs = map[bool]func() (page, error){}
	for _, open := range []bool{false, true} {
		s.docs[open] = sync.OnceValues(func() (page, error) { return docsPage(s.contract, baseURL(cfg.ListenAddr), open) })
	}
	s.script = newPage("text/javascript; charset=utf-8", docsScript, basicCSP)
	if s.notFound, err = notFoundPage(s.contract); err != nil {
		return nil, err
	}
	if s.metrics, err = newMetrics(cfg.Registry, s.memory); err != nil {
		return nil, err
	}

	if s.uploads, err = openUploads(cfg.UploadDir, cfg.MaxUploadBytes, cfg.Bounds); err != nil {
		return nil, err
	}
	s.uploads.room = cfg.UploadRoom

	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Logger.SetOutput(io.Discard) // nothing of ours logs through it
	e.IPExtractor = s.address
	e.JSONSerializer = newStrictJSON()
	e.Binder = bodyBinder{maxBytes: cfg.MaxBodyBytes}
	e.HTTPErrorHandler = s.handleError
	if err := s.register(e); err != nil {
		return nil, err
	}
	if _, err := s.catalog.of(cfg.Skills.Now()).list(); err != nil { // the first who asks finds it encoded
		return nil, fault.Wrap(fault.Internal, err, "the catalog of skills cannot be encoded")
	}
	s.routes = e.Routes()
	s.handler = s.outermost(s.guarded(e))
	return s, nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Handler is the Server as an http.Handler.
func (s *Server) Handler() http.Handler { return s }
