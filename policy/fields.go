package policy

import "time"

// Limits are the numbers that a layer asks for, by their public names; a nil one is not asked for.
type Limits struct {
	TimeoutMS              *int64   `json:"timeout_ms,omitempty"`
	KillGraceMS            *int64   `json:"kill_grace_ms,omitempty"`
	MaxStdoutBytes         *int64   `json:"max_stdout_bytes,omitempty"`
	MaxStderrBytes         *int64   `json:"max_stderr_bytes,omitempty"`
	MaxArtifactsBytesTotal *int64   `json:"max_artifacts_bytes_total,omitempty"`
	MemoryMB               *int64   `json:"memory_mb,omitempty"`
	CPUCores               *float64 `json:"cpu_cores,omitempty"`
	PIDs                   *int64   `json:"pids,omitempty"`
	TmpMB                  *int64   `json:"tmp_mb,omitempty"`
	ShmMB                  *int64   `json:"shm_mb,omitempty"`
	NetMaxBytes            *int64   `json:"net.max_bytes,omitempty"`
	NetConnections         *int64   `json:"net.connections,omitempty"`
	NetMaxConnections      *int64   `json:"net.max_connections,omitempty"`
	NetIdleMS              *int64   `json:"net.idle_ms,omitempty"`
}

// Layer is what one source asks for; a nil field is not asked for. The runtime is not among the
// fields: only Config sets it.
type Layer struct {
	NetMode  *string  `json:"net.mode,omitempty"`
	NetAllow []string `json:"net.allow,omitzero"` // empty: no host may be reached
	// NetCredentials are never asked for by the settings, which have the secrets.
	NetCredentials []Credential `json:"net.credentials,omitzero" yaml:"-"`
	Limits
	Image   *string  `json:"image,omitempty"`
	FSRead  []string `json:"fs.read,omitzero"`  // empty: nothing may be read
	FSWrite []string `json:"fs.write,omitzero"` // empty: nothing may be written
}

// ContainerLimits bound all processes of a container together.
type ContainerLimits struct {
	MemoryMB int64   `json:"memory_mb"` // MiB of RAM; there is no swap
	CPUCores float64 `json:"cpu_cores"`
	PIDs     int64   `json:"pids"`   // processes and threads
	TmpMB    int64   `json:"tmp_mb"` // MiB of the tmpfs at /tmp, counted into memory_mb by the kernel
	ShmMB    int64   `json:"shm_mb"` // MiB of the tmpfs at /dev/shm, counted likewise
}

// NetLimits bound the connections of a job together. They mean something where net.mode is
// NetAllowlist.
type NetLimits struct {
	NetMaxBytes       int64 `json:"net.max_bytes"`       // each way
	NetConnections    int64 `json:"net.connections"`     // at once
	NetMaxConnections int64 `json:"net.max_connections"` // in all
	NetIdleMS         int64 `json:"net.idle_ms"`         // without a byte either way
}

// Values is the effective policy: every field has a value.
type Values struct {
	NetMode                string       `json:"net.mode"`
	NetAllow               []string     `json:"net.allow"` // hosts, in the form of HostRule
	NetCredentials         []Credential `json:"net.credentials"`
	TimeoutMS              int64        `json:"timeout_ms"`
	KillGraceMS            int64        `json:"kill_grace_ms"` // from SIGTERM to the kill at TimeoutMS
	MaxStdoutBytes         int64        `json:"max_stdout_bytes"`
	MaxStderrBytes         int64        `json:"max_stderr_bytes"`
	MaxArtifactsBytesTotal int64        `json:"max_artifacts_bytes_total"`
	ContainerLimits
	NetLimits
	Image   string   `json:"image"`
	FSRead  []string `json:"fs.read"`
	FSWrite []string `json:"fs.write"`
	Runtime string   `json:"runtime"` // the OCI runtime by the engine's name for it; empty: the engine's default
}

// The names of fields that other packages refer to.
const (
	FieldNetMode        = "net.mode"
	FieldTimeoutMS      = "timeout_ms"
	FieldKillGraceMS    = "kill_grace_ms"
	FieldMaxStdoutBytes = "max_stdout_bytes"
	FieldMaxStderrBytes = "max_stderr_bytes"
	FieldMaxArtifacts   = "max_artifacts_bytes_total"
	FieldMemoryMB       = "memory_mb"
	FieldCPUCores       = "cpu_cores"
	FieldPIDs           = "pids"
	FieldTmpMB          = "tmp_mb"
	FieldShmMB          = "shm_mb"
	FieldImage          = "image"
	FieldFSRead         = "fs.read"
	FieldFSWrite        = "fs.write"
	FieldRuntime        = "runtime"

	FieldNetAllow          = "net.allow"
	FieldNetCredentials    = "net.credentials"
	FieldNetMaxBytes       = "net.max_bytes"
	FieldNetConnections    = "net.connections"
	FieldNetMaxConnections = "net.max_connections"
	FieldNetIdleMS         = "net.idle_ms"
)

// KillGrace is how long before its timeout a command gets SIGTERM, where nothing else is asked for:
// long enough to write a file, and a small part of its time.
func KillGrace(timeout time.Duration) time.Duration { return min(2*time.Second, timeout/10) }

// maxBytes is 1 PiB: the most that settings may allow of anything counted in bytes, so that sums
// and shifts stay within int64.
const maxBytes = 1 << 50

// fields is every field of a policy, in the order of reports. The merge of one field does not
// depend on another, except that fs.read depends on the fs.write of the layers before, so it comes
// first, that net.credentials needs the net.mode and net.allow of its own layer, so it comes after
// them, and that the default of a field may follow others, which is set last.
var fields = []field{
	netMode{common[string, string]{
		public: FieldNetMode, doc: "Network of a job: none, or allowlist for the hosts of net.allow through a proxy.", scope: container,
		value: func(v *Values) *string { return &v.NetMode },
	}},
	netAllow{common[[]string, []string]{
		public: FieldNetAllow, doc: "Hosts that jobs may reach: api.example.org, *.example.org:8443, 192.0.2.7.", scope: container, later: true,
		value: func(v *Values) *[]string { return &v.NetAllow },
	}},
	netCredentials{common[[]Credential, []string]{
		public: FieldNetCredentials, doc: "Secrets that core-api adds to the requests of jobs to hosts of net.allow.", scope: container,
		later: true,
		value: func(v *Values) *[]Credential { return &v.NetCredentials },
	}},
	number[int64]{
		common: common[int64, int64]{
			public: FieldTimeoutMS, doc: "Milliseconds after which a job is killed.", scope: anywhere,
			value: func(v *Values) *int64 { return &v.TimeoutMS },
		},
		asked: func(l *Limits) **int64 { return &l.TimeoutMS },
		// A year is longer than any job and fits into a time.Duration.
		def: 60_000, ceiling: 30 * 60 * 1000, floor: 1, largest: 365 * 24 * 3600 * 1000,
	},
	number[int64]{
		common: common[int64, int64]{
			public: FieldKillGraceMS,
			doc:    "Milliseconds from a job's SIGTERM to the kill at its timeout; default: a tenth of that, at most 2000.",
			scope:  execOnly, later: true,
			value: func(v *Values) *int64 { return &v.KillGraceMS },
		},
		asked:   func(l *Limits) **int64 { return &l.KillGraceMS },
		follows: func(v Values) int64 { return KillGrace(time.Duration(v.TimeoutMS) * time.Millisecond).Milliseconds() },
		ceiling: 60_000, zero: true, largest: 365 * 24 * 3600 * 1000,
	},
	number[int64]{
		common: common[int64, int64]{
			public: FieldMaxStdoutBytes, doc: "Bytes of standard output that are kept.", scope: anywhere,
			value: func(v *Values) *int64 { return &v.MaxStdoutBytes },
		},
		asked: func(l *Limits) **int64 { return &l.MaxStdoutBytes },
		def:   1 << 20, ceiling: 16 << 20, floor: 1, largest: maxBytes,
	},
	number[int64]{
		common: common[int64, int64]{
			public: FieldMaxStderrBytes, doc: "Bytes of standard error that are kept.", scope: anywhere,
			value: func(v *Values) *int64 { return &v.MaxStderrBytes },
		},
		asked: func(l *Limits) **int64 { return &l.MaxStderrBytes },
		def:   1 << 20, ceiling: 16 << 20, floor: 1, largest: maxBytes,
	},
	number[int64]{
		common: common[int64, int64]{
			public: FieldMaxArtifacts, doc: "Bytes of artifacts that are kept of one exec.", scope: execOnly,
			value: func(v *Values) *int64 { return &v.MaxArtifactsBytesTotal },
		},
		asked: func(l *Limits) **int64 { return &l.MaxArtifactsBytesTotal },
		def:   50 << 20, ceiling: 1 << 30, floor: 1, largest: maxBytes,
	},
	number[int64]{
		common: common[int64, int64]{
			public: FieldMemoryMB, doc: "MiB of memory of a container, without swap.", scope: container,
			value: func(v *Values) *int64 { return &v.MemoryMB },
		},
		asked: func(l *Limits) **int64 { return &l.MemoryMB },
		// Docker refuses less than 6 MiB; sandbox-init and a bash need some 12 before the job does
		// anything.
		def: 1024, ceiling: 8192, floor: 16, largest: maxBytes >> 20,
		floorWhy: "sandbox-init and a shell need that much before the job does anything",
		host:     func(h Host) int64 { return h.MemoryMB },
		hostWhy:  "the engine's machine has %v MiB of memory",
	},
	number[float64]{
		common: common[float64, float64]{
			public: FieldCPUCores, doc: "CPU cores of a container, decimals allowed.", scope: container,
			value: func(v *Values) *float64 { return &v.CPUCores },
		},
		asked: func(l *Limits) **float64 { return &l.CPUCores },
		// The kernel's smallest quota is 1 ms in each period of 100 ms. 8192 is the most CPUs that
		// Linux is built for.
		def: 1, ceiling: 4, floor: 0.01, largest: 8192,
		floorWhy: "the kernel cannot give out less",
		host:     func(h Host) float64 { return float64(h.CPUs) },
		hostWhy:  "the engine's machine has %v CPUs",
	},
	number[int64]{
		common: common[int64, int64]{
			public: FieldPIDs, doc: "Processes and threads in a container.", scope: container,
			value: func(v *Values) *int64 { return &v.PIDs },
		},
		asked: func(l *Limits) **int64 { return &l.PIDs },
		// 2^22 is the kernel's own limit.
		def: 256, ceiling: 4096, floor: 16, largest: 1 << 22,
		floorWhy: "threads count too, and sandbox-init has some",
	},
	number[int64]{
		common: common[int64, int64]{
			public: FieldTmpMB, doc: "MiB of a container's /tmp, which count into its memory.", scope: container,
			value: func(v *Values) *int64 { return &v.TmpMB },
		},
		asked: func(l *Limits) **int64 { return &l.TmpMB },
		// Files in /tmp count into memory_mb, so half of memory_mb's ceiling is generous.
		def: 256, ceiling: 4096, floor: 1, largest: maxBytes >> 20,
	},
	number[int64]{
		common: common[int64, int64]{
			public: FieldShmMB, doc: "MiB of a container's /dev/shm, which count into its memory; default: its memory.", scope: container,
			later: true,
			value: func(v *Values) *int64 { return &v.ShmMB },
		},
		asked: func(l *Limits) **int64 { return &l.ShmMB },
		// As large as memory_mb, it is never full before the memory is, which has a clearer end
		// than SIGBUS.
		follows: func(v Values) int64 { return v.MemoryMB },
		ceiling: 8192, floor: 1, largest: maxBytes >> 20, was: 64, // the engine's default
	},
	number[int64]{
		common: common[int64, int64]{
			public: FieldNetMaxBytes, doc: "Bytes that all connections of a job may carry each way.", scope: container, later: true,
			value: func(v *Values) *int64 { return &v.NetMaxBytes },
		},
		asked: func(l *Limits) **int64 { return &l.NetMaxBytes },
		def:   100 << 20, ceiling: 1 << 30, floor: 1, largest: maxBytes, was: 100 << 20,
	},
	number[int64]{
		common: common[int64, int64]{
			public: FieldNetConnections, doc: "Connections of a job at once.", scope: container, later: true,
			value: func(v *Values) *int64 { return &v.NetConnections },
		},
		asked: func(l *Limits) **int64 { return &l.NetConnections },
		// Each may hold 256 KiB in core-api and in the container.
		def: 64, ceiling: 256, floor: 1, largest: 256, was: 64,
	},
	number[int64]{
		common: common[int64, int64]{
			public: FieldNetMaxConnections, doc: "Connections of a job in all.", scope: container, later: true,
			value: func(v *Values) *int64 { return &v.NetMaxConnections },
		},
		asked: func(l *Limits) **int64 { return &l.NetMaxConnections },
		def:   1000, ceiling: 10_000, floor: 1, largest: 1_000_000, was: 1000,
	},
	number[int64]{
		common: common[int64, int64]{
			public: FieldNetIdleMS, doc: "Milliseconds after which a connection without traffic is closed.", scope: container, later: true,
			value: func(v *Values) *int64 { return &v.NetIdleMS },
		},
		asked: func(l *Limits) **int64 { return &l.NetIdleMS },
		def:   60_000, ceiling: 3600_000, floor: 1, largest: 365 * 24 * 3600 * 1000, was: 60_000,
	},
	image{common[string, []string]{
		public: FieldImage, doc: "Image of execs that name none.", scope: container,
		value: func(v *Values) *string { return &v.Image },
	}},
	fsList{
		common: common[[]string, []string]{
			public: FieldFSRead, doc: "Directories that jobs may read: inputs/**, work/**, artifacts/**.", scope: container,
			value: func(v *Values) *[]string { return &v.FSRead },
		},
		asked: func(l *Layer) *[]string { return &l.FSRead }, grants: readable,
	},
	fsList{
		common: common[[]string, []string]{
			public: FieldFSWrite, doc: "Directories that jobs may write, and therefore read: work/**, artifacts/**.", scope: container,
			value: func(v *Values) *[]string { return &v.FSWrite },
		},
		asked: func(l *Layer) *[]string { return &l.FSWrite }, grants: func(v Values) []string { return v.FSWrite },
	},
	runtime{common[string, string]{
		public: FieldRuntime, doc: "OCI runtime of a container.", scope: container, later: true,
		value: func(v *Values) *string { return &v.Runtime },
	}},
}
