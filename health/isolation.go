package health

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// The experiments in this file try to see or touch what does not belong to a job.

// runs is the harmless job without which nothing else means anything.
func runs(s surroundings) experiment {
	e := shell("echo " + s.nonce)
	e.needed = true
	e.checks = []check{{
		name:     "exec",
		expected: "a job runs in a container and its output arrives",
		remedy:   "see the problems above; `docker run --rm --entrypoint true IMAGE` should work on the engine's host",
		judge: func(o outcome) (string, bool) {
			if why := o.cannot(); why != "" {
				return why, false
			}
			if o.stdout != s.nonce+"\n" {
				return "the job printed something else: " + clip(o.stdout), false
			}
			return "it ran", true
		},
	}}
	return e
}

func mounts(s surroundings) experiment {
	e := python("mounts")
	e.inputs = map[string]string{"probe.txt": s.nonce}
	e.collect = true
	sum := sha256.Sum256([]byte(s.nonce))
	digest := hex.EncodeToString(sum[:])
	const mapping = "the engine must see the workspace root at %s: in container mode set sandbox.workspace_root_host, with Docker Desktop share the drive, and a remote engine (DOCKER_HOST) needs the same disk"
	e.checks = []check{{
		name:     "inputs",
		expected: "the job reads its input and cannot change it",
		remedy:   fmt.Sprintf(mapping, s.dockerRoot),
		judge: func(o outcome) (string, bool) {
			said, why := mountFacts(o)
			switch {
			case why != "":
				return why, false
			case said.Given == nil || *said.Given != s.nonce:
				return "the input does not arrive in the container", false
			case said.Writes["inputs"] == "done" || said.Replaced == "done":
				return "the job can write into its inputs", false
			case !said.ReadOnly:
				return "the inputs are mounted writable; only the file's owner is in the way (" + plain(said.Replaced) + ")", false
			}
			return "the input arrived; writing it: " + plain(said.Replaced), true
		},
	}, {
		name:     "artifacts",
		expected: "the job writes into work/ and artifacts/, and what it wrote arrives here",
		remedy:   fmt.Sprintf(mapping, s.dockerRoot) + "; and the user " + s.user + " must be able to write there",
		judge: func(o outcome) (string, bool) {
			said, why := mountFacts(o)
			if why != "" {
				return why, false
			}
			for _, name := range []string{"work", "artifacts"} {
				if said.Writes[name] != "done" {
					return fmt.Sprintf("the job cannot write into %s/: %s", name, plain(said.Writes[name])), false
				}
			}
			if o.artifactsErr != nil {
				return "not measured: " + words(o.artifactsErr), false
			}
			for _, f := range o.artifacts.Files {
				if f.Path == "probe.txt" && f.SHA256 == digest {
					return "it arrived", true
				}
			}
			return "what the job wrote into artifacts/ does not arrive here", false
		},
	}}
	return e
}

type mountsSaid struct {
	Given    *string
	Replaced string
	ReadOnly bool `json:"inputs_read_only"`
	Writes   map[string]string
}

func mountFacts(o outcome) (said mountsSaid, why string) {
	why = o.facts(&said)
	if why == "" && (said.Replaced == "" || said.Writes["inputs"] == "" || said.Writes["work"] == "" || said.Writes["artifacts"] == "") {
		why = incomplete
	}
	return said, why
}

// unreachable are the errors of a machine that has no way at all to the address. Others, such as EHOSTUNREACH, ECONNREFUSED or silence,
// mean that a packet left.
var unreachable = []string{"ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"}

func network(s surroundings) experiment {
	e := python("network", s.targets...)
	e.checks = []check{{
		name:     "network",
		expected: "no interface but lo is up, and nothing outside can be reached: " + strings.Join(s.targets, ", "),
		remedy:   "check that nothing on the engine's host attaches containers of --network=none to a network",
		judge: func(o outcome) (string, bool) {
			var said struct {
				Up      []string
				All     []string
				Reached map[string]string
			}
			if why := o.facts(&said); why != "" {
				return why, false
			}
			if !slices.Contains(said.All, "lo") || len(s.targets) == 0 {
				return incomplete, false
			}
			for _, t := range s.targets {
				switch got := said.Reached[t]; {
				case got == "":
					return incomplete, false
				case !slices.Contains(unreachable, got):
					return fmt.Sprintf("a packet left for %s: %s", t, plain(got)), false
				}
			}
			// Some kernels put unused tunnel interfaces, down, into every network namespace.
			for _, name := range said.Up {
				if name != "lo" {
					return "the interface " + plain(name) + " is up", false
				}
			}
			return "only lo is up, every address is unreachable", true
		},
	}}
	return e
}

func rootfs(s surroundings) experiment {
	e := python("rootfs")
	c := check{
		name:     "rootfs",
		expected: "the container's own file system is read-only",
		remedy:   "check that the engine supports --read-only",
	}
	if !s.readOnlyRootfs {
		c.expected = "the container's own file system is writable, as sandbox.read_only_rootfs=false says"
	}
	c.judge = func(o outcome) (string, bool) {
		var said struct {
			ReadOnly *bool `json:"read_only"`
			Writes   map[string]string
		}
		if why := o.facts(&said); why != "" {
			return why, false
		}
		if said.ReadOnly == nil || len(said.Writes) == 0 {
			return incomplete, false
		}
		if !s.readOnlyRootfs {
			return map[bool]string{true: "it is read-only", false: "it is writable"}[*said.ReadOnly], true
		}
		for _, place := range slices.Sorted(maps.Keys(said.Writes)) {
			if said.Writes[place] == "done" {
				return "a file could be written into " + plain(place), false
			}
		}
		if !*said.ReadOnly {
			return "it is mounted writable", false
		}
		return fmt.Sprintf("it is read-only, and none of %d directories can be written", len(said.Writes)), true
	}
	e.checks = []check{c}
	return e
}

// identity asks several questions of one job: what the kernel says about its process.
func identity(s surroundings) experiment {
	e := python("status")
	line := func(o outcome, key string) (value, why string) {
		var said struct{ Status map[string]string }
		if why := o.facts(&said); why != "" {
			return "", why
		}
		if said.Status[key] == "" {
			return "", "not measured: the kernel does not tell " + key
		}
		return said.Status[key], ""
	}
	is := func(key, wanted string) func(o outcome) (string, bool) {
		return func(o outcome) (string, bool) {
			value, why := line(o, key)
			if why != "" {
				return why, false
			}
			return key + " is " + plain(value), value == wanted
		}
	}
	uid, gid, _ := strings.Cut(s.user, ":")
	e.checks = []check{{
		name: "user", expected: "the job runs as " + s.user + ", in no other group",
		remedy: "check `sandbox.user`, and that the image's user has no further groups",
		judge: func(o outcome) (string, bool) {
			for _, id := range [][2]string{{"Uid", uid}, {"Gid", gid}} {
				key, wanted := id[0], id[1]
				value, why := line(o, key)
				if why != "" {
					return why, false
				}
				for _, id := range strings.Fields(value) { // real, effective, saved, file system
					if id != wanted {
						return key + " is " + plain(value), false
					}
				}
			}
			var said struct{ Status map[string]string }
			_ = o.facts(&said)
			for _, group := range strings.Fields(said.Status["Groups"]) { // empty when there are none
				if group != gid {
					return "Groups is " + plain(said.Status["Groups"]), false
				}
			}
			return "uid " + uid + ", gid " + gid, uid != "" && gid != ""
		},
	}, {
		name: "capabilities", expected: "the job has no capabilities and can gain none",
		remedy: "check that nothing on the engine's host adds capabilities to containers of --cap-drop=ALL",
		judge: func(o outcome) (string, bool) {
			for _, key := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
				value, why := line(o, key)
				if why != "" {
					return why, false
				}
				if strings.Trim(value, "0") != "" {
					return key + " is " + plain(value), false
				}
			}
			return "all five sets are empty", true
		},
	}, {
		name: "no_new_privs", expected: "no program can raise the job's privileges (NoNewPrivs is 1)",
		remedy: "check that the engine supports --security-opt=no-new-privileges", judge: is("NoNewPrivs", "1"),
	}, {
		name: "seccomp", expected: "the job's system calls are filtered (Seccomp is 2), and io_uring is refused",
		remedy: "use an engine with seccomp, remove seccomp-profile=unconfined from its daemon.json, and leave sandbox.seccomp at secbox",
		judge: func(o outcome) (string, bool) {
			answer, ok := is("Seccomp", "2")(o)
			var said struct{ Uring string }
			if !ok || o.facts(&said) != "" {
				return answer, false
			}
			if said.Uring == "" {
				return answer + "; io_uring is not measured: the image's Python has no ctypes", false
			}
			return answer + ", io_uring_setup fails with " + plain(said.Uring), said.Uring == "EPERM" || said.Uring == "ENOSYS"
		},
	}}
	return e
}

func firstProcess() experiment {
	e := python("init")
	e.checks = []check{{
		name:     "init",
		expected: "the job can neither look into sandbox-init nor end it, though both run as one user",
		remedy:   "rebuild the sandbox image with `make setup`, and check that the engine's host does not set fs.suid_dumpable or give containers SYS_PTRACE",
		judge: func(o outcome) (string, bool) {
			var said struct {
				Name  string
				Looks map[string]string
			}
			if why := o.facts(&said); why != "" {
				return why, false
			}
			if said.Name != "sandbox-init" {
				return "the first process is " + clip(said.Name), false
			}
			for _, what := range []string{"fd", "environ", "maps", "mem", "root"} {
				switch got := said.Looks[what]; got {
				case "":
					return incomplete, false
				case "EACCES", "EPERM":
				default:
					return fmt.Sprintf("the job can open /proc/1/%s (%s)", what, plain(got)), false
				}
			}
			return "every look was refused, and it survived the job's signals", true
		},
	}}
	return e
}

// skew is how far the two clocks may be apart: file times and deadlines are compared to the second.
const skew = 2 * time.Second

func clock() experiment {
	e := python("clock")
	e.checks = []check{{
		name:     "clock",
		expected: fmt.Sprintf("the container's clock is within %v of this machine's", skew),
		remedy:   "synchronise both clocks (NTP); with Docker Desktop restart it: its machine's clock stops while the computer sleeps",
		judge: func(o outcome) (string, bool) {
			var said struct{ Now float64 }
			if why := o.facts(&said); why != "" {
				return why, false
			}
			if said.Now <= 0 || said.Now > math.MaxInt32 {
				return incomplete, false
			}
			now := time.UnixMicro(int64(said.Now * 1e6))
			switch {
			case now.Before(o.before.Add(-skew)):
				return fmt.Sprintf("it is %v behind", o.before.Sub(now).Round(time.Second)), false
			case now.After(o.after.Add(skew)):
				return fmt.Sprintf("it is %v ahead", now.Sub(o.after).Round(time.Second)), false
			}
			return "they agree", true
		},
	}}
	return e
}

// plain lets a word of a job through as it is, and quotes anything that is more than a word.
func plain(s string) string {
	for _, r := range s {
		if r < ' ' || r > '~' {
			return clip(s)
		}
	}
	if len(s) > 300 {
		return clip(s)
	}
	return s
}
