package bench

import (
	"os"
	"runtime"
	"strings"

	"secbox/dockercli"
)

// Machine is where a run took place: without it, no number means anything.
type Machine struct {
	OS            string `json:"os"`
	Kernel        string `json:"kernel,omitempty"`
	CPU           string `json:"cpu,omitempty"`
	Cores         int    `json:"cores"`
	MemoryMB      int64  `json:"memory_mb"`
	Load          string `json:"load,omitempty"` // over 1, 5 and 15 minutes, at the beginning
	EngineVersion string `json:"engine_version"`
	ClientVersion string `json:"client_version"`
	Runtime       string `json:"runtime"`
	CgroupVersion string `json:"cgroup_version"`
}

func machine(info dockercli.Info) Machine {
	m := Machine{
		OS: info.OperatingSystem + " " + info.Architecture, Kernel: firstLine("/proc/sys/kernel/osrelease"), Cores: runtime.NumCPU(),
		MemoryMB: info.MemTotal >> 20, EngineVersion: info.ServerVersion, ClientVersion: info.ClientInfo.Version,
		Runtime: info.DefaultRuntime, CgroupVersion: info.CgroupVersion,
	}
	if load := strings.Fields(firstLine("/proc/loadavg")); len(load) > 3 {
		m.Load = strings.Join(load[:3], " ")
	}
	cpus, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(cpus)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	return m
}

// firstLine is empty where the file is not there: these are Linux's.
func firstLine(path string) string {
	content, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(content), "\n")
	return line
}
