package health

import (
	"fmt"
	"strconv"
	"syscall"
	"time"
)

// The experiments in this file try to exceed a job's limits.

const mib = 1 << 20

func memory() experiment {
	const limit = 64
	e := python("memory", strconv.Itoa(4*limit))
	e.limits.MemoryMB = limit
	e.checks = []check{{
		name:     "memory",
		expected: fmt.Sprintf("a job that takes %d MiB with memory_mb=%d is killed by the kernel, and that is counted", 4*limit, limit),
		remedy: "enable the memory cgroup on the engine's host (`docker info` warns when it is missing) and let containers have their " +
			"own cgroup namespace (default-cgroupns-mode: private)",
		judge: func(o outcome) (string, bool) {
			switch killed := o.exit.Signal == int(syscall.SIGKILL); {
			case o.err == nil && killed && o.exit.OOMKills > 0 && !o.exit.TimedOut && !o.exit.Killed:
				return fmt.Sprintf("killed by the kernel, OOM kills counted: %d", o.exit.OOMKills), true
			case o.err == nil && killed && !o.exit.TimedOut && !o.exit.Killed:
				return "killed, but the kernel's count of OOM kills cannot be read in the container", false
			}
			var facts struct {
				Taken int64 `json:"taken_mib"`
			}
			if why := o.facts(&facts); why != "" {
				return why, false
			}
			return fmt.Sprintf("the job took %d MiB and nothing stopped it", facts.Taken), false
		},
	}}
	return e
}

func swap() experiment {
	e := python("swap")
	e.checks = []check{{
		name:     "swap",
		expected: "a job cannot use swap beyond memory_mb",
		remedy:   "boot the engine's host with swapaccount=1, use cgroup v2, or turn its swap off",
		judge: reading(func(o outcome, facts struct {
			SwapMax   *string `json:"swap_max"`       // cgroup v2: swap alone
			MemSw     *string `json:"memsw"`          // cgroup v1: memory and swap together
			Memory    *string `json:"memory"`         // cgroup v1
			SwapTotal *int64  `json:"swap_total_kib"` // of the machine
		},
		) (string, bool) {
			switch {
			case facts.SwapMax != nil:
				return "memory.swap.max is " + plain(*facts.SwapMax), *facts.SwapMax == "0"
			case facts.MemSw != nil && facts.Memory != nil:
				return "memory.memsw.limit_in_bytes is " + plain(*facts.MemSw) + ", memory.limit_in_bytes " + plain(*facts.Memory),
					*facts.MemSw == *facts.Memory && *facts.Memory == strconv.FormatInt(e.limits.MemoryMB*mib, 10)
			case facts.SwapTotal == nil:
				return incomplete, false
			case *facts.SwapTotal == 0:
				return "the kernel does not limit swap, but the machine has none", true
			default:
				return fmt.Sprintf("the kernel does not limit swap, and the machine has %d MiB of it", *facts.SwapTotal>>10), false
			}
		}),
	}}
	return e
}

func pids() experiment {
	const limit = 32
	e := python("pids", strconv.Itoa(4*limit))
	e.limits.PIDs = limit
	e.limits.MemoryMB = 256 // so that memory does not stop it
	e.checks = []check{{
		name:     "pids",
		expected: fmt.Sprintf("a job with pids=%d cannot start more processes, and that is counted", limit),
		remedy:   "enable the pids cgroup on the engine's host (`docker info` warns when it is missing); for a rootless engine, delegate it",
		judge: reading(func(o outcome, facts struct {
			Started int64
			Refused string
		},
		) (string, bool) {
			seen := fmt.Sprintf("%d processes started, the next was refused (%s), refusals counted: %d", facts.Started,
				plain(facts.Refused), o.exit.PIDsMax)
			switch facts.Refused {
			case "":
				return incomplete, false
			case "done":
				return fmt.Sprintf("%d processes started and nothing stopped it", facts.Started), false
			}
			return seen, facts.Refused == "EAGAIN" && facts.Started < limit && o.exit.PIDsMax > 0
		}),
	}}
	return e
}

// podPIDs is pids for a pod, whose limit is its kubelet's.
func podPIDs() experiment {
	const most = 2048
	e := python("pids", strconv.Itoa(most))
	e.limits.PIDs, e.limits.MemoryMB = most, 1024 // so that memory does not stop it
	e.checks = []check{{
		name:     "pids",
		expected: fmt.Sprintf("a pod cannot start %d processes", most),
		remedy:   "set podPidsLimit in the settings of the kubelets, 512 for instance: a pod has no limit of its own",
		judge: reading(func(_ outcome, facts struct {
			Started int64
			Refused string
		},
		) (string, bool) {
			switch facts.Refused {
			case "":
				return incomplete, false
			case "done":
				return fmt.Sprintf("%d processes started and nothing stopped it", facts.Started), false
			}
			return fmt.Sprintf("%d processes started, the next was refused (%s)", facts.Started, plain(facts.Refused)), facts.Refused == "EAGAIN"
		}),
	}}
	return e
}

func cpu() experiment {
	const cores = 0.2
	e := python("cpu")
	e.limits.CPUCores = cores
	e.tries = 3 // on a busy machine a job may not even get its share
	e.checks = []check{{
		name: "cpu",
		expected: fmt.Sprintf("a busy loop of one second with cpu_cores=%v gets at most 0.35 s of CPU, because the kernel throttles it",
			cores),
		remedy: "use a kernel with CONFIG_CFS_BANDWIDTH on the engine's host; for a rootless engine, delegate the cpu controller",
		judge: reading(func(o outcome, facts struct {
			Wall      float64 // seconds
			Startup   *float64
			Throttled *int64
		},
		) (string, bool) {
			// Python's start is not part of the loop.
			total := o.exit.UserCPU + o.exit.SystemCPU
			if facts.Wall < 1 || facts.Startup == nil || total <= 0 {
				return incomplete, false
			}
			used := total.Seconds() - *facts.Startup
			// A quarter and 0.1 s more than its share, since the kernel gives out CPU time in
			// slices.
			most := cores*facts.Wall*1.25 + 0.1
			seen := fmt.Sprintf("%.2f s of CPU in %.2f s", used, facts.Wall)
			switch {
			case facts.Throttled == nil:
				return seen + "; whether it was throttled is not known", false
			case *facts.Throttled == 0:
				return seen + ", never throttled", false
			}
			return fmt.Sprintf("%s, throttled %d times", seen, *facts.Throttled), used <= most
		}),
	}}
	return e
}

func tmp() experiment {
	const limit = 16
	e := fills("/tmp", "tmp", limit, "check that the engine supports --tmpfs with a size")
	e.limits.TmpMB = limit
	return e
}

func shm() experiment {
	const limit = 24
	e := fills("/dev/shm", "shm", limit, "check that the engine supports --shm-size")
	e.limits.ShmMB = limit
	return e
}

// fills returns the experiment that fills the file system at dir, which has limit MiB by the field
// NAME_mb.
func fills(dir, name string, limit int64, remedy string) experiment {
	e := python("tmp", dir, strconv.FormatInt(2*limit, 10))
	e.checks = []check{{
		name:     name,
		expected: fmt.Sprintf("%s can be written and is full after %d MiB with %s_mb=%d", dir, limit, name, limit),
		remedy:   remedy,
		judge: reading(func(o outcome, facts struct {
			Written int64
			Stopped string
		},
		) (string, bool) {
			switch facts.Stopped {
			case "":
				return incomplete, false
			case "done":
				return fmt.Sprintf("%d MiB were written and nothing stopped it", facts.Written/mib), false
			}
			return fmt.Sprintf("%.1f MiB were written, then %s", float64(facts.Written)/mib, plain(facts.Stopped)),
				facts.Stopped == "ENOSPC" && facts.Written > 0 && facts.Written <= limit*mib
		}),
	}}
	return e
}

func deadline() experiment {
	e := shell("trap '' TERM INT HUP; sleep 5; echo late")
	e.timeout = time.Second
	e.checks = []check{{
		name:     "deadline",
		expected: "a job that ignores signals and sleeps for 5 s with timeout_ms=1000 is killed at its deadline",
		remedy:   "rebuild the sandbox image with `make setup`: sandbox-init does not keep the deadline",
		judge: func(o outcome) (string, bool) {
			if o.err == nil && o.exit.TimedOut && o.exit.Signal == int(syscall.SIGKILL) {
				return "killed at its deadline", true
			}
			if why := o.cannot(); why != "" {
				return why, false
			}
			return "the job ended by itself after its deadline", false
		},
	}}
	return e
}

func output() experiment {
	const limit, printed = 64 << 10, 1 << 20
	e := shell(fmt.Sprintf("head -c %d /dev/zero", printed))
	e.maxStdout = limit
	e.checks = []check{{
		name:     "output",
		expected: fmt.Sprintf("of %d bytes of output %d arrive with max_stdout_bytes=%d, and all are counted", printed, limit, limit),
		remedy:   "rebuild the sandbox image with `make setup`: sandbox-init does not cut the output",
		judge: func(o outcome) (string, bool) {
			if why := o.cannot(); why != "" {
				return why, false
			}
			return fmt.Sprintf("%d bytes arrived, %d were counted", o.stdoutPassed, o.exit.StdoutBytes),
				o.stdoutPassed == limit && o.exit.StdoutBytes == printed
		},
	}}
	return e
}
