//go:build linux

package main

import (
	"bytes"
	"math"
	"os"
	"strconv"
)

// counters are what the kernel counted against the container's limits.
type counters struct {
	oomKills int64
	pidsMax  int64
}

// The files differ by cgroup version; inside the container each hierarchy's root is the container's own cgroup.
var (
	oomFiles    = []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}
	memoryFiles = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}
	pidsFiles   = []string{"/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events"}
)

func readCounters() counters {
	return counters{oomKills: firstKey(oomFiles, "oom_kill"), pidsMax: firstKey(pidsFiles, "max")}
}

// since gives what was counted after the earlier reading.
func (c counters) since(earlier counters) counters {
	return counters{oomKills: max(0, c.oomKills-earlier.oomKills), pidsMax: max(0, c.pidsMax-earlier.pidsMax)}
}

// firstKey reads "key number" from the first of the files that exists; 0 when none does.
func firstKey(files []string, key string) int64 {
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for line := range bytes.Lines(content) {
			k, v, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
			if ok && string(k) == key {
				n, _ := strconv.ParseInt(string(v), 10, 64)
				return n
			}
		}
		return 0
	}
	return 0
}

// memoryLimit is the container's, in bytes; the largest number there is when it has none or nobody knows.
func memoryLimit() int64 {
	for _, name := range memoryFiles {
		content, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(string(bytes.TrimSpace(content)), 10, 64); err == nil {
			return n
		}
		break // "max"
	}
	return math.MaxInt64
}
