//go:build linux

package worker

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// KillAll kills every process of a container but its first, which must be the caller.
func KillAll() { _ = unix.Kill(-1, unix.SIGKILL) }

// KillChildren kills the children of this process except those for which exempt is true, and
// returns how many there were. Each is killed with its whole process group, at once: a command that
// only starts processes would do so faster than they can be killed one by one. Groups belong to one
// command, since Start begins a session. A process that traces one of them is killed, too: the
// kernel keeps a traced process as a zombie until its tracer waits for it.
func KillChildren(exempt func(pid int) bool) int {
	n := 0
	killed := map[int]bool{unix.Getpgrp(): true}
	for _, pid := range Children() {
		if exempt != nil && exempt(pid) {
			continue
		}
		if group, err := unix.Getpgid(pid); err == nil && !killed[group] {
			killed[group] = true
			_ = unix.Kill(-group, unix.SIGKILL)
		}
		_ = unix.Kill(pid, unix.SIGKILL)
		killTracer(pid, exempt)
		n++
	}
	return n
}

// killTracer kills the process that traces another one by ptrace, if there is one. It is this
// process, or an exempt one, if the traced process wanted to be traced by its parent.
func killTracer(pid int, exempt func(pid int) bool) {
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	_, after, _ := strings.Cut(string(status), "\nTracerPid:\t")
	line, _, _ := strings.Cut(after, "\n")
	if tracer, _ := strconv.Atoi(line); tracer > 1 && tracer != os.Getpid() && (exempt == nil || !exempt(tracer)) {
		_ = unix.Kill(tracer, unix.SIGKILL)
	}
}

// Children lists the children of this process, zombies included. It may miss some while processes
// start and end.
func Children() []int {
	var pids []int
	tasks, err := os.ReadDir("/proc/self/task")
	if err == nil {
		for _, task := range tasks {
			list, err := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
			if errors.Is(err, os.ErrNotExist) {
				continue // the thread has ended; or no thread has such a file
			}
			for field := range strings.FieldsSeq(string(list)) {
				if pid, err := strconv.Atoi(field); err == nil {
					pids = append(pids, pid)
				}
			}
		}
	}
	if len(pids) > 0 {
		return pids
	}
	return childrenByParent()
}

// childrenByParent reads every process's parent: slower, for kernels without lists of children.
func childrenByParent() []int {
	var pids []int
	self := os.Getpid()
	all, _ := os.ReadDir("/proc")
	for _, entry := range all {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		// "pid (name) state ppid …", and the name may hold anything.
		_, after, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
		fields := strings.Fields(after)
		if len(fields) > 1 && fields[1] == strconv.Itoa(self) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// mayKillAny reports whether this process may kill any of its children. It may not kill a child
// that became another user, as by sudo.
func mayKillAny() bool {
	for _, pid := range Children() {
		if !errors.Is(unix.Kill(pid, 0), unix.EPERM) {
			return true
		}
	}
	return false
}

// OfferToOOMKiller makes the kernel kill the process first when the container's memory is used up;
// without init there would be no report. Raising the score needs no privilege, and children inherit
// it.
func OfferToOOMKiller(pid int) {
	f, err := os.OpenFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	_, _ = f.WriteString("1000")
	_ = f.Close()
}
