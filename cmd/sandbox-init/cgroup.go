//go:build linux

package main

import (
	"bytes"
	"math"
	"os"
	"strconv"
)

// counters are the kernel's counters of the container's limits.
type counters struct {
	oomKills int64
	pidsMax  int64
}

// The files differ by cgroup version; inside the container each hierarchy's root is the container's
// own cgroup.
var (
	oomFiles    = []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}
	memoryFiles = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}
	pidsFiles   = []string{"/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events"}
)

// counterFiles are opened before the job starts: it has init's uid and could lower init's
// RLIMIT_NOFILE, so that no file can be opened.
type counterFiles struct{ oom, pids *os.File } // nil where the kernel does not count

func openCounters() counterFiles {
	return counterFiles{oom: openFirst(oomFiles), pids: openFirst(pidsFiles)}
}

func (f counterFiles) read() counters {
	return counters{oomKills: valueOf(f.oom, "oom_kill"), pidsMax: valueOf(f.pids, "max")}
}

// since is the difference to an earlier reading.
func (c counters) since(earlier counters) counters {
	return counters{oomKills: max(0, c.oomKills-earlier.oomKills), pidsMax: max(0, c.pidsMax-earlier.pidsMax)}
}

// openFirst opens the first of the files that exists; nil when none does.
func openFirst(files []string) *os.File {
	for _, name := range files {
		if f, err := os.Open(name); err == nil {
			return f
		}
	}
	return nil
}

// valueOf reads "key number" from a file of counters; 0 when it is missing. It needs no new
// descriptor.
func valueOf(f *os.File, key string) int64 {
	if f == nil {
		return 0
	}
	var content [4 << 10]byte
	n, _ := f.ReadAt(content[:], 0)
	for line := range bytes.Lines(content[:n]) {
		k, v, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if ok && string(k) == key {
			n, _ := strconv.ParseInt(string(v), 10, 64)
			return n
		}
	}
	return 0
}

// memoryLimit is the container's, in bytes; MaxInt64 when it has none or it is unknown.
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
