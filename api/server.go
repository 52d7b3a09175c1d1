package api

import (
	_ "embed"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"secbox/api/contract"
	"secbox/api/decode"
	"secbox/api/docs"
	"secbox/api/gate"
	"secbox/api/inflight"
	"secbox/api/upload"
	"secbox/api/visible"
	"secbox/audit/hmackey"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/internal/traces"
	"secbox/runner/follow"
)

// DefaultMaxBodyBytes is Config.MaxBodyBytes if it is 0: 32 MiB.
const DefaultMaxBodyBytes = 32 << 20

//go:embed openapi.yaml
var contractYAML []byte

// Contract returns openapi.yaml.
func Contract() []byte { return slices.Clone(contractYAML) }

var loadContract = sync.OnceValues(func() (*contract.Contract, error) { return contract.Load(contractYAML) })

// Needs are what a Server cannot do without.
type Needs struct {
	Runner          Runner
	Live            *follow.Execs // the execs of Runner
	Changes         follow.ChangeStore
	Webhooks        Webhooks
	Connections     Connections
	History         History
	TransparencyLog TransparencyLog
	Exports         Exports
	Reports         Reports
	AdminEvents     AdminEvents
	Downloads       visible.Downloads
	Retention       Retention
	Images          Images
	Health          Health
	Pool            Pool
	Skills          visible.Catalog
	Invoker         Invoker
	Replayer        Replayer
	Tokens          Tokens
	Library         Library
	View            visible.View // of the Library
	Sandboxes       Sandboxes
	Projects        Projects
	Catalog         Catalog
	Registry        Registry
	UploadDir       string // a directory that belongs to the Server; New empties it
}

// check returns an error that names the fields that are missing.
func (n Needs) check() error {
	var missing []string
	for field, value := range reflect.ValueOf(n).Fields() {
		if value.IsZero() {
			missing = append(missing, field.Name)
		}
	}
	if len(missing) > 0 {
		return fault.New(fault.Internal, "api.New lacks %s", strings.Join(missing, ", "))
	}
	return nil
}

// Config is the configuration of a Server. Needs and ListenAddr are required.
type Config struct {
	Needs
	MCP     MCP     // nil: /mcp answers 404
	Runners Runners // nil: no user's machine can connect
	Console Console // nil: /console answers 404
	Peers   Peers   // nil: there is one node

	// ListenAddr is the address that the caller listens on, host:port. It decides whether a request
	// may come without a token (on loopback only, until the first token exists) and which Host
	// headers are answered.
	ListenAddr string

	// AllowedHosts are more Host headers to answer, "name" for any port or "name:port". On
	// loopback, localhost, 127.0.0.1 and [::1] are always answered; elsewhere an empty list answers
	// every Host.
	AllowedHosts []string

	// TrustedProxies are addresses and networks of reverse proxies. With any, every request needs a
	// token, and the log has the address that a proxy gives in X-Forwarded-For.
	TrustedProxies []string

	// PreviewDomain is a domain name in lower case. Below it, ports of sessions have hosts of their
	// own; see package ports. Empty: they cannot be reached. LinkKey signs links to them.
	PreviewDomain string
	LinkKey       hmackey.Key

	MaxUploadBytes int64                            // 0: 256 MiB
	UploadRoom     func() (bytes uint64, err error) // free space on the disk of UploadDir; nil: unknown
	Bounds         Bounds

	// how often the token of an open MCP stream is verified again; 0: 10 s. Of uploads and
	// downloads: this, at most 1 s
	TokenInterval time.Duration
	MaxBodyBytes  int64                // 0: DefaultMaxBodyBytes
	Logger        *slog.Logger         // nil: no log
	Metrics       *prometheus.Registry // served at /metrics; nil: a new one with the HTTP metrics only
	Tracer        *traces.Tracer       // nil: no spans
	Now           func() time.Time     // nil: time.Now
}

// Server is an http.Handler, safe for concurrent use.
type Server struct {
	cfg       Config
	log       *slog.Logger
	contract  *contract.Contract
	gate      *gate.Gate
	metrics   *metrics
	memory    *inflight.Quota
	uploads   *upload.Receiver
	downloads *inflight.Quota
	exports   *inflight.Quota
	streams   *inflight.Quota
	changes   *follow.Changes
	closing   chan struct{} // closed by Close
	close     func()

	relayFailed atomic.Int64 // when a node was last logged that does not pass on events, in Unix seconds

	execs  visible.Execs
	skills visible.Skills
	edits  admission.Locks // of files on users' machines
	turns  *inflight.Turns

	processors *admission.Gate  // for work of this server itself
	checks     *inflight.Checks // of tokens, while long answers are sent
	docs       *docs.Pages
	catalog    catalogPages
	handler    http.Handler
}

// New makes a Server. It fails if openapi.yaml and the routes do not match.
func New(cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxBodyBytes <= 0 {
		cfg.MaxBodyBytes = DefaultMaxBodyBytes
	}
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	if cfg.TokenInterval <= 0 {
		cfg.TokenInterval = 10 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	b := cfg.Bounds.withDefaults(cfg.MaxBodyBytes)
	downloads := newDownloads(b)
	cfg.Bounds = b
	var view visible.View
	cfg.Library, view = newBoundedLibrary(cfg.Library, cfg.View, b, downloads)
	s := &Server{
		cfg: cfg, log: cfg.Logger, memory: inflight.NewMemory(b.Memory, b.MemoryPerToken), downloads: downloads,
		exports: inflight.NewCount("exports", maxExports, maxExportsPerToken),
		streams: inflight.NewCount("streams of events and waits for execs", b.Streams, b.StreamsPerToken), closing: make(chan struct{}),
	}
	s.changes = follow.NewChanges(cfg.Changes, stateText)
	s.close = sync.OnceFunc(func() { close(s.closing) })
	s.checks = inflight.NewChecks()
	s.processors = admission.NewProcessors(runtime.GOMAXPROCS(0))
	s.turns = inflight.NewTurns(turnsAtOnce, turnsQueued, admission.Share{AtOnce: turnsAtOncePerToken, Queue: turnsQueuedPerToken})
	s.execs = visible.Execs{History: cfg.History, Tombstones: cfg.Retention, Tokens: cfg.Tokens, Downloads: cfg.Downloads}
	s.skills = visible.Skills{Catalog: cfg.Skills, Library: cfg.Library, View: view}
	var err error
	if s.gate, err = gate.New(gate.Config{
		ListenAddr: cfg.ListenAddr, AllowedHosts: cfg.AllowedHosts, TrustedProxies: cfg.TrustedProxies, Tokens: cfg.Tokens,
	}); err != nil {
		return nil, err
	}
	if s.contract, err = loadContract(); err != nil {
		return nil, err
	}
	if s.docs, err = docs.New(s.contract, cfg.ListenAddr, mcpPath, linkPath, transferPath, ttyPath); err != nil {
		return nil, err
	}
	if s.metrics, err = newMetrics(cfg.Metrics, s.memory); err != nil {
		return nil, err
	}
	if s.uploads, err = upload.Open(upload.Config{
		Dir: cfg.UploadDir, MaxBytes: cfg.MaxUploadBytes, Free: cfg.UploadRoom,
		Quota: inflight.NewQuota("uploads", inflight.Share{Requests: b.Uploads, Bytes: b.UploadBytes},
			inflight.Share{Requests: b.UploadsPerToken, Bytes: b.UploadBytesPerToken}),
	}); err != nil {
		return nil, err
	}

	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Logger.SetOutput(io.Discard) // this module logs through slog
	e.IPExtractor = s.gate.ClientAddress
	e.JSONSerializer = decode.NewJSON()
	e.Binder = decode.Binder{MaxBytes: cfg.MaxBodyBytes}
	e.HTTPErrorHandler = s.handleError
	if err := s.register(e); err != nil {
		return nil, err
	}
	if _, err := s.catalog.of(cfg.Skills.Now()).list(); err != nil { // encoded before the first request for it
		return nil, fault.Wrap(fault.Internal, err, "cannot encode the catalog of skills")
	}
	s.handler = s.outermost(s.withPorts(s.guarded(s.withConsole(e))))
	return s, nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }
