// Package settings reads how a core-api is to run, from one file, the environment and flags, and says what is wrong with them in
// sentences that name the key, the value and what to do.
//
//	defaults < file < environment < flags
//
// Every setting is one field of Settings, and its tags are the only place where its key, its variable, its flag and its meaning are
// written down; the file reader, the environment, the digest and the documentation all walk those tags. The package knows what a
// valid setting is; it opens no database, starts nothing and makes no directory.
package settings

import (
	"secbox/policy"
)

// Settings is everything that can be set. The zero value is of no use: take Default or Load.
type Settings struct {
	Addr        string `yaml:"addr" flag:"addr" doc:"Address to listen on; other than loopback only once there is a token."`
	StateDir    string `yaml:"state_dir" flag:"state-dir" default:"/var/lib/secbox for root, else the user's state folder" doc:"Directory for what no container may see: embedded database, captured output, spool, tokens. Local disk, not under the workspace root."`
	DatabaseURL Secret `yaml:"database_url" also:"DATABASE_URL" flag:"database-url" default:"SQLite in the state dir" doc:"PostgreSQL to keep the audit in, postgres://user:password@host:port/name."`
	LogLevel    string `yaml:"log_level" flag:"log-level" doc:"Least level that is logged: debug, info, warn or error."`
	LogFormat   string `yaml:"log_format" flag:"log-format" doc:"How log lines look: text or json."`
	AdminToken  Secret `yaml:"admin_token" source:"env" default:"none" doc:"Token with the role admin that exists from the start, at least 16 characters; environment only, so that it lies in no file."`

	HTTP    HTTP    `yaml:"http"`
	Sandbox Sandbox `yaml:"sandbox"`
	Pool    Pool    `yaml:"pool"`
	Skills  Skills  `yaml:"skills"`

	Workspaces Workspaces `yaml:"workspaces"`
	Sandboxes  Sandboxes  `yaml:"sandboxes"`

	origin origin // no setting; see Command
}

// HTTP is what the server is told about its callers.
type HTTP struct {
	MaxBodyBytes           int64    `yaml:"max_body_bytes" doc:"Largest request body in bytes; a body is held in memory."`
	MaxMemoryBytes         int64    `yaml:"max_memory_bytes" default:"512 MiB, and room for three tokens" doc:"Bytes of memory that the bodies and answers of all requests may take at once, with what is made of them; beyond, the answer is 503 server_busy. 0 is the default."`
	MaxMemoryBytesPerToken int64    `yaml:"max_memory_bytes_per_token" default:"192 MiB, and room for one body" doc:"Bytes of them by one token. 0 is the default."`
	MaxConnections         int      `yaml:"max_connections" doc:"How many connections are open at once, three quarters of them from one address; others are closed at once."`
	AllowedHosts           []string `yaml:"allowed_hosts" doc:"Host names that requests may carry beside the loopback names and the listening address."`
	TrustedProxies         []string `yaml:"trusted_proxies" doc:"Addresses or networks of reverse proxies, whose X-Forwarded-For is believed for the log. With any of them every request needs a token."`
}

// Sandbox is where and how execs run.
type Sandbox struct {
	RuntimeMode       string `yaml:"runtime_mode" doc:"What this process runs on: auto, linux, windows, wsl or container."`
	WorkspaceRoot     string `yaml:"workspace_root" flag:"workspace-root" default:"/var/lib/secbox-workspace for root, else secbox-workspace in the home folder" doc:"Directory under which the projects lie, as this process sees it on Linux, macOS and in a container."`
	WorkspaceRootWin  string `yaml:"workspace_root_win" default:"derived" doc:"The workspace root as Windows writes it, such as D:\\secbox\\workspace."`
	WorkspaceRootWSL  string `yaml:"workspace_root_wsl" default:"derived" doc:"The workspace root as WSL writes it, such as /mnt/d/secbox/workspace."`
	WorkspaceRootHost string `yaml:"workspace_root_host" default:"none" doc:"In container mode: the workspace root as the machine of the Docker engine sees it."`

	MaxConcurrentExecs         int `yaml:"max_concurrent_execs" doc:"How many execs run at once."`
	MaxQueuedExecs             int `yaml:"max_queued_execs" doc:"How many execs may wait for a free place before others are answered 429."`
	MaxConcurrentExecsPerToken int `yaml:"max_concurrent_execs_per_token" default:"all but one" doc:"How many of them one token has at once; its others wait. Requests that need no token have no such bound. 0 is the default."`
	MaxQueuedExecsPerToken     int `yaml:"max_queued_execs_per_token" default:"three quarters" doc:"How many execs of one token may wait before its others are answered 429. 0 is the default."`

	Policy        policy.Layer  `yaml:"policy"`
	PolicyCeiling policy.Limits `yaml:"policy_ceiling"`
	Images        []string      `yaml:"images" doc:"Images that a skill or a request may name beside secbox-sandbox:latest."`
	SkillsDir     string        `yaml:"skills_dir" flag:"skills-dir" default:"none" doc:"Folder of skills beside those that are built in, one folder each. Apart from the workspace root and the state dir."`

	Seccomp        string `yaml:"seccomp" doc:"System calls of containers: secbox, the filter that core-api brings along, or engine, the engine's own: for a docker CLI that cannot read files of the state dir (a snap)."`
	ReadOnlyRootfs bool   `yaml:"read_only_rootfs" doc:"Mount the container's own file system read-only."`
	DockerPath     string `yaml:"docker_path" default:"docker on PATH" doc:"The docker binary: an absolute path, or a name to look up on PATH."`
	Runtime        string `yaml:"runtime" default:"the engine's default" doc:"OCI runtime of the containers by the name the engine knows it by: runc, crun, runsc."`
	User           string `yaml:"user" default:"1000:1000, or this process's own" doc:"User and group of the container's processes, uid:gid, never root."`
	InitVolume     string `yaml:"init_volume" doc:"Docker volume that carries sandbox-init into images that lack it."`

	DiskFreeMinBytes     int64 `yaml:"disk_free_min_bytes" doc:"When the workspace's disk has fewer free bytes than this, the job that has written most is killed; refused requests are only counted when the state dir's has fewer; 0 does not look."`
	DiskFreeMinInodes    int64 `yaml:"disk_free_min_inodes" doc:"When the workspace's disk has fewer free inodes than this, the job that has made most files is killed; 0 does not look."`
	DiskGrowthMaxBytes   int64 `yaml:"disk_growth_max_bytes" doc:"A job is killed when its project has grown by more bytes than this while it ran: work, home, the artifacts of running jobs, and removed files that are still open."`
	DiskGrowthMaxEntries int64 `yaml:"disk_growth_max_entries" doc:"A job is killed when its project has grown by more files and directories than this while it ran, or passed 250,000 in one of them."`
}

// SeccompOfEngine is the value of Sandbox.Seccomp with which containers run under the engine's own profile.
const SeccompOfEngine = "engine"

// Pool is how many containers wait, already started, for an exec that wants just such a one.
type Pool struct {
	Max         int   `yaml:"max" doc:"How many containers wait at most, over all projects; 0 turns the pool off, and every exec starts its own."`
	MaxPerKey   int   `yaml:"max_per_key" doc:"How many of them wait for the same project, image and limits."`
	MaxMemoryMB int64 `yaml:"max_memory_mb" doc:"MiB of memory that waiting containers may take together, each counted as 16: the docker CLI, containerd's shim and sandbox-init."`
	IdleSeconds int   `yaml:"idle_seconds" doc:"Seconds after which a waiting container that nobody took goes."`
}

// Skills is about the skill packages of agents and users.
type Skills struct {
	MaxUploadBytes int64 `yaml:"max_upload_bytes" doc:"Largest archive that is taken as a skill, in bytes; it waits in the state dir while it is unpacked."`

	MaxConcurrentWork       int   `yaml:"max_concurrent_work" doc:"How many uploads are unpacked, promotions and syncs made at once."`
	MaxQueuedWork           int   `yaml:"max_queued_work" doc:"How many of them wait for that; beyond, the answer is 503 skills_busy."`
	MaxUploads              int   `yaml:"max_uploads" doc:"How many uploads are received, or wait to be unpacked, at once."`
	MaxUploadsPerToken      int   `yaml:"max_uploads_per_token" doc:"How many of them by one token."`
	MaxWaitingBytes         int64 `yaml:"max_waiting_bytes" doc:"Bytes that their archives take in the state dir together."`
	MaxWaitingBytesPerToken int64 `yaml:"max_waiting_bytes_per_token" doc:"Bytes of them by one token."`
	MaxDownloads            int   `yaml:"max_downloads" doc:"How many skills are downloaded at once; each may have a copy in the workspace until it is sent."`
	MaxDownloadsPerToken    int   `yaml:"max_downloads_per_token" doc:"How many of them by one token."`
}

// Workspaces is about the workspaces of agents' users.
type Workspaces struct {
	IdleSeconds int64 `yaml:"idle_seconds" doc:"Seconds after which the work directory of a workspace that nobody has used is packed; it comes back when it is used. 0 leaves all as they are."`
}

// Sandboxes is about where users work: /v1/sandbox and the runners on users' machines. How execs run is Sandbox.
type Sandboxes struct {
	Backend               string `yaml:"backend" doc:"Where users work who chose nothing: docker, remote, or none where that is allowed."`
	None                  bool   `yaml:"none" doc:"Allow the backend none, whose commands run on this machine as the user that core-api runs as, and are not confined at all."`
	MaxContainersPerToken int    `yaml:"max_containers_per_token" default:"three quarters" doc:"How many of the containers of users may have been started by one token; beyond, an idle one of them goes. 0 is the default."`
	IdleSeconds           int    `yaml:"idle_seconds" doc:"Seconds after which a user's container in which no command ran is stopped; the next command starts it again."`
	MaxContainers         int    `yaml:"max_containers" doc:"How many containers of users there are at once; beyond, an idle one goes, and when none is idle the answer is 503 sandbox_busy."`
	RunnerGraceSeconds    int    `yaml:"runner_grace_seconds" doc:"Seconds that what is under way on a user's machine waits for it to come back when its connection is lost; after that the outcome is not known."`
	HeartbeatSeconds      int    `yaml:"heartbeat_seconds" doc:"Seconds between two pings of a user's machine; when three of them pass in silence the connection is given up."`
}

// Overrides are the values of flags. An empty one was not given. Directories may be relative to where the program was started.
// WorkspaceRoot replaces all three spellings of the workspace root but workspace_root_host.
type Overrides struct {
	Addr          string `flag:"addr"`
	StateDir      string `flag:"state-dir"`
	DatabaseURL   string `flag:"database-url"`
	LogLevel      string `flag:"log-level"`
	LogFormat     string `flag:"log-format"`
	WorkspaceRoot string `flag:"workspace-root"`
	SkillsDir     string `flag:"skills-dir"`
}

// Default is the settings of a server that was told nothing. StateDir and Sandbox.WorkspaceRoot are empty: they depend on the
// user and the system, and Load fills them in.
func Default() Settings {
	return Settings{
		Addr:      "127.0.0.1:8003",
		LogLevel:  "info",
		LogFormat: "text",
		HTTP: HTTP{
			MaxBodyBytes:   32 << 20, // design 3.1
			MaxConnections: 4096,     // an idle one takes some 20 KB
		},
		Sandbox: Sandbox{
			RuntimeMode:        "auto",
			MaxConcurrentExecs: 4,
			MaxQueuedExecs:     64,
			Seccomp:            "secbox",
			ReadOnlyRootfs:     true,
			InitVolume:         "secbox-sandbox-init",
			// Room for the database and logs to end what runs, when they share the disk.
			DiskFreeMinBytes:  256 << 20,
			DiskFreeMinInodes: 10_000,
			// Ten times the default ceiling of artifacts: a large build fits, a runaway job is stopped before it fills a common disk.
			DiskGrowthMaxBytes: 10 << 30,
			// Twice a large dependency tree, and below the 250,000 entries up to which the watchdog counts a project.
			DiskGrowthMaxEntries: 200_000,
		},
		Pool: Pool{
			// 32 waiting containers are 512 MiB: a burst of that many finds its containers, and four projects can be kept ready.
			Max:         32,
			MaxPerKey:   4,
			MaxMemoryMB: 512,
			IdleSeconds: 600,
		},
		Skills: Skills{
			MaxUploadBytes: 256 << 20, // room for a model; package skills/archive unpacks no larger one
			// The work is the disk's and, packed files being unpacked, a processor's: more at once are not faster.
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
		Workspaces: Workspaces{
			IdleSeconds: 24 * 3600, // design 4.2
		},
		Sandboxes: Sandboxes{
			Backend: "docker",
			// A person's break. A container that waits takes some 16 MiB, as one of the pool does.
			IdleSeconds:        900,
			MaxContainers:      16,
			RunnerGraceSeconds: 60,
			HeartbeatSeconds:   10, // a proxy on the way closes what is silent for 30 s, some of them
		},
	}
}

// PolicyConfig is the part of the settings for policy.New.
func (s Settings) PolicyConfig() policy.Config {
	return policy.Config{
		Settings:       s.Sandbox.Policy,
		Ceiling:        s.Sandbox.PolicyCeiling,
		Images:         s.Sandbox.Images,
		Runtime:        s.Sandbox.Runtime,
		SettingsDigest: s.Digest(),
	}
}
