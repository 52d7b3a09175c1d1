package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tie lets the child end with us, however we end, and keeps a Ctrl-C from it: we end it in order.
func tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// memory is what a process holds now and held at most since the last resetPeak, in bytes.
type memory struct{ now, peak int64 }

func memoryOf(pid int) (memory, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, err
	}
	m := memory{now: -1, peak: -1}
	for line := range strings.Lines(string(status)) {
		words := strings.Fields(line)
		if len(words) != 3 || words[2] != "kB" {
			continue
		}
		kilobytes, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			return memory{}, err
		}
		switch words[0] {
		case "VmRSS:":
			m.now = kilobytes << 10
		case "VmHWM:":
			m.peak = kilobytes << 10
		}
	}
	if m.now < 0 || m.peak < 0 {
		return memory{}, fmt.Errorf("/proc/%d/status has no VmRSS or VmHWM", pid)
	}
	return m, nil
}

// resetPeak lets the peak begin anew at what the process holds now.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// tick is the unit of times in /proc/PID/stat: USER_HZ, which is 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// cpuOf is the CPU time of a process, and of its children that have ended.
func cpuOf(pid int) (own, children time.Duration, err error) {
	fields, err := statOf(strconv.Itoa(pid))
	if err != nil {
		return 0, 0, err
	}
	var ticks [4]int64 // utime, stime, cutime, cstime
	for i := range ticks {
		if ticks[i], err = strconv.ParseInt(fields[11+i], 10, 64); err != nil {
			return 0, 0, err
		}
	}
	return time.Duration(ticks[0]+ticks[1]) * tick, time.Duration(ticks[2]+ticks[3]) * tick, nil
}

// statOf reads /proc/PID/stat from its third field on, the state.
func statOf(pid string) ([]string, error) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil, err
	}
	name := bytes.LastIndexByte(stat, ')') // the second field, in parentheses, may hold anything
	fields := strings.Fields(string(stat[name+1:]))
	if len(fields) < 15 {
		return nil, fmt.Errorf("/proc/%s/stat has %d fields", pid, len(fields))
	}
	return fields, nil
}

// process is one that runs.
type process struct {
	pid, parent int
	args        []string // at least one
}

// processes lists those that run and have a command line, which neither the kernel's threads have nor what has ended.
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
		fields, statErr := statOf(name)
		line, lineErr := os.ReadFile("/proc/" + name + "/cmdline")
		if statErr != nil || lineErr != nil || len(line) == 0 { // it has ended meanwhile
			continue
		}
		parent, err := strconv.Atoi(fields[1])
		if err != nil {
			return nil, err
		}
		out = append(out, process{pid: pid, parent: parent, args: strings.Split(string(bytes.TrimSuffix(line, []byte{0})), "\x00")})
	}
	return out, nil
}

// runsDocker tells whether it is a `docker run`.
func (p process) runsDocker() bool { return len(p.args) > 1 && p.args[1] == "run" }

// dockerRuns counts the `docker run` that a process started and that have not ended.
func dockerRuns(pid int) (int, error) {
	all, err := processes()
	n := 0
	for _, p := range all {
		if p.parent == pid && p.runsDocker() {
			n++
		}
	}
	return n, err
}
