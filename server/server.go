package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"secbox/access/sso"
	"secbox/access/tokens"
	"secbox/api"
	"secbox/audit"
	"secbox/audit/hmackey"
	"secbox/audit/retention"
	"secbox/audit/translog"
	"secbox/cluster/nodes"
	"secbox/cluster/peer"
	"secbox/console"
	"secbox/engine"
	"secbox/health"
	"secbox/images/builder"
	"secbox/internal/buildinfo"
	"secbox/internal/statedir"
	"secbox/internal/traces"
	"secbox/internal/traces/otlp"
	"secbox/mcp/feishu"
	"secbox/mcp/mcpserver"
	"secbox/mcp/offload"
	"secbox/mcp/userservers"
	"secbox/network"
	"secbox/network/secrets"
	"secbox/packages/catalog"
	"secbox/packages/library"
	"secbox/packages/registry"
	"secbox/replay"
	"secbox/runner"
	"secbox/runner/diskwatch"
	"secbox/runner/inputstore"
	"secbox/runner/jobs"
	"secbox/settings"
	"secbox/store"
	"secbox/workspace"
)

// drainTimeout is Server.DrainTimeout unless it is changed.
const drainTimeout = 20 * time.Second

// Server is one running core-api.
type Server struct {
	// DrainTimeout is how long Close and Shutdown let running execs finish. It may be changed until
	// one of them is called.
	DrainTimeout time.Duration

	settings settings.Settings
	environ  []string
	log      *slog.Logger
	deps     *Deps

	// Set by the steps of Start. shutdown closes those that are set.
	state        *statedir.Dir
	workspace    *workspace.Workspace
	creator      fs.FS // skill-creator
	db           store.Database
	images       *builder.Builder // of own images, to clean up only
	tokens       *tokens.Service
	open         bool // requests need no token yet
	key          hmackey.Key
	audit        *audit.Log
	activity     *audit.Activity
	recorded     bool // that the node has started
	evidence     translog.Log
	transparency transparencyLog
	retention    *retention.Runner
	registry     *prometheus.Registry
	metrics      *metrics
	spans        *otlp.Exporter // of tracer; nil: off
	tracer       *traces.Tracer // nil: off
	cold         *engine.Cold
	engine       *engine.Pool // around cold
	checker      *health.Checker
	disk         *diskwatch.Watcher
	inputs       *inputstore.Store
	notifier     jobs.Notifier // wakes the dispatcher
	secrets      *secrets.Set  // of sandbox.secrets
	network      *network.Network
	runner       *runner.Runner
	dispatcher   *jobs.Dispatcher
	stopJobs     context.CancelFunc // ends the dispatcher
	replayer     *replay.Replayer
	sandboxes    *sandboxes
	library      *library.Library
	catalog      *catalog.Store
	published    *registry.Registry
	results      *offload.Store
	feishu       *feishu.Client // nil: off
	provider     *sso.Provider  // of the console's single sign-on; nil: off
	member       *nodes.Member
	undrain      func()       // after obeyDrain
	peers        *peer.Peers  // nil: there is one node
	peerHTTP     *http.Server // answers what comes through channels of other nodes; nil: there is one node
	listener     net.Listener

	userServers *userservers.Manager // nil: none
	mcp         *mcpserver.Server
	pages       *console.Console
	handler     *api.Server
	http        *http.Server

	stop       context.CancelFunc // ends the background work
	background sync.WaitGroup
	closing    atomic.Bool
	closeOnce  sync.Once
	closeErr   error
}

// Start returns once the server answers requests. If a step fails, Start closes everything that
// earlier steps opened.
func Start(ctx context.Context, cfg settings.Settings, environ []string, log *slog.Logger) (_ *Server, err error) {
	s := &Server{
		DrainTimeout: drainTimeout, settings: cfg, environ: environ, log: log, stop: func() {}, stopJobs: func() {},
		notifier: jobs.NewNotifier(),
	}
	if err := s.openSecrets(); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{
		s.findDeps,
		s.lockStateDir,
		s.openWorkspace,
		s.loadSkills,
		s.openDatabase,
		s.openImages,
		s.checkTokens,
		s.openKey,
		s.openAudit,
		s.openTransparencyLog,
		s.makeRetention,
		s.makeMetrics,
		s.makeTracer,
		s.makeEngine,
		s.removeLeftovers,
		s.recoverExecs,
		s.checkHealth,
		s.makePool,
		s.makeRunner,
		s.makePeers,
		s.makeSandboxes,
		s.openLibrary,
		s.openRegistry,
		s.openResults,
		s.makeFeishu,
		s.makeSignOn,
		s.makeUserServers,
		s.listen,
		s.makeHandler,
		s.join,
		s.recordStart,
		s.startBackground,
		s.serve,
	} {
		if err := step(ctx); err != nil {
			_ = s.Close()
			return nil, err
		}
	}
	log.Info("core-api serves", "addr", s.Addr(), "console", consoleURL(s.Addr()), "version", buildinfo.Version, "node", s.state.NodeID(),
		"runtime_mode", s.deps.adapter.Mode(),
		"workspace_root", s.deps.adapter.NativeRoot(), "state_dir", s.state.Path(), "database", s.db.Kind(), "container_user", s.deps.User)
	if s.open {
		log.Warn("no token exists: every program on this machine may use the API; create a token to end that", "command",
			CreateAdminCommand(cfg))
	}
	return s, nil
}

// consoleURL returns the address of the console for a browser on this machine.
func consoleURL(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err != nil || ip != nil && ip.IsUnspecified() {
		addr = net.JoinHostPort("localhost", port)
	}
	return "http://" + addr + "/console"
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close refuses new execs, lets running ones finish for DrainTimeout, records them, and closes
// everything. Safe to call twice.
func (s *Server) Close() error { return s.Shutdown(context.Background()) }

// Shutdown is Close, except that execs that still run when ctx ends are killed at once.
func (s *Server) Shutdown(ctx context.Context) error {
	s.closeOnce.Do(func() { s.closeErr = s.shutdown(ctx) })
	return s.closeErr
}

// shutdown closes everything that Start has opened, in this order:
//   - First the packages that start commands, while results can still be recorded and answered.
//   - Then links of users' machines, MCP streams, live pages and streams of events, which do not
//     end by themselves: the HTTP server waits for unanswered requests.
//   - The engine after the sandboxes and the runner, whose containers it removes.
//   - Last the background work, which puts the node's end into the transparency log, then the
//     database, the workspace and the lock on the state directory.
func (s *Server) shutdown(ctx context.Context) error {
	s.closing.Store(true)
	if s.engine != nil {
		s.engine.Drain()
	}
	s.drain(ctx)
	var errs []error
	if s.userServers != nil {
		s.userServers.Close()
	}
	if s.sandboxes != nil {
		errs = append(errs, s.sandboxes.Close())
	}
	if s.mcp != nil {
		errs = append(errs, s.mcp.Close())
	}
	if s.pages != nil {
		s.pages.Close()
	}
	if s.handler != nil {
		s.handler.Close()
	}
	errs = append(errs, s.closeHTTP())
	if s.engine != nil {
		errs = append(errs, s.engine.Close())
	}
	if s.cold != nil && s.cold.NeedsSweep() {
		s.sweep(ctx)
	}
	s.recordEnd(ctx)
	s.leave(ctx)
	s.stop()
	s.background.Wait()
	s.flushSpans()
	if s.peers != nil {
		s.peers.Close()
	}
	if s.feishu != nil {
		s.feishu.Close()
	}
	if s.provider != nil {
		s.provider.Close()
	}
	if s.results != nil {
		errs = append(errs, s.results.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.inputs != nil {
		errs = append(errs, s.inputs.Close())
	}
	if s.workspace != nil {
		errs = append(errs, s.deps.versions.Close(), s.workspace.Close())
	}
	if s.state != nil {
		errs = append(errs, s.state.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("while closing: %w", err)
	}
	return nil
}

// drain waits for the commands of the runner and of the sandboxes, and kills those that take too
// long.
func (s *Server) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.DrainTimeout)
	defer cancel()
	var drained sync.WaitGroup
	if s.userServers != nil {
		drained.Go(func() { s.userServers.Drain(ctx) })
	}
	if s.sandboxes != nil {
		drained.Go(func() { s.sandboxes.Drain(ctx) })
	}
	s.stopJobs() // what waits goes on waiting
	if s.runner != nil {
		s.runner.Drain(ctx)
	}
	if s.dispatcher != nil {
		s.dispatcher.Wait()
	}
	drained.Wait()
}

func (s *Server) closeHTTP() error {
	switch {
	case s.http != nil:
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		var errs []error
		for _, h := range []*http.Server{s.http, s.peerHTTP} {
			if h != nil && h.Shutdown(ctx) != nil {
				errs = append(errs, h.Close())
			}
		}
		return errors.Join(errs...)
	case s.listener != nil:
		return s.listener.Close()
	}
	return nil
}

// NewID returns a new UUIDv7.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// CreateAdminCommand returns the command that creates the first token, with the path that this
// program was called by.
func CreateAdminCommand(cfg settings.Settings) string {
	program := os.Args[0]
	if name := filepath.Base(program); name != "core-api" && name != "core-api.exe" {
		program = "core-api" // in a test
	}
	return cfg.Command(program, "token create --role admin")
}
