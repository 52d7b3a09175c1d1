package settings

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"secbox/audit"
	"secbox/audit/translog/checkpoint"
	"secbox/fault"
	"secbox/internal/whole"
	"secbox/policy"
)

var (
	uidGid     = regexp.MustCompile(`^[0-9]{1,10}:[0-9]{1,10}$`)
	volumeName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{1,127}$`) // Docker's own rule
	module     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}(\.[A-Za-z_][A-Za-z0-9_]{0,63}){0,7}$`)
	domainName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	hostName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)
)

// endsInNumber matches what browsers take for an IPv4 address.
var endsInNumber = regexp.MustCompile(`(^|\.)(0x[0-9a-f]*|[0-9]+)$`)

// maxPreviewDomain leaves room for a port and a session's id before it: names have at most 253.
const maxPreviewDomain = 253 - len("65535-019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d.")

// poolSlotMB is the memory that one waiting container counts as, in MiB.
const poolSlotMB = 16

// minAdminToken is the least length of an admin token: 16 characters of base64 are 96 bits.
const minAdminToken = 16

// check returns everything that is wrong with values that could be read.
func (s Settings) check() []fault.Field {
	var p problems
	s.checkServer(&p)
	s.Node.check(&p)
	s.HTTP.check(&p)
	s.Sandbox.check(&p)
	s.checkPreviewDomain(&p)
	s.Pool.check(&p)
	between(&p, "skills.max_upload_bytes", s.Skills.MaxUploadBytes, 1<<10, 256<<20, "larger archives are not unpacked")
	s.Skills.check(&p)
	between(&p, "audit.retention_days", s.Audit.RetentionDays, 0, 36_525, "days; 0 keeps records for ever")
	between(&p, "audit.artifacts_retention_days", s.Audit.ArtifactsRetentionDays, 0, 36_525,
		"days; 0 keeps artifacts as long as their record")
	between(&p, "workspaces.idle_seconds", s.Workspaces.IdleSeconds, 0, 10*366*24*3600,
		"seconds, at most ten years; 0 leaves workspaces as they are")
	s.Sandboxes.check(&p)
	s.MCPServers.check(&p)
	s.Sandbox.Secrets.check(&p)
	s.Audit.check(&p)
	s.Traces.check(&p)
	s.Webhooks.check(&p)
	s.checkDirs(&p)
	resolver, err := policy.New(s.PolicyConfig())
	if err != nil {
		p.add(fault.From(err).Fields...)
		return p.fields
	}
	snapshot, _ := resolver.Resolve(nil, policy.Layer{}, policy.Host{}) // fails for requests only
	artifacts, growth := snapshot.Fields[policy.FieldMaxArtifacts].Ceiling.(int64), s.Sandbox.DiskGrowthMaxBytes
	if growth > 0 && growth < artifacts {
		p.addf("sandbox.disk_growth_max_bytes", "%d is less than the artifacts that an exec may leave, %d by "+
			"sandbox.policy_ceiling.max_artifacts_bytes_total; raise it or lower that",
			growth, artifacts)
	}
	return p.fields
}

// checkPreviewDomain refuses a domain whose pages could set cookies for the console, or get its.
func (s Settings) checkPreviewDomain(p *problems) {
	domain := s.Sandbox.PreviewDomain
	if domain == "" {
		return
	}
	listens, _, _ := net.SplitHostPort(s.Addr)
	for _, host := range append([]string{"localhost", listens}, s.HTTP.AllowedHosts...) {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		host = strings.ToLower(strings.TrimRight(host, "."))
		switch {
		case host == "":
		case host == domain || strings.HasSuffix(host, "."+domain):
			p.addf("sandbox.preview_domain", "%q has the host %s of the API and the console in it; use a domain for nothing else", domain, host)
		case strings.Contains(host, ".") && strings.HasSuffix(domain, "."+host): // browsers take no cookie for localhost from below
			p.addf("sandbox.preview_domain", "%q is below the host %s of the API and the console, for which its pages could set cookies; use another domain",
				domain, host)
		}
	}
}

func (s Settings) checkServer(p *problems) {
	if host, port, err := net.SplitHostPort(s.Addr); err != nil {
		p.addf("addr", "%q is no address; write host:port, such as 127.0.0.1:8003", whole.Shorten(s.Addr))
	} else if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		p.addf("addr", "%q is no port; use a number from 0 (any free one) to %d", whole.Shorten(port), math.MaxUint16)
	} else if host != "" && !isHost(host) {
		p.addf("addr", "%q is no host name or address (port %d); use 127.0.0.1, a name, or nothing for all addresses", whole.Shorten(host),
			n)
	}
	oneOf(p, "log_level", s.LogLevel, "debug", "info", "warn", "error")
	oneOf(p, "log_format", s.LogFormat, "text", "json")
	s.checkDatabaseURL(p)
	if t := s.AdminToken.Reveal(); t != "" {
		switch {
		case len(t) < minAdminToken:
			p.addf("CORE_API_ADMIN_TOKEN", "is shorter than %d characters and could be guessed; make one with: openssl rand -hex 32",
				minAdminToken)
		case strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r > '~' }):
			p.addf("CORE_API_ADMIN_TOKEN", "has characters that an Authorization header cannot carry; make one with: openssl rand -hex 32")
		}
	}
}

// checkDatabaseURL never quotes the value, nor the parser's error: both contain the password.
func (s Settings) checkDatabaseURL(p *problems) {
	if s.DatabaseURL == "" {
		return
	}
	const example = "write postgres://user:password@host:5432/name, or leave it out to use SQLite in the state dir"
	u, err := url.Parse(s.DatabaseURL.Reveal())
	switch {
	case err != nil:
		p.addf("database_url", "is no URL (does the password need percent-encoding?); %s", example)
	case u.Scheme != "postgres" && u.Scheme != "postgresql":
		p.addf("database_url", "is not a PostgreSQL URL; %s", example)
	case u.Opaque != "" || u.Host == "" && u.Query().Get("host") == "":
		p.addf("database_url", "names no host; %s", example)
	}
}

func (h HTTP) check(p *problems) {
	between(p, "http.max_body_bytes", h.MaxBodyBytes, 1<<10, 1<<30, "a body is held in memory")
	if h.MaxMemoryBytesPerToken != 0 {
		between(p, "http.max_memory_bytes_per_token", h.MaxMemoryBytesPerToken, 5*h.MaxBodyBytes, 1<<50,
			"a body of http.max_body_bytes takes up to five times its bytes")
	}
	if h.MaxMemoryBytes != 0 {
		between(p, "http.max_memory_bytes", h.MaxMemoryBytes, max(5*h.MaxBodyBytes, h.MaxMemoryBytesPerToken), 1<<50,
			"it needs room for one token, http.max_memory_bytes_per_token, and for a body, which takes up to five times its bytes")
	}
	between(p, "http.max_connections", int64(h.MaxConnections), 16, 1<<20, "each takes a file descriptor")
	between(p, "http.max_streams", int64(h.MaxStreams), 1, 1<<20, "each takes a connection")
	between(p, "http.max_streams_per_token", int64(h.MaxStreamsPerToken), 1, int64(h.MaxStreams), "it is a part of http.max_streams")
	for i, host := range h.AllowedHosts {
		name, port, err := net.SplitHostPort(host)
		if err != nil {
			name, port = host, "80"
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil || !isHost(strings.Trim(name, "[]")) {
			p.addf(fmt.Sprintf("http.allowed_hosts[%d]", i),
				"%q is no host name; write it as in a URL, without scheme or path and without *", whole.Shorten(host))
		}
	}
	for i, proxy := range h.TrustedProxies {
		if _, err := parseNetwork(proxy); err != nil {
			p.addf(fmt.Sprintf("http.trusted_proxies[%d]", i), "%q is no address and no network; write 10.0.0.5 or 10.0.0.0/24",
				whole.Shorten(proxy))
		}
	}
}

// Proxies returns the networks of the trusted proxies.
func (h HTTP) Proxies() []netip.Prefix { return networks(h.TrustedProxies) }

func isHost(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil || hostName.MatchString(name)
}

func (k Skills) check(p *problems) {
	between(p, "skills.max_concurrent_work", int64(k.MaxConcurrentWork), 1, 256, "each keeps the disk and a processor busy")
	between(p, "skills.max_queued_work", int64(k.MaxQueuedWork), 0, 10_000, "each holds a connection")
	between(p, "skills.max_uploads", int64(k.MaxUploads), 1, 10_000, "each holds a connection and a file")
	between(p, "skills.max_uploads_per_token", int64(k.MaxUploadsPerToken), 1, 10_000, "each holds a connection and a file")
	between(p, "skills.max_downloads", int64(k.MaxDownloads), 1, 10_000, "each holds a connection and may hold a copy of the skill")
	between(p, "skills.max_downloads_per_token", int64(k.MaxDownloadsPerToken), 1, 10_000,
		"each holds a connection and may hold a copy of the skill")
	const form = 1 << 20 // more than a form adds to an archive
	for key, value := range map[string]int64{
		"skills.max_waiting_bytes": k.MaxWaitingBytes, "skills.max_waiting_bytes_per_token": k.MaxWaitingBytesPerToken,
	} {
		between(p, key, value, k.MaxUploadBytes+form, 1<<50, "it needs room for the largest archive, skills.max_upload_bytes and 1 MiB")
	}
}

func (l Pool) check(p *problems) {
	between(p, "pool.max", int64(l.Max), 0, 1024, "each takes a container; 0 turns the pool off")
	between(p, "pool.max_per_key", int64(l.MaxPerKey), 1, 1024, "to turn the pool off, set pool.max to 0")
	between(p, "pool.ready", int64(l.Ready), -1, 1024, "-1 chooses by the number of cores")
	between(p, "pool.max_memory_mb", l.MaxMemoryMB, poolSlotMB, 1<<20,
		"a waiting container takes 16 MiB; to turn the pool off, set pool.max to 0")
	between(p, "pool.idle_seconds", int64(l.IdleSeconds), 1, 7*24*3600, "seconds, at most a week; to turn the pool off, set pool.max to 0")
}

// maxWitnesses bounds the requests for cosignatures.
const maxWitnesses = 8

func (a Audit) check(p *problems) {
	between(p, "audit.anchor_every", int64(a.AnchorEvery), 1, 1_000_000, "checkpoints")
	if len(a.Witnesses) > maxWitnesses {
		p.addf("audit.witnesses", "has %d witnesses, more than %d; remove some", len(a.Witnesses), maxWitnesses)
	}
	seen := map[string]bool{}
	for i, text := range a.Witnesses {
		key := fmt.Sprintf("audit.witnesses[%d]", i)
		w, err := checkpoint.ParseWitness(text)
		if err != nil {
			p.addf(key, "%s", fault.From(err).Message)
			continue
		}
		if seen[w.Key.Name()] {
			p.addf(key, "has the name of another one, %q; remove it, or start the witness with another --name and an empty --dir",
				whole.Shorten(w.Key.Name()))
		}
		seen[w.Key.Name()] = true
	}
}

func (s Node) check(p *problems) {
	if s.Address != "" {
		u, err := url.Parse(s.Address)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
			p.addf("node.address", "%q is no URL; write http://HOST:8003, with a name or address of this machine that the other nodes know",
				whole.Shorten(s.Address))
		case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/":
			p.addf("node.address", "has more than scheme, host and port; leave the rest out")
		}
	}
	between(p, "node.lease_seconds", int64(s.LeaseSeconds), 2, 3600, "seconds; a dead node is noticed after as many")
}

func (s Sandboxes) check(p *problems) {
	oneOf(p, "sandboxes.backend", s.Backend, audit.Backends()...)
	if s.Backend == audit.BackendNone && !s.None {
		p.addf("sandboxes.backend",
			"is none, which runs commands on this machine, unconfined; set sandboxes.none to true as well, or use docker")
	}
	between(p, "sandboxes.idle_seconds", int64(s.IdleSeconds), 1, 7*24*3600, "seconds, at most a week")
	between(p, "sandboxes.max_containers_per_token", int64(s.MaxContainersPerToken), 0, max(0, int64(s.MaxContainers)),
		"0 is the default: three quarters of sandboxes.max_containers")
	between(p, "sandboxes.max_containers", int64(s.MaxContainers), 1, 1024, "each takes memory while it waits")
	between(p, "sandboxes.runner_grace_seconds", int64(s.RunnerGraceSeconds), 1, 3600, "seconds; a client waits for as long")
	between(p, "sandboxes.heartbeat_seconds", int64(s.HeartbeatSeconds), 1, 300, "seconds")
}

// checkEngine checks what a cluster needs, and refuses what it cannot have.
func (s Sandbox) checkEngine(p *problems) {
	oneOf(p, "sandbox.engine", s.Engine, EngineDocker, EngineKubernetes)
	if s.Engine != EngineKubernetes {
		return
	}
	k := s.Kubernetes
	oneOf(p, "sandbox.kubernetes.image_pull_policy", k.ImagePullPolicy, "Always", "IfNotPresent", "Never")
	for _, name := range []struct {
		setting, value string
		needed         bool
	}{
		{"namespace", k.Namespace, true},
		{"volume_claim", k.VolumeClaim, false},
		{"runtime_class", k.RuntimeClass, false},
		{"image_pull_secret", k.ImagePullSecret, false},
	} {
		if (name.needed || name.value != "") && !kubeName.MatchString(name.value) {
			p.addf("sandbox.kubernetes."+name.setting, "%q is no name of a cluster's object: lower-case letters, digits and dashes",
				whole.Shorten(name.value))
		}
	}
	for i, label := range k.NodeSelector {
		if name, value, ok := strings.Cut(label, "="); !ok || name == "" || len(value) > 63 {
			p.addf(fmt.Sprintf("sandbox.kubernetes.node_selector[%d]", i), "%q is no label; write name=value", whole.Shorten(label))
		}
	}
	const noSockets = "pods have no sockets but Unix ones; leave it out, or use sandbox.engine docker"
	if len(s.Policy.NetAllow) > 0 {
		p.addf("sandbox.policy.net.allow", noSockets)
	}
	if s.PreviewDomain != "" {
		p.addf("sandbox.preview_domain", noSockets)
	}
}

var kubeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func (s Sandbox) check(p *problems) {
	s.checkEngine(p)
	oneOf(p, "sandbox.seccomp", s.Seccomp, "secbox", SeccompOfEngine)
	oneOf(p, "sandbox.runtime_mode", s.RuntimeMode, "auto", "linux", "windows", "wsl", "container")
	between(p, "sandbox.max_concurrent_execs", int64(s.MaxConcurrentExecs), 1, 1024, "each takes a container")
	between(p, "sandbox.max_concurrent_execs_per_token", int64(s.MaxConcurrentExecsPerToken), 0, max(0, int64(s.MaxConcurrentExecs)),
		"0 is the default: all but one of sandbox.max_concurrent_execs")
	between(p, "sandbox.max_queued_execs_per_token", int64(s.MaxQueuedExecsPerToken), 0, max(0, int64(s.MaxQueuedExecs)),
		"0 is the default: three quarters of sandbox.max_queued_execs")
	between(p, "sandbox.max_queued_execs", int64(s.MaxQueuedExecs), 0, 100_000, "each holds its request in memory")
	between(p, "sandbox.max_queued_async", int64(s.MaxQueuedAsync), 0, 100_000, "each is a row of the database")
	between(p, "sandbox.max_queued_async_mb", int64(s.MaxQueuedAsyncMB), 1, 1<<20, "MiB")
	between(p, "sandbox.max_queued_per_token", int64(s.MaxQueuedPerToken), 0, max(0, int64(s.MaxQueuedAsync)),
		"0 is the default: half of sandbox.max_queued_async")
	between(p, "sandbox.reserved_execs", int64(s.ReservedExecs), -1, max(0, int64(s.MaxConcurrentExecs)-1),
		"at least one of sandbox.max_concurrent_execs is for asynchronous execs; -1 is a quarter of them")
	for name, n := range map[string]int{
		"sandbox.net.max_concurrent_connections":           s.Net.MaxConcurrentConnections,
		"sandbox.net.max_concurrent_connections_per_token": s.Net.MaxConcurrentConnectionsPerToken,
	} {
		between(p, name, int64(n), 1, 100_000, "each may take 256 KiB of memory")
	}
	for i, network := range s.Net.Private {
		if _, err := parseNetwork(network); err != nil {
			p.addf(fmt.Sprintf("sandbox.net.private[%d]", i), "%q is no address and no network; write 10.0.0.5 or 10.0.0.0/24", whole.Shorten(network))
		}
	}
	if d := s.PreviewDomain; d != "" && (!domainName.MatchString(d) || len(d) > maxPreviewDomain || endsInNumber.MatchString(d)) {
		p.addf("sandbox.preview_domain", "%q is no domain name in lower case of at most %d characters; write one such as preview.example.net, "+
			"without *, scheme and port", whole.Shorten(d), maxPreviewDomain)
	}
	between(p, "sandbox.sessions.max", int64(s.Sessions.Max), 0, 10_000, "each takes a container")
	between(p, "sandbox.sessions.max_per_token", int64(s.Sessions.MaxPerToken), 0, max(0, int64(s.Sessions.Max)),
		"0 is the default: a quarter of sandbox.sessions.max")
	between(p, "sandbox.sessions.max_execs", int64(s.Sessions.MaxExecs), 1, 64, "a container runs no more")
	for i, name := range s.Sessions.WarmImports {
		if !module.MatchString(name) {
			p.addf(fmt.Sprintf("sandbox.sessions.warm_imports[%d]", i), "%q is no name of a module of Python", name)
		}
	}
	between(p, "sandbox.sessions.max_ttl_seconds", int64(s.Sessions.MaxTTLSeconds), 60, 30*24*3600, "seconds, at most 30 days")
	if d := s.DockerPath; d != "" && !filepath.IsAbs(d) && strings.ContainsAny(d, `/\`) {
		p.addf("sandbox.docker_path", "%q is relative; give the whole path, or a bare name to look up on PATH", whole.Shorten(d))
	}
	switch {
	case s.User == "":
	case !uidGid.MatchString(s.User):
		p.addf("sandbox.user", "%q is not uid:gid; write numbers, such as 1000:1000", whole.Shorten(s.User))
	case strings.Trim(strings.Split(s.User, ":")[0], "0") == "":
		p.addf("sandbox.user", "%q is root, and jobs never run as root; use another uid, such as 1000:1000", s.User)
	}
	if !volumeName.MatchString(s.InitVolume) {
		p.addf("sandbox.init_volume", "%q is no name of a Docker volume; use letters, digits, dots, dashes and underscores",
			whole.Shorten(s.InitVolume))
	}
	const most = 1 << 50 // 1 PiB, as for the policy
	between(p, "sandbox.disk_free_min_bytes", s.DiskFreeMinBytes, 0, most, "")
	between(p, "sandbox.disk_free_min_inodes", s.DiskFreeMinInodes, 0, most, "")
	between(p, "sandbox.disk_growth_max_entries", s.DiskGrowthMaxEntries, 1000, 100_000_000, "each is walked and removed one by one")
	between(p, "sandbox.disk_growth_max_bytes", s.DiskGrowthMaxBytes, 1, most, "")
	between(p, "sandbox.workspace_ttl_hours", s.WorkspaceTTLHours, 0, 10*366*24, "hours, at most ten years; 0 keeps workspaces for ever")
}

// checkDirs checks the directories that are in the form of this system; package pathadapter checks
// a root in another system's form.
func (s Settings) checkDirs(p *problems) {
	if s.StateDir == "" {
		p.addf("state_dir",
			"is not set, and the environment does not name this user's folders; set it (or CORE_API_STATE_DIR, or --state-dir)")
		return
	}
	if !filepath.IsAbs(s.StateDir) {
		p.addf("state_dir", "%q is relative; give the whole path", whole.Shorten(s.StateDir))
		return
	}
	box := s.Sandbox
	if box.WorkspaceRoot == "" && box.WorkspaceRootWin == "" && box.WorkspaceRootWSL == "" {
		p.addf("sandbox.workspace_root", "is not set, and the environment does not name this user's folders; set it (or "+
			"CORE_API_SANDBOX_WORKSPACE_ROOT, or --workspace-root)")
	}
	if box.WorkspaceRoot != "" && !filepath.IsAbs(box.WorkspaceRoot) {
		p.addf("sandbox.workspace_root", "%q is relative; give the whole path", whole.Shorten(box.WorkspaceRoot))
	}
	for _, root := range []struct{ key, dir string }{
		{"sandbox.workspace_root", box.WorkspaceRoot},
		{"sandbox.workspace_root_win", box.WorkspaceRootWin},
		{"sandbox.workspace_root_wsl", box.WorkspaceRootWSL},
	} {
		if !filepath.IsAbs(root.dir) {
			continue
		}
		key, err := root.key, CheckApart(s.StateDir, root.dir)
		if err == nil && filepath.IsAbs(box.SkillsDir) {
			key, err = "sandbox.skills_dir", CheckSkillsDir(box.SkillsDir, s.StateDir, root.dir)
		}
		var e *fault.Error
		switch {
		case !errors.As(err, &e):
		case len(e.Fields) > 0:
			p.add(e.Fields...)
		default:
			p.addf(key, "%s", e.Message)
		}
	}
	between(p, "audit.inputs_max_mb", s.Audit.InputsMaxMB, 0, 1<<20, "MiB; 0 keeps no inputs")
	between(p, "audit.inputs_max_mb_per_token", s.Audit.InputsMaxMBPerToken, 0, 1<<20, "MiB; 0 is a quarter of audit.inputs_max_mb")
	if file := s.Audit.HMACKeyFile; file != "" && !filepath.IsAbs(file) {
		p.addf("audit.hmac_key_file", "%q is relative; give the whole path", whole.Shorten(file))
	}
	if file := s.Audit.LogKeyFile; file != "" && !filepath.IsAbs(file) {
		p.addf("audit.log_key_file", "%q is relative; give the whole path", whole.Shorten(file))
	}
	if dir := s.Audit.AnchorDir; dir != "" {
		if !filepath.IsAbs(dir) {
			p.addf("audit.anchor_dir", "%q is relative; give the whole path", whole.Shorten(dir))
		} else if below, err := filepath.Rel(s.StateDir, dir); err == nil && filepath.IsLocal(below) {
			p.addf("audit.anchor_dir", "%q is in the state dir, and would be rolled back with it; use a directory on another volume",
				whole.Shorten(dir))
		}
	}
	if box.SkillsDir != "" && !filepath.IsAbs(box.SkillsDir) {
		p.addf("sandbox.skills_dir", "%q is relative; give the whole path", whole.Shorten(box.SkillsDir))
	}
}

func oneOf(p *problems, key, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		p.addf(key, "%q is none of %s", whole.Shorten(value), strings.Join(allowed, ", "))
	}
}

// between checks a number; why explains the bounds.
func between(p *problems, key string, value, least, most int64, why string) {
	if value >= least && value <= most {
		return
	}
	if why != "" {
		why = ": " + why
	}
	p.addf(key, "%d is out of bounds; use %d to %d%s", value, least, most, why)
}

// Networks returns Private, parsed.
func (n Net) Networks() []netip.Prefix { return networks(n.Private) }
