package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"secbox/access/sessions"
	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/visible"
	"secbox/audit"
	"secbox/audit/export"
	"secbox/audit/hmackey"
	"secbox/cluster/peer"
	"secbox/console"
	"secbox/engine"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/internal/buildinfo"
	"secbox/internal/statedir"
	"secbox/mcp/feishu"
	"secbox/mcp/mcpserver"
	"secbox/mcp/offload"
	"secbox/network"
	"secbox/packages/creator"
	"secbox/packages/library"
	"secbox/policy"
	"secbox/replay"
	"secbox/runner"
	"secbox/runner/diskwatch"
	"secbox/runner/follow"
	"secbox/runner/inputstore"
	"secbox/runner/session"
	"secbox/settings"
	"secbox/skills/invoke"
	"secbox/store"
	"secbox/workspace/diskspace"
)

// The steps of Start, in their order. Each uses the fields that earlier steps have set.

const (
	databaseTimeout = 30 * time.Second // for a database that starts at the same time
	sweepTimeout    = 20 * time.Second // for removing the containers of an earlier process
)

// findDeps finds the docker CLI and resolves paths, user and policy. Nothing to undo.
func (s *Server) findDeps(context.Context) (err error) {
	if s.deps, err = NewDeps(s.settings, s.environ); err != nil {
		return err
	}
	s.deps.log = s.log
	return nil
}

// lockStateDir makes the state directory and locks it for this process. shutdown releases the lock.
func (s *Server) lockStateDir(context.Context) (err error) {
	if s.state, err = statedir.Open(s.settings.StateDir); err != nil {
		return err
	}
	return settings.CheckStateDir(s.settings.StateDir)
}

// openWorkspace opens the workspace root and installs the skill-creator. shutdown closes the
// workspace.
func (s *Server) openWorkspace(context.Context) error {
	if err := s.deps.OpenWorkspace(); err != nil {
		return err
	}
	s.workspace = s.deps.Workspace
	tool, err := creator.Folder()
	if err != nil {
		return err
	}
	if err := s.deps.versions.InstallTool(tool); err != nil {
		return err
	}
	s.creator = tool.FS
	// Settings were checked before the directories existed. Now a link may lead from one into the
	// other.
	return settings.CheckApart(s.settings.StateDir, s.deps.adapter.NativeRoot())
}

// loadSkills loads the catalog. Nothing to undo.
func (s *Server) loadSkills(context.Context) error { return s.deps.OpenSkills(s.log) }

// openDatabase opens and migrates the database. It waits for a database that starts at the same
// time. shutdown closes it.
func (s *Server) openDatabase(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	url := s.settings.DatabaseURL.Reveal()
	for warned := false; ; warned = true {
		var err error
		s.db, err = store.Open(ctx, url, s.settings.StateDir)
		if !fault.Is(err, fault.DatabaseUnavailable) || url == "" {
			return err
		}
		if !warned {
			s.log.Warn("the database does not answer yet; waiting for it", "patience", databaseTimeout)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// openImages reads the table of own images, and removes what commands of this node left that were
// killed. Nothing to undo.
func (s *Server) openImages(ctx context.Context) (err error) {
	if err := s.deps.Own.Open(ctx, s.db.OwnImages()); err != nil {
		return err
	}
	if s.images, err = s.deps.imageBuilder(s.db.OwnImages(), nil, nil); fault.Is(err, fault.Unsupported) {
		return nil
	}
	return err
}

// checkTokens creates the admin token of the settings, and refuses to serve other machines while no
// token exists. Nothing to undo.
func (s *Server) checkTokens(ctx context.Context) (err error) {
	ctx = s.acting(ctx)
	s.tokens = tokens.NewService(s.db.Tokens(), time.Now)
	if secret := s.settings.AdminToken.Reveal(); secret != "" {
		if err := s.tokens.Seed(ctx, secret); err != nil {
			return err
		}
	}
	if s.open, err = mayServeWithoutToken(ctx, s.settings, s.tokens); err != nil {
		return err
	}
	usable, err := s.tokens.Usable(ctx)
	if err == nil && !usable && !s.open {
		s.log.Warn("requests need a token, and none is valid; create one", "command", CreateAdminCommand(s.settings))
	}
	return err
}

// mayServeWithoutToken reports whether requests need no token. It refuses an address that other
// machines can reach while no token exists.
func mayServeWithoutToken(ctx context.Context, cfg settings.Settings, service *tokens.Service) (bool, error) {
	secured, err := service.Any(ctx)
	if err != nil || secured {
		return false, err
	}
	host, _, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return false, fault.Wrap(fault.InvalidSettings, err, "addr %q is not host:port", cfg.Addr)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return false, fault.New(fault.InvalidSettings,
			"other machines can reach addr %s, and no token exists; create one first with `%s`, or set CORE_API_ADMIN_TOKEN", cfg.Addr,
			CreateAdminCommand(cfg))
	}
	return len(cfg.HTTP.TrustedProxies) == 0, nil
}

// openKey reads or makes the key of keyed digests. Nothing to undo.
func (s *Server) openKey(context.Context) (err error) {
	s.key, err = hmackey.Open(cmp.Or(s.settings.Audit.HMACKeyFile, filepath.Join(s.state.Path(), hmackey.KeyFile)))
	return err
}

// openAudit opens the audit log, with its spool in the state directory. Nothing to undo.
func (s *Server) openAudit(context.Context) (err error) {
	s.audit, err = audit.NewLog(audit.Config{
		Store: s.db.Audit(), Dir: audit.SpoolDir(s.state.Path()),
		NodeID: s.state.NodeID(), Logger: s.log,
		FreeBytes: s.freeBytes, FreeMinBytes: uint64(s.settings.Sandbox.DiskFreeMinBytes),
	})
	return err
}

// freeBytes returns the free space on the disk of the state directory.
func (s *Server) freeBytes() (uint64, error) {
	free, err := diskspace.Free(s.state.Path())
	return free.Bytes, err
}

// makeMetrics makes the registry that /metrics serves. Nothing to undo.
func (s *Server) makeMetrics(context.Context) error {
	s.registry = prometheus.NewRegistry()
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.metrics = newMetrics(s.registry)
	s.metrics.watchSkills(s.deps.skills)
	return nil
}

// makeEngine makes the cold engine. Nothing to undo.
func (s *Server) makeEngine(ctx context.Context) error {
	installation, err := s.db.Audit().InstallationID(ctx)
	if err != nil {
		return err
	}
	s.cold, err = s.deps.NewEngine(engine.Identity{Installation: installation, Node: s.state.NodeID()}, s.state.Path(), s.log)
	return err
}

// makePool makes the warm pool around the cold engine. shutdown drains and closes it.
func (s *Server) makePool(context.Context) error {
	s.engine = s.deps.newPool(s.cold, s.state.NodeID(), s.checker.Host, s.metrics, s.log)
	s.metrics.watchPool(s.engine)
	return nil
}

// removeLeftovers removes the containers of an earlier process of this node, before their execs are
// recorded as lost. Nothing to undo.
func (s *Server) removeLeftovers(ctx context.Context) error {
	s.sweep(ctx)
	return nil
}

// recoverExecs replays the spool, and ends the execs that an earlier process of this node left open
// as lost. Nothing to undo.
func (s *Server) recoverExecs(ctx context.Context) error {
	lost, err := s.audit.Recover(ctx)
	if len(lost) > 0 && err == nil {
		s.log.Warn("execs of an earlier run of this node are ended as lost", "execs", len(lost))
	}
	return err
}

// checkHealth makes the health checks and runs those whose results the next steps use. Nothing to
// undo.
func (s *Server) checkHealth(ctx context.Context) error {
	s.checker = s.deps.NewChecker(s.db.Audit(), s.db.Kind(), s.transparency.measure, s.retained,
		func() (audit.Unstored, error) { return s.audit.Unstored(), nil }, s.state.NodeID(), s.log)
	s.checker.Warm(ctx)
	s.registry.MustRegister(s.checker)
	return nil
}

// makeRunner makes the runner of execs with the store of their inputs, and the guard of the
// workspace's disk. shutdown drains the runner and closes the store.
func (s *Server) makeRunner(context.Context) (err error) {
	cfg := s.settings.Sandbox
	s.disk = diskwatch.New(s.workspace, diskwatch.Limits{
		FreeMinBytes: uint64(cfg.DiskFreeMinBytes), FreeMinInodes: uint64(cfg.DiskFreeMinInodes),
		GrowthMaxBytes: cfg.DiskGrowthMaxBytes, GrowthMaxEntries: cfg.DiskGrowthMaxEntries,
	}, s.log)
	if s.inputs, err = inputstore.Open(inputstore.Config{
		Root: s.workspace.Root(), MaxBytes: s.settings.Audit.InputsMaxMB << 20,
		MaxBytesPerToken: s.settings.Audit.InputsMaxMBPerToken << 20, Now: time.Now, Logger: s.log,
	}); err != nil {
		return err
	}
	s.network = network.New(network.Config{
		Store: s.db.Connections(), Private: cfg.Net.Networks(),
		Connections: cfg.Net.MaxConcurrentConnections, PerToken: cfg.Net.MaxConcurrentConnectionsPerToken, Now: time.Now, Logger: s.log,
		Secrets: s.secrets,
	})
	gauge(s.registry, "secbox_job_connections_open", "Connections that jobs have to hosts of net.allow now.", s.network.Count)
	if s.runner, err = runner.New(runner.Config{
		Network: s.network, Ports: cfg.PreviewDomain != "", SecretAllowed: s.secretAllowed,
		Inputs: s.inputs, KeepRequests: s.settings.Audit.InputsMaxMB > 0,
		Log: s.audit, Engine: s.engine, Images: s.deps.Own, Policy: s.deps.policy, Skills: s.deps.skills, Workspace: s.workspace,
		Ready: s.materialise,
		Host:  s.checker.Host, StateDir: s.state.Path(), NodeID: s.state.NodeID(), Key: s.key, User: s.deps.User, Disk: s.disk,
		Slots: cfg.MaxConcurrentExecs, Queue: cfg.MaxQueuedExecs,
		Each: admission.Share{AtOnce: cfg.MaxConcurrentExecsPerToken, Queue: cfg.MaxQueuedExecsPerToken},
		Sessions: session.New(session.Config{
			Engine: s.engine, Max: cfg.Sessions.Max, MaxPerToken: cmp.Or(cfg.Sessions.MaxPerToken, (cfg.Sessions.Max+3)/4),
			AtOnce: cfg.Sessions.MaxExecs, Imports: cfg.Sessions.WarmImports, Now: time.Now, NewID: NewID,
		}),
		MaxTTL: seconds(cfg.Sessions.MaxTTLSeconds),
		Async:  s.async(), Callbacks: s.callbacks(),
		Now: time.Now, NewID: NewID, Logger: s.log, Observer: s.metrics, Tracer: s.tracer,
	}); err != nil {
		return err
	}
	s.metrics.watchRunner(s.runner)
	gauge(s.registry, "secbox_inputs_kept_bytes", "Bytes of inputs that are kept for replays, in blocks of 4 KiB.",
		func() int { return int(s.inputs.Used()) })
	return nil
}

// makeSandboxes makes the users' sandboxes. Containers and links of machines start on demand.
// shutdown drains and closes them.
func (s *Server) makeSandboxes(context.Context) (err error) {
	if s.sandboxes, err = s.newSandboxes(newCommandMetrics(s.registry)); err != nil {
		return err
	}
	gauge(s.registry, "secbox_sandbox_commands_running", "Commands that run in users' sandboxes now.", s.sandboxes.Running)
	gauge(s.registry, "secbox_runners_connected", "Users' machines that are connected to this node.", s.sandboxes.machines.Here)
	return nil
}

// openLibrary opens the skill packages of agents and users. Nothing to undo.
func (s *Server) openLibrary(context.Context) (err error) {
	s.library, err = library.New(library.Config{
		Workspace: s.workspace, Versions: s.deps.versions, Registry: s.db.Skills(), Log: s.log,
		FreeMinBytes: uint64(s.settings.Sandbox.DiskFreeMinBytes), FreeMinInodes: uint64(s.settings.Sandbox.DiskFreeMinInodes),
		Changed: s.refreshCatalog,
	})
	return err
}

// openResults opens the store of long results of tools. shutdown closes it.
func (s *Server) openResults(context.Context) (err error) {
	s.results, err = offload.Open(offload.Config{Dir: filepath.Join(s.state.Path(), "offload")})
	return err
}

// makeFeishu makes the client of Feishu if the settings have an app, whose id and secret need each
// other. It sends nothing yet. shutdown closes it.
func (s *Server) makeFeishu(context.Context) (err error) {
	if cfg := s.settings.Feishu; cfg.AppID != "" || cfg.AppSecret != "" {
		s.feishu, err = feishu.New(feishu.Config{BaseURL: cfg.BaseURL, AppID: cfg.AppID, AppSecret: cfg.AppSecret.Reveal()})
	}
	return err
}

// listen takes the address, and accepts no connection yet. shutdown closes the listener.
func (s *Server) listen(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.settings.Addr)
	if err != nil {
		return fault.Wrap(fault.InvalidSettings, err, "cannot listen on %s: %s; %s", s.settings.Addr, fault.Reason(err), listenRemedy(err))
	}
	s.listener = newBoundedListener(l, s.settings.HTTP.MaxConnections, s.settings.HTTP.Proxies())
	return nil
}

func listenRemedy(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "another program, perhaps another core-api, uses the port: stop it, or choose another --addr"
	case errors.Is(err, syscall.EACCES):
		return "only root may use ports below 1024: choose another --addr, such as 127.0.0.1:8003, behind a proxy"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this machine has no such address: choose another --addr"
	}
	return "choose another --addr"
}

// makeHandler makes the HTTP API with the MCP server behind it. shutdown closes the MCP server.
func (s *Server) makeHandler(context.Context) (err error) {
	cfg := s.settings
	ofUsers := userPackages{s.library, s.deps.skills}
	invoker := countedInvoker{invoke.New(s.deps.skills, s.runner).WithPackages(ofUsers), s.deps.skills, s.metrics}
	s.replayer = replay.New(s.runner, s.inputs, skillVersions{ofUsers})
	var boxes mcpserver.SandboxSessions
	if cfg.Sandbox.Sessions.Max > 0 {
		boxes = s.runner
	}
	if s.mcp, err = mcpserver.New(mcpserver.Config{
		Invoker: invoker, Catalog: s.deps.skills, Packages: ofUsers, Tools: s.toolSession, Servers: s.mcpUserServers(), History: s.audit,
		Runner: s.runner, Sandboxes: boxes, Downloads: s.downloads(), Version: buildinfo.Version, NodeID: s.state.NodeID(), Logger: s.log,
		Tracer: s.tracer, MaxBodyBytes: cfg.HTTP.MaxBodyBytes,
	}); err != nil {
		return err
	}
	s.activity = audit.NewActivity(s.db.Audit(), nil)
	runs := runs{s.runner, s.sandboxes.Recorder}
	live := follow.New(followed{runs}, s.audit)
	s.pages, err = console.New(console.Config{
		Execs: visible.Execs{
			History: s.audit, Tombstones: s.db.Retention(), Tokens: s.tokens, Downloads: s.downloads(),
			Activity: s.activity, Commands: s.audit,
		},
		Events: s.audit, Callbacks: s.db.Webhooks(), Connections: s.db.Connections(), Runner: runs, Live: live,
		Replayer: s.replayer, Proofs: s.evidence,
		Nodes: s.db.Nodes(), Samples: s.db.Samples(), Health: s.checker, Pool: s.engine, Runners: s.sandboxes.machines,
		Reports:     s.reports(),
		AdminEvents: s.db.AdminEvents(), Registry: s.published, Holds: visible.Holds{Store: s.db.Retention()}, Retention: s.retention,
		Images:   s.db.OwnImages(),
		Sessions: sessions.New(s.db.Sessions(), s.tokens, time.Now).Trust(s.settings.Console.OIDC.Issuer), SignOn: s.signOn(),
		Views: s.db.Views(), Tokens: s.tokens, Version: buildinfo.Version, Logger: s.log,
	})
	if err != nil {
		return err
	}
	var peers api.Peers
	if s.peers != nil { // a nil *peer.Peers in an interface would not be nil
		peers = s.peers
	}
	s.handler, err = api.New(api.Config{
		Needs: api.Needs{
			Runner: runs, Live: live, Changes: s.db.Audit(), Webhooks: s.callbacks(), Connections: s.db.Connections(),
			History: s.audit, TransparencyLog: s.evidence,
			Retention:   s.db.Retention(),
			Images:      s.db.OwnImages(),
			Exports:     export.Exporter{Records: s.db.Audit(), Log: s.evidence, Events: s.db.AdminEvents(), Limits: s.db.Limits()},
			Reports:     s.reports(),
			AdminEvents: s.db.AdminEvents(), Downloads: s.downloads(), Health: healthReports{s.checker, s.engine, s.accepts},
			Pool:   poolReports{s.engine},
			Skills: s.deps.skills, Invoker: invoker, Replayer: s.replayer, Tokens: s.tokens, Library: s.library, View: s.library.View(),
			Sandboxes: s.sandboxes, Projects: projects{s}, Catalog: s.catalog, Registry: s.published, UploadDir: filepath.Join(s.state.Path(), "uploads"),
		},
		Peers: peers, Runners: connectedRunners{s.sandboxes.machines},
		Console: func(w http.ResponseWriter, r *http.Request, door api.Door) { s.pages.ServeHTTP(w, r, door) },
		MCP: func(w http.ResponseWriter, r *http.Request, caller tokens.Token, hold func(int64) (func(), error)) {
			s.mcp.ServeHTTP(w, r.WithContext(mcpserver.WithHold(mcpserver.WithCaller(r.Context(), caller), hold)))
		},
		MaxUploadBytes: cfg.Skills.MaxUploadBytes, UploadRoom: s.freeBytes, Bounds: bounds(cfg),
		ListenAddr: s.Addr(), AllowedHosts: cfg.HTTP.AllowedHosts, TrustedProxies: cfg.HTTP.TrustedProxies,
		PreviewDomain: cfg.Sandbox.PreviewDomain, LinkKey: s.key,
		MaxBodyBytes: cfg.HTTP.MaxBodyBytes,
		Logger:       s.log, Metrics: s.registry, Tracer: s.tracer,
	})
	return err
}

func (s *Server) reports() export.Reports {
	return export.Reports{
		Log: s.evidence, Records: s.db.Audit(), Events: s.db.AdminEvents(), Limits: s.db.Limits(), Denied: policy.DeniedFields,
	}
}

// bounds converts the settings. In api.Bounds, 0 means the default.
func bounds(cfg settings.Settings) api.Bounds {
	k := cfg.Skills
	queued := k.MaxQueuedWork
	if queued == 0 {
		queued = -1
	}
	return api.Bounds{
		Streams: cfg.HTTP.MaxStreams, StreamsPerToken: cfg.HTTP.MaxStreamsPerToken, Memory: cfg.HTTP.MaxMemoryBytes,
		MemoryPerToken: cfg.HTTP.MaxMemoryBytesPerToken,
		ConcurrentWork: k.MaxConcurrentWork, QueuedWork: queued, Uploads: k.MaxUploads, UploadsPerToken: k.MaxUploadsPerToken,
		UploadBytes: k.MaxWaitingBytes, UploadBytesPerToken: k.MaxWaitingBytesPerToken, Downloads: k.MaxDownloads,
		DownloadsPerToken: k.MaxDownloadsPerToken,
	}
}

// serve answers requests from here on. shutdown stops the HTTP server.
func (s *Server) serve(context.Context) error {
	s.http = s.newHTTP(s.listener)
	if s.peers != nil {
		s.peerHTTP = s.newHTTP(s.peers.Arrivals())
	}
	return nil
}

// newHTTP serves what a listener accepts.
func (s *Server) newHTTP(from net.Listener) *http.Server {
	h := &http.Server{
		Handler: s.withPeers(s.handler), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 5 * time.Minute, IdleTimeout: 2 * time.Minute,
		ConnContext:    peer.ConnContext,
		MaxHeaderBytes: 4 * api.MaxHeaderBytes, BaseContext: func(net.Listener) context.Context { return s.asked(context.Background()) },
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.background.Go(func() {
		if err := h.Serve(from); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the HTTP server ended", "error", err)
		}
	})
	return h
}
