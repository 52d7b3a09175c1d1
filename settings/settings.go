package settings

import (
	"secbox/audit"
	"secbox/policy"
)

// Settings is the whole configuration. The zero value is not valid: use Default or Load.
type Settings struct {
	Addr        string `yaml:"addr" flag:"addr" doc:"Address to listen on. Addresses other than loopback are served only once a token exists."`
	StateDir    string `yaml:"state_dir" flag:"state-dir" default:"/var/lib/secbox for root, else the user's state folder" doc:"Directory for the embedded database, captured output, spool and tokens, which no container may see. It must be on a local disk, outside the workspace root."`
	DatabaseURL Secret `yaml:"database_url" also:"DATABASE_URL" flag:"database-url" default:"SQLite in the state dir" doc:"PostgreSQL database of the audit, postgres://user:password@host:port/name."`
	LogLevel    string `yaml:"log_level" flag:"log-level" doc:"Lowest level that is logged: debug, info, warn or error."`
	LogFormat   string `yaml:"log_format" flag:"log-format" doc:"Format of log lines: text or json."`
	AdminToken  Secret `yaml:"admin_token" source:"env" default:"none" doc:"Token with the role admin that always exists, at least 16 characters. Environment only, so that it is in no file."`

	Node    Node    `yaml:"node"`
	HTTP    HTTP    `yaml:"http"`
	Sandbox Sandbox `yaml:"sandbox"`
	Pool    Pool    `yaml:"pool"`
	Skills  Skills  `yaml:"skills"`

	Audit      Audit      `yaml:"audit"`
	Workspaces Workspaces `yaml:"workspaces"`
	Sandboxes  Sandboxes  `yaml:"sandboxes"`
	Feishu     Feishu     `yaml:"feishu"`
	Console    Console    `yaml:"console"`
	Traces     Traces     `yaml:"traces"`
	Webhooks   Webhooks   `yaml:"webhooks"`
	MCPServers MCPServers `yaml:"mcp_servers" default:"none" doc:"MCP servers that run in users' sandboxes, by agent (* is all agents) and name; see mcp.md. As a variable, the same as JSON."`

	origin origin // not a setting; see Command
}

// Node is about this node among those that share a database.
type Node struct {
	Address      string `yaml:"address" default:"none" doc:"URL at which other nodes reach this one, such as http://10.0.0.5:8003, to forward requests about its running execs; port 0 is that of addr."`
	LeaseSeconds int    `yaml:"lease_seconds" doc:"Seconds after its last sign of life in the database after which another node ends this one's execs as lost. Give all nodes the same."`
}

// HTTP is about the server and its clients.
type HTTP struct {
	MaxBodyBytes           int64    `yaml:"max_body_bytes" doc:"Largest request body in bytes; a body is held in memory."`
	MaxMemoryBytes         int64    `yaml:"max_memory_bytes" default:"512 MiB, and room for three tokens" doc:"Bytes of memory for the bodies and answers of all requests at once; further requests get 503 server_busy. 0 is the default."`
	MaxMemoryBytesPerToken int64    `yaml:"max_memory_bytes_per_token" default:"192 MiB, and room for one body" doc:"Bytes of http.max_memory_bytes that one token may use. 0 is the default."`
	MaxConnections         int      `yaml:"max_connections" doc:"Connections at once, three quarters of them from one address; further ones are closed at once."`
	MaxStreams             int      `yaml:"max_streams" doc:"Streams of events, and requests that wait for the end of an exec, at once; further ones get 503 server_busy."`
	MaxStreamsPerToken     int      `yaml:"max_streams_per_token" doc:"Streams and waiting requests of one token at once."`
	AllowedHosts           []string `yaml:"allowed_hosts" doc:"Host names that requests may use beside the loopback names and the listening address."`
	TrustedProxies         []string `yaml:"trusted_proxies" doc:"Addresses or networks of reverse proxies whose X-Forwarded-For is logged. With any of them every request needs a token."`
}

// Sandbox is about execs: where and how they run.
type Sandbox struct {
	Engine     string     `yaml:"engine" doc:"What runs jobs: docker, or kubernetes, whose pods are described in docs/kubernetes.md."`
	Kubernetes Kubernetes `yaml:"kubernetes"`

	RuntimeMode       string `yaml:"runtime_mode" doc:"Platform of this process: auto, linux, windows, wsl or container."`
	WorkspaceRoot     string `yaml:"workspace_root" flag:"workspace-root" default:"/var/lib/secbox-workspace for root, else secbox-workspace in the home folder" doc:"Directory of the projects, as this process sees it on Linux, macOS and in a container."`
	WorkspaceRootWin  string `yaml:"workspace_root_win" default:"derived" doc:"The workspace root as Windows writes it, such as D:\\secbox\\workspace."`
	WorkspaceRootWSL  string `yaml:"workspace_root_wsl" default:"derived" doc:"The workspace root as WSL writes it, such as /mnt/d/secbox/workspace."`
	WorkspaceRootHost string `yaml:"workspace_root_host" default:"none" doc:"In container mode: the workspace root as the machine of the Docker engine sees it."`
	WorkspaceVolume   string `yaml:"workspace_volume" default:"none" doc:"In container mode, without workspace_root_host: the Docker volume that is mounted at workspace_root. Containers get directories in it, which needs Docker engine 26."`

	MaxConcurrentExecs         int `yaml:"max_concurrent_execs" doc:"Execs that run at once."`
	MaxQueuedExecs             int `yaml:"max_queued_execs" doc:"Execs that may wait in the queue; further ones get 429."`
	MaxConcurrentExecsPerToken int `yaml:"max_concurrent_execs_per_token" default:"all but one" doc:"Execs of one token that run at once; further ones wait. Requests without a token have no such limit. 0 is the default."`
	MaxQueuedExecsPerToken     int `yaml:"max_queued_execs_per_token" default:"three quarters" doc:"Execs of one token that may wait in the queue; further ones get 429. 0 is the default."`
	MaxQueuedAsync             int `yaml:"max_queued_async" doc:"Asynchronous execs that may wait in the database, for all nodes; further ones get 429."`
	MaxQueuedAsyncMB           int `yaml:"max_queued_async_mb" doc:"MiB in the database for what asynchronous execs need that wait or run: environment, standard input, input files."`
	MaxQueuedPerToken          int `yaml:"max_queued_per_token" default:"half" doc:"Asynchronous execs of one token that may wait; further ones get 429. 0 is the default."`
	ReservedExecs              int `yaml:"reserved_execs" doc:"Of max_concurrent_execs, those that asynchronous execs leave to other requests. -1: a quarter, rounded up, and none of a single one."`

	Sessions      Sessions `yaml:"sessions"`
	Net           Net      `yaml:"net"`
	PreviewDomain string   `yaml:"preview_domain" default:"off" doc:"Domain name, such as preview.example.net, whose names lead here: HTTP servers in sessions have hosts below it, with a token or a signed link. It must be used for nothing else: see docs/ports.md."`

	Secrets JobSecrets `yaml:"secrets" default:"none" doc:"Secrets that core-api adds to requests of jobs, which never see them, by name; see secrets.md. As a variable, the same as JSON."`

	Policy            policy.Layer  `yaml:"policy"`
	PolicyCeiling     policy.Limits `yaml:"policy_ceiling"`
	Images            []string      `yaml:"images" doc:"Images that a skill or a request may use beside secbox-sandbox:latest."`
	WorkspaceTTLHours int64         `yaml:"workspace_ttl_hours" doc:"Hours without use after which a user's workspace is removed: work, home and inputs; each removal is an administrative event, and holds keep workspaces. 0 keeps them for ever."`
	SkillsDir         string        `yaml:"skills_dir" flag:"skills-dir" default:"none" doc:"Directory of further skills, one folder each, beside the built-in ones. It must be outside the workspace root and the state dir."`

	Seccomp        string `yaml:"seccomp" doc:"Seccomp profile of containers: secbox, which core-api provides, or engine, the engine's own, for a docker CLI that cannot read files of the state dir (a snap), or podman."`
	ReadOnlyRootfs bool   `yaml:"read_only_rootfs" doc:"Mount the container's own file system read-only."`
	DockerPath     string `yaml:"docker_path" default:"docker on PATH" doc:"The docker binary: an absolute path, or a name to find on PATH."`
	Runtime        string `yaml:"runtime" default:"the engine's default" doc:"OCI runtime of the containers, by the name that the engine knows: runc, crun, runsc."`
	User           string `yaml:"user" default:"1000:1000, or this process's own" doc:"User and group of the container's processes, uid:gid, never root."`
	InitVolume     string `yaml:"init_volume" doc:"Docker volume that provides sandbox-init to images without it."`

	DiskFreeMinBytes     int64 `yaml:"disk_free_min_bytes" doc:"Free bytes of the workspace's disk below which the job that has written most is killed. Below it in the state dir, refused requests are only counted. 0 turns the check off."`
	DiskFreeMinInodes    int64 `yaml:"disk_free_min_inodes" doc:"Free inodes of the workspace's disk below which the job that has created most files is killed. 0 turns the check off."`
	DiskGrowthMaxBytes   int64 `yaml:"disk_growth_max_bytes" doc:"Bytes by which a project may grow while a job runs before the job is killed: work, home, artifacts of running jobs, and removed files that are still open."`
	DiskGrowthMaxEntries int64 `yaml:"disk_growth_max_entries" doc:"Files and directories by which a project may grow while a job runs before the job is killed. It is also killed above 250,000 in one of them."`
}

// The values of Sandbox.Engine.
const (
	EngineDocker     = "docker"
	EngineKubernetes = "kubernetes"
)

// Kubernetes is about the cluster that runs jobs, if Sandbox.Engine says so.
type Kubernetes struct {
	Kubeconfig      string   `yaml:"kubeconfig" default:"the pod's service account" doc:"File with the cluster's address and credentials."`
	Context         string   `yaml:"context" default:"the current one" doc:"The context of the kubeconfig."`
	Namespace       string   `yaml:"namespace" doc:"Namespace of the pods that run jobs. Nothing else should be in it."`
	VolumeClaim     string   `yaml:"volume_claim" default:"none" doc:"Claim, there, of the ReadWriteMany volume that is mounted here at workspace_root. Without one, the files of an exec are copied to its pod and back, and there are no sessions."`
	RuntimeClass    string   `yaml:"runtime_class" default:"the cluster's default" doc:"RuntimeClass of the pods."`
	NodeSelector    []string `yaml:"node_selector" default:"none" doc:"Labels that a node must have to run jobs: name=value."`
	ImagePullSecret string   `yaml:"image_pull_secret" default:"none" doc:"Secret, in that namespace, for the registry of the images."`
	ImagePullPolicy string   `yaml:"image_pull_policy" doc:"Always, IfNotPresent or Never."`
}

// Sessions is about containers that stay for several execs.
type Sessions struct {
	Max           int      `yaml:"max" doc:"Sessions on this node at once; further ones get 429. Each takes some 16 MiB without an exec."`
	WarmImports   []string `yaml:"warm_imports" doc:"Modules that a session's first Python imports before its first cell. It starts with the session, if that has 256 MiB of memory."`
	MaxPerToken   int      `yaml:"max_per_token" default:"a quarter" doc:"Sessions of one token at once. Requests without a token have no limit. 0 is the default."`
	MaxExecs      int      `yaml:"max_execs" doc:"Execs that run in one session at once; further ones get 429."`
	MaxTTLSeconds int      `yaml:"max_ttl_seconds" doc:"Seconds that a session may last."`
}

// Net is about the connections of jobs whose policy allows hosts (sandbox.policy.net.allow).
type Net struct {
	Private                          []string `yaml:"private" default:"none" doc:"Networks such as 10.1.2.0/24 whose addresses jobs may reach if net.allow allows the host. Others that are private, of this machine or reserved are always refused."`
	MaxConcurrentConnections         int      `yaml:"max_concurrent_connections" doc:"Connections of all jobs of this node, and to ports of its sessions, at once; further ones are refused. Each may take 256 KiB."`
	MaxConcurrentConnectionsPerToken int      `yaml:"max_concurrent_connections_per_token" doc:"Such connections of one token at once."`
}

// SeccompOfEngine is the value of Sandbox.Seccomp for the engine's own profile.
const SeccompOfEngine = "engine"

// Pool is about containers that are started ahead and wait for an exec.
type Pool struct {
	Max         int   `yaml:"max" doc:"Containers that wait at most, over all projects. 0 turns the pool off: every exec starts its own container."`
	MaxPerKey   int   `yaml:"max_per_key" doc:"Containers that wait for the same project, image and limits, if they serve one project each."`
	Share       bool  `yaml:"share" doc:"Waiting containers serve any project: its directories are mounted when an exec comes. Needs root on Linux 5.12 and an engine with root on the same machine; else each waits for one project."`
	Ready       int   `yaml:"ready" doc:"Containers of the default image and limits that wait from the start, if they serve any project. -1: two for each core, half of what it can start per second. 0: none before the first request."`
	MaxMemoryMB int64 `yaml:"max_memory_mb" doc:"MiB of memory that waiting containers may use together. Each counts as 16: the docker CLI, containerd's shim and sandbox-init."`
	IdleSeconds int   `yaml:"idle_seconds" doc:"Seconds after which a waiting container is removed if no exec has used it, except the ready ones."`
}

// Skills is about the skill packages of agents and users.
type Skills struct {
	MaxUploadBytes int64 `yaml:"max_upload_bytes" doc:"Largest archive of a skill in bytes; it is stored in the state dir while it is unpacked."`

	MaxConcurrentWork       int   `yaml:"max_concurrent_work" doc:"Uploads, promotions and syncs that are processed at once."`
	MaxQueuedWork           int   `yaml:"max_queued_work" doc:"Uploads, promotions and syncs that may wait; further ones get 503 skills_busy."`
	MaxUploads              int   `yaml:"max_uploads" doc:"Uploads that are received or wait to be unpacked at once."`
	MaxUploadsPerToken      int   `yaml:"max_uploads_per_token" doc:"Uploads of one token at once."`
	MaxWaitingBytes         int64 `yaml:"max_waiting_bytes" doc:"Bytes of uploaded archives in the state dir at once."`
	MaxWaitingBytesPerToken int64 `yaml:"max_waiting_bytes_per_token" doc:"Bytes of uploaded archives of one token in the state dir at once."`
	MaxDownloads            int   `yaml:"max_downloads" doc:"Downloads of skills at once; each may need a copy in the workspace until it is sent."`
	MaxDownloadsPerToken    int   `yaml:"max_downloads_per_token" doc:"Downloads of one token at once."`
}

// Audit is about the keys of the audit, and what it keeps.
type Audit struct {
	LogKeyFile             string   `yaml:"log_key_file" default:"log.key in the state dir" doc:"File with the key that signs the transparency log; created if the log is new. Nodes of one database need the same key to take over from each other."`
	HMACKeyFile            string   `yaml:"hmac_key_file" default:"hmac.key in the state dir" doc:"File with the key of the keyed digests of requests, environment values and standard input; created if it is missing. Nodes of one database need the same key."`
	InputsMaxMB            int64    `yaml:"inputs_max_mb" doc:"MiB of inputs' contents that are kept for replays; further execs run, and their inputs are not kept. 0 keeps none."`
	InputsMaxMBPerToken    int64    `yaml:"inputs_max_mb_per_token" default:"a quarter" doc:"MiB of audit.inputs_max_mb that one token may use. 0 is the default."`
	Witnesses              []string `yaml:"witnesses" default:"none" doc:"Witnesses that are asked for cosignatures of the transparency log, each as its public key, a space, and its address; secbox audit witness --listen is one."`
	AnchorDir              string   `yaml:"anchor_dir" default:"none" doc:"Directory on another volume to which checkpoints of the transparency log are appended; the log is compared with the last one at each start."`
	AnchorEvery            int      `yaml:"anchor_every" doc:"Append every n-th checkpoint to audit.anchor_dir, and the last one before a pause of 10 seconds."`
	RetentionDays          int64    `yaml:"retention_days" doc:"Days after its end that an exec's record and events are kept; the artifacts go with them. 0 keeps them for ever."`
	ArtifactsRetentionDays int64    `yaml:"artifacts_retention_days" doc:"Days after an exec's end that its artifacts and captured output are kept, and inputs of a project without younger execs. 0 keeps them as long as the record."`
}

// Workspaces is about the workspaces of users.
type Workspaces struct {
	IdleSeconds int64 `yaml:"idle_seconds" doc:"Seconds after which copies of skills that equal the stored version are removed from an unused workspace; they are made again when needed. 0 keeps them."`
}

// Sandboxes is about /v1/sandbox and the runners on users' machines. Execs are configured by
// Sandbox.
type Sandboxes struct {
	Backend               string `yaml:"backend" doc:"Backend of users who have chosen none: docker, remote, or none where that is allowed."`
	None                  bool   `yaml:"none" doc:"Allow the backend none, whose commands run unconfined on this machine as the user that core-api runs as."`
	MaxContainersPerToken int    `yaml:"max_containers_per_token" default:"three quarters" doc:"User containers that one token may have started; when it starts another, an idle one of them is stopped. 0 is the default."`
	IdleSeconds           int    `yaml:"idle_seconds" doc:"Seconds without a command after which a user's container is stopped; the next command starts it again."`
	MaxContainers         int    `yaml:"max_containers" doc:"User containers at once. When another is needed, an idle one is stopped; if none is idle, the answer is 503 sandbox_busy."`
	RunnerGraceSeconds    int    `yaml:"runner_grace_seconds" doc:"Seconds that commands on a user's machine wait for its lost connection to return; then their outcome is unknown."`
	HeartbeatSeconds      int    `yaml:"heartbeat_seconds" doc:"Seconds between two pings of a user's machine; after three without an answer the connection is closed."`
}

// Webhooks is about requests to services of clients when execs end.
type Webhooks struct {
	Allow         []string `yaml:"allow" default:"none" doc:"Hosts that callback_url may name: hooks.example.com, or *.example.com for those below it, with a port if it is not the one of the scheme. None: webhooks are off."`
	AllowNetworks []string `yaml:"allow_networks" default:"none" doc:"Addresses or networks that are not public, and that webhooks may call all the same, such as 10.1.2.0/24. The address of a host is checked when it is called."`
	AllowHTTP     bool     `yaml:"allow_http" doc:"callback_url may begin with http://."`
}

// Feishu is about the app of Feishu (or Lark) by which tools move files.
type Feishu struct {
	AppID     string `yaml:"app_id" default:"none" doc:"Id of the internal app in Feishu, cli_…. With it and the secret, workspaces have the tools feishu.download and feishu.upload."`
	AppSecret Secret `yaml:"app_secret" source:"env" default:"none" doc:"Secret of the app in Feishu. Environment only, so that it is in no file."`
	BaseURL   string `yaml:"base_url" doc:"Address of Feishu's API; that of Lark is https://open.larksuite.com. http only on this machine."`
}

// Console is about the web pages.
type Console struct {
	OIDC OIDC `yaml:"oidc"`
}

// OIDC is about the single sign-on of the console. It is off while none of issuer, client and
// groups is set.
type OIDC struct {
	Issuer        string   `yaml:"issuer" default:"none" doc:"Address of the OIDC provider by which people sign in to the console, as the provider writes it in its tokens. http only on this machine."`
	ClientID      string   `yaml:"client_id" default:"none" doc:"Id of the console as a client of the OIDC provider."`
	ClientSecret  Secret   `yaml:"client_secret" source:"env" default:"none" doc:"Secret of the console as a client of the OIDC provider. Environment only, so that it is in no file."`
	RedirectURL   string   `yaml:"redirect_url" default:"none" doc:"Address of the console to which the OIDC provider sends browsers back, as it is registered there: https://HOST/console/sign-in/oidc/callback. http only on this machine."`
	Scopes        []string `yaml:"scopes" doc:"Scopes that the OIDC provider is asked for beside openid. Some providers tell groups only with the scope groups."`
	GroupsClaim   string   `yaml:"groups_claim" doc:"Claim of the OIDC provider that lists a person's groups."`
	AdminGroups   []string `yaml:"admin_groups" default:"none" doc:"Groups whose people are admins in the console. The highest role of a person's groups counts: admin, auditor, worker."`
	AuditorGroups []string `yaml:"auditor_groups" default:"none" doc:"Groups whose people are auditors in the console."`
	WorkerGroups  []string `yaml:"worker_groups" default:"none" doc:"Groups whose people are workers in the console, who see their own execs."`
}

// Traces is about spans of the stages of requests, for a collector of OpenTelemetry. They are off
// while there is no endpoint.
type Traces struct {
	Endpoint    string  `yaml:"endpoint" also:"OTEL_EXPORTER_OTLP_ENDPOINT" default:"none" doc:"Address of a collector that takes spans by OTLP over HTTP, such as http://127.0.0.1:4318; /v1/traces is added. Without it core-api exports no spans."`
	Headers     Secret  `yaml:"headers" source:"env" also:"OTEL_EXPORTER_OTLP_HEADERS" default:"none" doc:"Headers for the collector, such as its key: name=value,name=value with %-escapes. Environment only, so that they are in no file."`
	SampleRatio float64 `yaml:"sample_ratio" also:"OTEL_TRACES_SAMPLER_ARG" doc:"Share of the traces that begin in core-api and are exported, from 0 to 1. If a request has a traceparent, that decides."`
	ServiceName string  `yaml:"service_name" also:"OTEL_SERVICE_NAME" doc:"Name of core-api in traces."`
}

// Overrides are the values of flags; an empty one was not given. Directories may be relative to the
// working directory. WorkspaceRoot replaces all spellings of the workspace root except
// workspace_root_host.
type Overrides struct {
	Addr          string `flag:"addr"`
	StateDir      string `flag:"state-dir"`
	DatabaseURL   string `flag:"database-url"`
	LogLevel      string `flag:"log-level"`
	LogFormat     string `flag:"log-format"`
	WorkspaceRoot string `flag:"workspace-root"`
	SkillsDir     string `flag:"skills-dir"`
}

// Default returns the defaults. StateDir and Sandbox.WorkspaceRoot are empty: they depend on the
// user and the system, and Load sets them.
func Default() Settings {
	return Settings{
		Addr:      "127.0.0.1:8003",
		LogLevel:  "info",
		LogFormat: "text",
		Node:      Node{LeaseSeconds: 15},
		HTTP: HTTP{
			MaxBodyBytes:   32 << 20,
			MaxConnections: 4096, // an idle one takes some 20 KB
			MaxStreams:     1000, MaxStreamsPerToken: 600,
		},
		Sandbox: Sandbox{
			Engine:             EngineDocker,
			Kubernetes:         Kubernetes{Namespace: "secbox-jobs", ImagePullPolicy: "IfNotPresent"},
			RuntimeMode:        "auto",
			MaxConcurrentExecs: 4,
			MaxQueuedExecs:     64,
			MaxQueuedAsync:     5000,
			MaxQueuedAsyncMB:   1024,
			ReservedExecs:      -1,
			Sessions:           Sessions{Max: 100, MaxExecs: 8, MaxTTLSeconds: 24 * 3600},
			Net:                Net{MaxConcurrentConnections: 1024, MaxConcurrentConnectionsPerToken: 256},
			Seccomp:            "secbox",
			ReadOnlyRootfs:     true,
			InitVolume:         "secbox-sandbox-init",
			// Room for the database and logs to finish running execs when they share the disk.
			DiskFreeMinBytes:  256 << 20,
			DiskFreeMinInodes: 10_000,
			// Ten times the default ceiling of artifacts: a large build fits, a runaway job is
			// stopped before it fills a common disk.
			DiskGrowthMaxBytes: 10 << 30,
			// Twice a large dependency tree, and below the 250,000 entries up to which the watchdog
			// counts a project.
			DiskGrowthMaxEntries: 200_000,
		},
		Pool: Pool{
			// 32 waiting containers are 512 MiB: a burst of that many finds its containers, and
			// four projects can be kept ready.
			Max:         32,
			MaxPerKey:   4,
			Share:       true,
			Ready:       -1,
			MaxMemoryMB: 512,
			IdleSeconds: 600,
		},
		Skills: Skills{
			MaxUploadBytes: 256 << 20, // room for a model; package packages/archive unpacks no larger one
			// The work needs the disk and, for unpacking, a processor: more at once are not faster.
			MaxConcurrentWork: 4,
			MaxQueuedWork:     64,
			MaxUploads:        64,
			// Two of the largest archives by one token, four in all.
			MaxUploadsPerToken:      16,
			MaxWaitingBytes:         1 << 30,
			MaxWaitingBytesPerToken: 512 << 20,
			MaxDownloads:            32,
			MaxDownloadsPerToken:    8,
		},
		Audit: Audit{
			InputsMaxMB: 1024,
			AnchorEvery: 60, // half a minute of a busy log, and a few MB a week
		},
		Workspaces: Workspaces{
			IdleSeconds: 24 * 3600,
		},
		Sandboxes: Sandboxes{
			Backend: audit.BackendDocker,
			// The length of a break. A waiting container takes some 16 MiB.
			IdleSeconds:        900,
			MaxContainers:      16,
			RunnerGraceSeconds: 60,
			HeartbeatSeconds:   10, // some proxies close connections that are silent for 30 s
		},
		Feishu:  Feishu{BaseURL: "https://open.feishu.cn"},
		Console: Console{OIDC: OIDC{Scopes: []string{"profile", "email"}, GroupsClaim: "groups"}},
		Traces:  Traces{SampleRatio: 1, ServiceName: "core-api"},
	}
}

// PolicyConfig is the part of the settings for policy.New.
func (s Settings) PolicyConfig() policy.Config {
	return policy.Config{
		Settings:       s.Sandbox.Policy,
		Ceiling:        s.Sandbox.PolicyCeiling,
		Images:         s.Sandbox.Images,
		Runtime:        s.Sandbox.Runtime,
		Secrets:        s.Sandbox.Secrets.rules(),
		SettingsDigest: s.Digest(),
	}
}
