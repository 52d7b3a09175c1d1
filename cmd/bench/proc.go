//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// endWithUs lets a child end with this process, however it ends, and keeps Ctrl-C from it: we end
// it in order.
func endWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// sizes reads the lines "Name: 123 kB" of a file of /proc, in bytes.
func sizes(file string, names ...string) ([]float64, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(names))
	found := 0
	for line := range strings.Lines(string(content)) {
		words := strings.Fields(line)
		if len(words) != 3 || words[2] != "kB" {
			continue
		}
		if at := slices.Index(names, strings.TrimSuffix(words[0], ":")); at >= 0 {
			n, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil {
				return nil, err
			}
			out[at], found = float64(n<<10), found+1
		}
	}
	if found != len(names) {
		return nil, fmt.Errorf("%s has not all of %v", file, names)
	}
	return out, nil
}

// resident is the memory of a process now, and at most since the last resetPeak.
func resident(pid int) (now, peak float64, err error) {
	s, err := sizes(fmt.Sprintf("/proc/%d/status", pid), "VmRSS", "VmHWM")
	if err != nil {
		return 0, 0, err
	}
	return s[0], s[1], nil
}

// resetPeak sets the peak to the present size.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// tick is the unit of times in /proc/PID/stat: USER_HZ, which is 100 on every Linux that Go runs
// on.
const tick = 10 * time.Millisecond

// cpuOf is the CPU time of a process, and of its children that have ended.
func cpuOf(pid int) (own, children time.Duration, err error) {
	fields, err := statOf(pid)
	if err != nil {
		return 0, 0, err
	}
	return time.Duration(fields[14]+fields[15]) * tick, time.Duration(fields[16]+fields[17]) * tick, nil
}

// statOf reads the numbers of /proc/PID/stat, by the indexes of proc_pid_stat(5): parent 4, cminflt
// 11, utime 14, stime 15, cutime 16, cstime 17.
func statOf(pid int) ([]int64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	name := bytes.LastIndexByte(stat, ')') // the second field, in parentheses, may hold anything
	out := make([]int64, 4)
	for _, field := range strings.Fields(string(stat[name+1:]))[1:] {
		n, _ := strconv.ParseInt(field, 10, 64) // a few at the end are unsigned; they are not read
		out = append(out, n)
	}
	return out, nil
}

// process is a running one.
type process struct {
	pid, parent int
	args        []string // at least one
}

// processes lists the processes that have a command line: no threads of the kernel, no zombies.
func processes() ([]process, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var out []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		fields, statErr := statOf(pid)
		line, lineErr := os.ReadFile("/proc/" + name + "/cmdline")
		if statErr != nil || lineErr != nil || len(line) == 0 { // it has ended meanwhile
			continue
		}
		out = append(out, process{pid: pid, parent: int(fields[4]), args: strings.Split(string(bytes.TrimSuffix(line, []byte{0})), "\x00")})
	}
	return out, nil
}

func (p process) isDockerRun() bool { return len(p.args) > 1 && p.args[1] == "run" }

// dockerRuns counts the `docker run` children of a process.
func dockerRuns(pid int) (n int, err error) {
	all, err := processes()
	for _, p := range all {
		if p.parent == pid && p.isDockerRun() {
			n++
		}
	}
	return n, err
}
