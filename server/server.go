// Package server wires every other package into one running core-api. It knows nothing of command lines.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"secbox/admission"
	"secbox/api"
	"secbox/audit"
	"secbox/diskwatch"
	"secbox/engine"
	"secbox/fault"
	"secbox/mcpserver"
	"secbox/runner"
	"secbox/settings"
	"secbox/skills"
	"secbox/skills/creator"
	"secbox/skills/invoke"
	"secbox/skills/library"
	"secbox/skills/versions"
	"secbox/statedir"
	"secbox/store"
	"secbox/tokens"
	"secbox/tree"
	"secbox/workspace"
)

// How long things may take around a server's life, and how large a request's head may be.
const (
	databasePatience = 30 * time.Second // at start: a database that starts beside us needs a moment
	drainPatience    = 20 * time.Second // at the end: for running execs before they are killed
	sweepPatience    = 20 * time.Second // at start: for the removal of what an earlier process left
	volumesPause     = time.Hour        // between two looks for volumes of an older sandbox-init
	sweepPause       = 5 * time.Second  // between two looks for containers that nobody holds, when there may be some
	sweepRest        = 12               // of these pauses until a look when none is expected: an engine that was in trouble may list one late
	skillsPause      = 2 * time.Second  // between two looks at the skills
	maxHeaderBytes   = 64 << 10         // of one request, its first line included
)

// Version is set when a release is linked.
var Version = "0.1.0-dev"

// Server is one running core-api. Start wires it; Close takes it down in the reverse order.
type Server struct {
	log      *slog.Logger
	state    *statedir.Dir
	db       store.Database
	audit    *audit.Log
	files    *workspace.Workspace
	versions *versions.Store
	skills   *skills.Catalog
	images   *engine.Images
	cold     *engine.Cold
	engine   *engine.Pool // around cold
	runner   *runner.Runner
	users    *sandboxes
	mcp      *mcpserver.Server
	server   *http.Server
	listener net.Listener

	// DrainTimeout is how long Close and Shutdown let running execs finish. It may be changed until one of them is called.
	DrainTimeout time.Duration

	stop       context.CancelFunc // ends the background work
	background sync.WaitGroup
	ending     atomic.Bool // Close has begun
	closing    sync.Once
	closeErr   error
}

// Start brings a server up and returns once it answers requests. What it opened is closed again when it fails.
func Start(ctx context.Context, s settings.Settings, environ []string, log *slog.Logger) (_ *Server, err error) {
	a := &Server{log: log, DrainTimeout: drainPatience, stop: func() {}}
	defer func() {
		if err != nil {
			_ = a.Close()
		}
	}()

	deps, err := NewDeps(s, environ)
	if err != nil {
		return nil, err
	}
	if a.state, err = statedir.Open(s.StateDir); err != nil {
		return nil, err
	}
	if err := settings.CheckStateDir(s.StateDir); err != nil {
		return nil, err
	}
	deps.log, deps.idle = log, newIdleWatch(log)
	if err := deps.OpenWorkspace(); err != nil {
		return nil, err
	}
	a.files, a.versions = deps.Workspace, deps.versions
	tool, err := creator.Folder()
	if err == nil {
		err = a.versions.InstallTool(tool)
	}
	if err != nil {
		return nil, err
	}
	// Once more, now that both exist: links may have led one into the other.
	if err := settings.CheckApart(s.StateDir, deps.adapter.NativeRoot()); err != nil {
		return nil, err
	}
	if err := deps.OpenSkills(log); err != nil {
		return nil, err
	}
	a.skills = deps.skills
	if a.db, err = openDatabase(ctx, s, log); err != nil {
		return nil, err
	}
	installation, err := a.db.Audit().InstallationID(ctx)
	if err != nil {
		return nil, err
	}
	tokenService := tokens.NewService(a.db.Tokens(), time.Now)
	if secret := s.AdminToken.Reveal(); secret != "" {
		if err := tokenService.Seed(ctx, secret); err != nil {
			return nil, err
		}
	}
	open, err := mayListen(ctx, s, tokenService)
	if err != nil {
		return nil, err
	}
	if usable, err := tokenService.Usable(ctx); err != nil {
		return nil, err
	} else if !usable && !open {
		log.Warn("requests need a token, and none is valid; create one", "command", CreateAdminCommand(s))
	}

	nodeID := a.state.NodeID()
	if a.audit, err = audit.NewLog(audit.Config{
		Store: a.db.Audit(), Dir: filepath.Join(a.state.Path(), "spool"), Node: audit.Node{NodeID: nodeID, Version: Version, StartedAt: time.Now()},
		Logger: log, FreeBytes: func() (uint64, error) { return tree.FreeBytes(a.state.Path()) }, FreeMinBytes: uint64(s.Sandbox.DiskFreeMinBytes),
	}); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics := newMetrics(registry)
	deps.idle.register(registry)
	a.images = deps.Images
	if a.cold, err = deps.NewEngine(engine.Identity{Installation: installation, Node: nodeID}, a.state.Path(), log); err != nil {
		return nil, err
	}
	a.engine = deps.newPool(a.cold, metrics, log)
	metrics.watchPool(a.engine)
	a.sweep(ctx)
	lost, err := a.audit.Recover(ctx)
	if err != nil {
		return nil, err
	}
	if len(lost) > 0 {
		log.Warn("execs of an earlier run of this node are ended as lost", "execs", len(lost))
	}

	checker := deps.NewChecker(a.db.Audit(), a.db.Kind(), nodeID, log)
	checker.Warm(ctx)
	registry.MustRegister(checker)
	disk := diskwatch.New(deps.Workspace, diskwatch.Limits{
		FreeMinBytes: uint64(s.Sandbox.DiskFreeMinBytes), FreeMinInodes: uint64(s.Sandbox.DiskFreeMinInodes),
		GrowthMaxBytes: s.Sandbox.DiskGrowthMaxBytes, GrowthMaxEntries: s.Sandbox.DiskGrowthMaxEntries,
	}, log)
	if a.runner, err = runner.New(runner.Config{
		Log: a.audit, Engine: a.engine, Images: deps.Images, Policy: deps.policy, Skills: a.skills, Workspace: deps.Workspace, Host: checker.Host,
		StateDir: a.state.Path(), NodeID: nodeID, User: deps.User,
		Disk:  disk,
		Slots: s.Sandbox.MaxConcurrentExecs, Queue: s.Sandbox.MaxQueuedExecs,
		Each: admission.Share{AtOnce: s.Sandbox.MaxConcurrentExecsPerToken, Queue: s.Sandbox.MaxQueuedExecsPerToken},
		Now:  time.Now, NewID: NewID, Logger: log, Observer: metrics,
	}); err != nil {
		return nil, err
	}
	metrics.watch(a.runner)
	metrics.watchSkills(a.skills)
	commands := newCommandMetrics(registry)
	if a.users, err = deps.newSandboxes(sandboxParts{
		log: a.audit, choices: a.db.Sandboxes(), tokens: tokenService, policy: deps.policy, host: checker.Host, cold: a.cold, disk: disk, nodeID: nodeID, environ: environ,
		observer: commands,
	}); err != nil {
		return nil, err
	}
	commands.watch(registry, a.users)
	packages, err := library.New(library.Config{
		Workspace: deps.Workspace, Versions: deps.versions, Registry: a.db.Skills(), Log: log,
		FreeMinBytes: uint64(s.Sandbox.DiskFreeMinBytes), FreeMinInodes: uint64(s.Sandbox.DiskFreeMinInodes),
	})
	if err != nil {
		return nil, err
	}
	ofUsers := userPackages{packages, a.skills}
	invoker := countedInvoker{invoke.New(a.skills, a.runner).WithPackages(ofUsers), a.skills, metrics}

	if a.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", s.Addr); err != nil {
		return nil, fault.Wrap(fault.InvalidSettings, err, "cannot listen on %s: %s; %s", s.Addr, fault.Reason(err), listenRemedy(err))
	}
	a.listener = newBoundedListener(a.listener, s.HTTP.MaxConnections, len(s.HTTP.TrustedProxies) > 0)
	if a.mcp, err = mcpserver.New(mcpserver.Config{
		Invoker: invoker, Catalog: a.skills, Packages: ofUsers, History: a.audit, Runner: a.runner, Version: Version, Logger: log, MaxBodyBytes: s.HTTP.MaxBodyBytes,
	}); err != nil {
		return nil, err
	}
	handler, err := api.New(api.Config{
		Runner: cancelers{a.runner, a.users.Recorder}, History: a.audit, Health: healthReports{checker, a.ending.Load}, Pool: poolReports{a.engine}, Skills: a.skills, Invoker: invoker, Tokens: tokenService,
		MCP: func(w http.ResponseWriter, r *http.Request, caller tokens.Token, hold func(int64) (func(), error)) {
			a.mcp.ServeHTTP(w, r.WithContext(mcpserver.WithHold(mcpserver.WithCaller(r.Context(), caller), hold)))
		},
		Sandboxes: a.users, Runners: dialled{a.users.hub},
		Library: packages, UploadDir: filepath.Join(a.state.Path(), "uploads"), MaxUploadBytes: s.Skills.MaxUploadBytes,
		UploadRoom: func() (uint64, error) { return tree.FreeBytes(a.state.Path()) }, Bounds: bounds(s),
		ListenAddr: a.listener.Addr().String(), AllowedHosts: s.HTTP.AllowedHosts, TrustedProxies: s.HTTP.TrustedProxies, MaxBodyBytes: s.HTTP.MaxBodyBytes,
		Logger: log, Registry: registry,
	})
	if err != nil {
		return nil, err
	}
	a.server = &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 5 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	life := a.begin()
	a.background.Go(func() { packIdle(life, packages, idleAfter(s), log) })
	collected := newCollectedVersions(registry)
	a.background.Go(func() { collectVersions(life, packages, collected, log) })
	log.Info("core-api serves", "addr", a.Addr(), "version", Version, "node", nodeID, "runtime_mode", deps.adapter.Mode(),
		"workspace_root", deps.adapter.NativeRoot(), "state_dir", a.state.Path(), "database", a.db.Kind(), "container_user", deps.User)
	if open {
		log.Warn("no token exists: every program on this machine may use the API; create a token to end that", "command", CreateAdminCommand(s))
	}
	return a, nil
}

// program is how this program was called, so that a command in a message can be pasted where the server was started.
func program() string {
	if name := filepath.Base(os.Args[0]); name != "core-api" && name != "core-api.exe" {
		return "core-api" // a test
	}
	return os.Args[0]
}

// CreateAdminCommand is the command that makes the first token, as this program was called.
func CreateAdminCommand(s settings.Settings) string {
	return s.Command(program(), "token create --role admin")
}

// NewID returns a new UUIDv7.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// openDatabase waits a moment for a database that starts beside us.
func openDatabase(ctx context.Context, s settings.Settings, log *slog.Logger) (store.Database, error) {
	ctx, cancel := context.WithTimeout(ctx, databasePatience)
	defer cancel()
	for said := false; ; said = true {
		db, err := store.Open(ctx, s.DatabaseURL.Reveal(), s.StateDir)
		if !fault.Is(err, fault.DatabaseUnavailable) || s.DatabaseURL.Reveal() == "" {
			return db, err
		}
		if !said {
			log.Warn("the database does not answer yet; waiting for it", "patience", databasePatience)
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// mayListen refuses an address that others can reach while no token exists; it reports whether requests need none.
func mayListen(ctx context.Context, s settings.Settings, service *tokens.Service) (open bool, err error) {
	secured, err := service.Any(ctx)
	if err != nil || secured {
		return false, err
	}
	host, _, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return false, fault.Wrap(fault.InvalidSettings, err, "addr %q is not host:port", s.Addr)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return false, fault.New(fault.InvalidSettings,
			"addr %s can be reached from elsewhere, and no token exists; create one first with `%s`, or set CORE_API_ADMIN_TOKEN", s.Addr, CreateAdminCommand(s))
	}
	return len(s.HTTP.TrustedProxies) == 0, nil
}

// listenRemedy says what to do when an address cannot be had.
func listenRemedy(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "another program, perhaps another core-api, has the port: stop it, or choose another --addr"
	case errors.Is(err, syscall.EACCES):
		return "ports below 1024 are for root: choose another --addr, such as 127.0.0.1:8003, and put a proxy before it"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this machine has no such address: choose another --addr"
	}
	return "choose another --addr"
}

// sweep removes the containers that nobody holds: an earlier process of this node left them, or an engine that failed.
func (a *Server) sweep(ctx context.Context) {
	patient, cancel := context.WithTimeout(ctx, sweepPatience)
	defer cancel()
	removed, err := a.cold.Sweep(patient)
	if err != nil && ctx.Err() == nil {
		a.log.Warn("leftover containers could not be looked for; trying again", "error", err)
	}
	if removed > 0 {
		a.log.Warn("leftover containers of this node were removed", "containers", removed)
	}
}

// begin starts what runs beside requests, and returns the context in which it does.
func (a *Server) begin() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	a.stop = stop
	a.background.Go(func() { a.audit.Run(ctx) })
	a.background.Go(func() { a.skills.Watch(ctx, skillsPause) })
	a.background.Go(func() {
		a.images.Watch(ctx, engine.WatchConfig{Log: a.log, Changed: func(before, _ engine.Image) { a.engine.DropImage(before.ID) }})
	})
	a.background.Go(func() {
		for ctx.Err() == nil {
			if err := a.images.RemoveOldVolumes(ctx); err != nil && ctx.Err() == nil {
				a.log.Warn("volumes of an older sandbox-init could not be removed; trying again", "error", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(volumesPause):
			}
		}
	})
	a.background.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(sweepPause):
			}
			if a.cold.WantsSweep() || n%sweepRest == 0 {
				a.sweep(ctx)
			}
		}
	})
	a.background.Go(func() {
		if err := a.server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("the HTTP server ended", "error", err)
		}
	})
	return ctx
}

// Addr is where the server listens.
func (a *Server) Addr() string { return a.listener.Addr().String() }

// Close drains and stops the server: no new execs, the running ones to their closed rows, then everything below. Safe to call twice.
func (a *Server) Close() error { return a.Shutdown(context.Background()) }

// Shutdown is Close for somebody in a hurry: when ctx ends, the execs that still run are killed, and their rows closed.
func (a *Server) Shutdown(ctx context.Context) error {
	a.closing.Do(func() { a.closeErr = a.shutdown(ctx) })
	return a.closeErr
}

func (a *Server) shutdown(ctx context.Context) error {
	a.ending.Store(true)
	if a.engine != nil {
		a.engine.Drain()
	}
	var errs []error
	draining, cancel := context.WithTimeout(ctx, a.DrainTimeout)
	defer cancel()
	var drained sync.WaitGroup
	if a.users != nil {
		drained.Go(func() { a.users.Drain(draining) })
	}
	if a.runner != nil {
		errs = append(errs, a.runner.Close(draining))
	}
	drained.Wait()
	if a.users != nil {
		errs = append(errs, a.users.Close()) // before the server: links have no end of their own; and before the engine, whose containers these are
	}
	if a.mcp != nil {
		errs = append(errs, a.mcp.Close()) // its streams have no end of their own, and the server waits for what is not answered
	}
	if a.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if err := a.server.Shutdown(ctx); err != nil {
			errs = append(errs, a.server.Close())
		}
		cancel()
	} else if a.listener != nil {
		errs = append(errs, a.listener.Close())
	}
	if a.engine != nil {
		errs = append(errs, a.engine.Close())
	}
	a.stop()
	a.background.Wait()
	if a.db != nil {
		errs = append(errs, a.db.Close())
	}
	if a.files != nil {
		errs = append(errs, a.versions.Close())
		errs = append(errs, a.files.Close())
	}
	if a.state != nil {
		errs = append(errs, a.state.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("while closing: %w", err)
	}
	return nil
}
