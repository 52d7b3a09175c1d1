//go:build linux

package main

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"secbox/engine/initproto"
)

// The time between reports of what the container uses: three small reads each. A container that
// stays is looked at less often, and still less while nothing runs in it.
const (
	usagePause   = 500 * time.Millisecond
	servingPause = 2 * time.Second
	idlePauses   = 15 // of servingPause
)

// The files differ by cgroup version.
var (
	cpuFiles = []string{
		"/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpuacct/cpuacct.usage", "/sys/fs/cgroup/cpu,cpuacct/cpuacct.usage",
	}
	usedFiles = []string{"/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}
	statFiles = []string{"/sys/fs/cgroup/memory.stat", "/sys/fs/cgroup/memory/memory.stat"}
)

// meters read what the container uses. They are opened before the job starts, for the reason that
// counterFiles has.
type meters struct {
	cpu, used, stat *os.File // nil where the kernel does not count
	begun           time.Time
	before          int64 // microseconds of CPU time
}

func openMeters() *meters {
	m := &meters{cpu: openFirst(cpuFiles), used: openFirst(usedFiles), stat: openFirst(statFiles), begun: time.Now()}
	m.before = m.cpuUS()
	return m
}

// watch reports until send returns false.
func (m *meters) watch(send func(initproto.Usage) (more bool)) {
	for m.count() {
		time.Sleep(usagePause)
		if !send(m.read()) {
			return
		}
	}
}

// count reports whether the kernel counts.
func (m *meters) count() bool { return m.cpu != nil && m.used != nil }

func (m *meters) read() initproto.Usage {
	// As docker stats does: files that the kernel may forget at any time are not counted.
	cached := max(valueOf(m.stat, "inactive_file"), valueOf(m.stat, "total_inactive_file"))
	return initproto.Usage{
		CPUUS: max(0, m.cpuUS()-m.before), ElapsedUS: time.Since(m.begun).Microseconds(),
		MemoryBytes: max(0, numberIn(m.used)-cached),
	}
}

// cpuUS is the CPU time of all processes since the container's start, in microseconds.
func (m *meters) cpuUS() int64 {
	if us := valueOf(m.cpu, "usage_usec"); us > 0 {
		return us
	}
	return numberIn(m.cpu) / 1000
}

// numberIn reads a file that is one number; 0 when it is anything else.
func numberIn(f *os.File) int64 {
	if f == nil {
		return 0
	}
	var content [32]byte
	n, _ := f.ReadAt(content[:], 0)
	number, _ := strconv.ParseInt(string(bytes.TrimSpace(content[:n])), 10, 64)
	return number
}
