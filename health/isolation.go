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

// The experiments in this file try to read or change things outside a job.

// runs is a harmless job; without it no other result means anything.
func runs(s environment) experiment {
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
				return "the job printed something else: " + quoted(o.stdout), false
			}
			return "it ran", true
		},
	}}
	return e
}

func mounts(s environment) experiment {
	e := python("mounts")
	e.inputs = map[string]string{"probe.txt": s.nonce}
	e.collect = true
	sum := sha256.Sum256([]byte(s.nonce))
	digest := hex.EncodeToString(sum[:])
	remedy := fmt.Sprintf("the engine must see the workspace root at %s: in container mode set sandbox.workspace_root_host, with Docker "+
		"Desktop share the drive, and a remote engine (DOCKER_HOST) needs the same disk", s.dockerRoot)
	switch {
	case s.copies:
		remedy = "rebuild the sandbox image with `make setup`: its sandbox-init does not take files"
	case s.cluster:
		remedy = "the claim " + s.volume + " must be of the volume that is the workspace root: sandbox.kubernetes.volume_claim"
	case s.volume != "":
		remedy = "the volume " + s.volume + " must be mounted at the workspace root: compare sandbox.workspace_volume with `docker inspect` " +
			"of core-api's container"
	}
	expected := "the job reads its input and cannot change it"
	if s.copies {
		expected = "the job reads a copy of its input"
	}
	e.checks = []check{{
		name:     "inputs",
		expected: expected,
		remedy:   remedy,
		judge: func(o outcome) (string, bool) {
			facts, why := mountFacts(o)
			switch {
			case why != "":
				return why, false
			case facts.Given == nil || *facts.Given != s.nonce:
				return "the input does not arrive in the container", false
			case s.copies:
				return "the copy arrived", true
			case facts.Writes["inputs"] == "done" || facts.Replaced == "done":
				return "the job can write into its inputs", false
			case !facts.ReadOnly:
				return "the inputs are mounted writable; only the file's owner prevents writing (" + plain(facts.Replaced) + ")", false
			}
			return "the input arrived; writing it: " + plain(facts.Replaced), true
		},
	}, {
		name:     "artifacts",
		expected: "the job writes into work/ and artifacts/, and its files arrive here",
		remedy:   remedy + "; and the user " + s.user + " must be able to write there",
		judge: func(o outcome) (string, bool) {
			facts, why := mountFacts(o)
			if why != "" {
				return why, false
			}
			for _, name := range []string{"work", "artifacts"} {
				if facts.Writes[name] != "done" {
					return fmt.Sprintf("the job cannot write into %s/: %s", name, plain(facts.Writes[name])), false
				}
			}
			if o.artifactsErr != nil {
				return "not measured: " + message(o.artifactsErr), false
			}
			for _, f := range o.artifacts.Files {
				if f.Path == "probe.txt" && f.SHA256 == digest {
					return "it arrived", true
				}
			}
			return "the job's file in artifacts/ does not arrive here", false
		},
	}}
	return e
}

type mountResult struct {
	Given    *string
	Replaced string
	ReadOnly bool `json:"inputs_read_only"`
	Writes   map[string]string
}

func mountFacts(o outcome) (result mountResult, why string) {
	why = o.facts(&result)
	if why == "" && (result.Replaced == "" || result.Writes["inputs"] == "" || result.Writes["work"] == "" ||
		result.Writes["artifacts"] == "") {
		why = incomplete
	}
	return result, why
}

// unreachable are the errors of a machine without a route to the address. Others, such as
// EHOSTUNREACH, ECONNREFUSED or a timeout, mean that a packet left.
var unreachable = []string{"ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"}

// noSockets is noNetwork for a pod, which has interfaces that no process can use.
func noSockets(s environment) experiment {
	e := python("network", s.targets...)
	e.checks = []check{{
		name:     "network",
		expected: "no socket for a network can be made, to reach " + strings.Join(s.targets, ", "),
		remedy:   "rebuild the sandbox image with `make setup`: its sandbox-init does not refuse sockets",
		judge: reading(func(_ outcome, facts struct{ Reached map[string]string }) (string, bool) {
			for _, t := range s.targets {
				switch got := facts.Reached[t]; got {
				case "":
					return incomplete, false
				case "EAFNOSUPPORT":
				default:
					return fmt.Sprintf("a socket for %s was made: %s", t, plain(got)), false
				}
			}
			return "none: EAFNOSUPPORT", len(s.targets) > 0
		}),
	}}
	return e
}

func noNetwork(s environment) experiment {
	e := python("network", s.targets...)
	e.checks = []check{{
		name:     "network",
		expected: "no interface but lo is up, and nothing outside can be reached: " + strings.Join(s.targets, ", "),
		remedy:   "check that nothing on the engine's host attaches containers of --network=none to a network",
		judge: reading(func(o outcome, facts struct {
			Up      []string
			All     []string
			Reached map[string]string
		},
		) (string, bool) {
			if !slices.Contains(facts.All, "lo") || len(s.targets) == 0 {
				return incomplete, false
			}
			for _, t := range s.targets {
				switch got := facts.Reached[t]; {
				case got == "":
					return incomplete, false
				case !slices.Contains(unreachable, got):
					return fmt.Sprintf("a packet left for %s: %s", t, plain(got)), false
				}
			}
			// Some kernels create tunnel interfaces, which are down, in every network namespace.
			for _, name := range facts.Up {
				if name != "lo" {
					return "the interface " + plain(name) + " is up", false
				}
			}
			return "only lo is up, every address is unreachable", true
		}),
	}}
	return e
}

func rootfs(s environment) experiment {
	e := python("rootfs")
	c := check{
		name:     "rootfs",
		expected: "the container's own file system is read-only",
		remedy:   "check that the engine supports --read-only",
	}
	if !s.readOnlyRootfs {
		c.expected = "the container's own file system is writable, as sandbox.read_only_rootfs=false says"
	}
	c.judge = reading(func(o outcome, facts struct {
		ReadOnly *bool `json:"read_only"`
		Writes   map[string]string
	},
	) (string, bool) {
		if facts.ReadOnly == nil || len(facts.Writes) == 0 {
			return incomplete, false
		}
		if !s.readOnlyRootfs {
			return map[bool]string{true: "it is read-only", false: "it is writable"}[*facts.ReadOnly], true
		}
		for _, place := range slices.Sorted(maps.Keys(facts.Writes)) {
			if facts.Writes[place] == "done" {
				return "a file could be written into " + plain(place), false
			}
		}
		if !*facts.ReadOnly {
			return "it is mounted writable", false
		}
		return fmt.Sprintf("it is read-only, and none of %d directories can be written", len(facts.Writes)), true
	})
	e.checks = []check{c}
	return e
}

// identity checks several properties of one process by its /proc/self/status.
func identity(s environment) experiment {
	e := python("status")
	line := func(o outcome, key string) (value, why string) {
		var facts struct{ Status map[string]string }
		if why := o.facts(&facts); why != "" {
			return "", why
		}
		if facts.Status[key] == "" {
			return "", "not measured: the kernel does not report " + key
		}
		return facts.Status[key], ""
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
			var facts struct{ Status map[string]string }
			_ = o.facts(&facts)
			for _, group := range strings.Fields(facts.Status["Groups"]) { // empty when there are none
				if group != gid {
					return "Groups is " + plain(facts.Status["Groups"]), false
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
			var facts struct{ Uring string }
			if !ok || o.facts(&facts) != "" {
				return answer, false
			}
			if facts.Uring == "" {
				return answer + "; io_uring is not measured: the image's Python has no ctypes", false
			}
			return answer + ", io_uring_setup fails with " + plain(facts.Uring), facts.Uring == "EPERM" || facts.Uring == "ENOSYS"
		},
	}}
	return e
}

func firstProcess() experiment {
	e := python("init")
	e.checks = []check{{
		name:     "init",
		expected: "the job can neither read sandbox-init's memory and files nor end it, though both run as one user",
		remedy: "rebuild the sandbox image with `make setup`, and check that the engine's host does not set fs.suid_dumpable or give " +
			"containers SYS_PTRACE",
		judge: reading(func(o outcome, facts struct {
			Name  string
			Looks map[string]string
		},
		) (string, bool) {
			if facts.Name != "sandbox-init" {
				return "the first process is " + quoted(facts.Name), false
			}
			for _, what := range []string{"fd", "environ", "maps", "mem", "root"} {
				switch got := facts.Looks[what]; got {
				case "":
					return incomplete, false
				case "EACCES", "EPERM":
				default:
					return fmt.Sprintf("the job can open /proc/1/%s (%s)", what, plain(got)), false
				}
			}
			return "every access was refused, and it survived the job's signals", true
		}),
	}}
	return e
}

// skew is the largest difference between the two clocks: file times and deadlines are compared to
// the second.
const skew = 2 * time.Second

func clock() experiment {
	e := python("clock")
	e.checks = []check{{
		name:     "clock",
		expected: fmt.Sprintf("the container's clock is within %v of this machine's", skew),
		remedy:   "synchronise both clocks (NTP); with Docker Desktop restart it: its machine's clock stops while the computer sleeps",
		judge: reading(func(o outcome, facts struct{ Now float64 }) (string, bool) {
			if facts.Now <= 0 || facts.Now > math.MaxInt32 {
				return incomplete, false
			}
			now := time.UnixMicro(int64(facts.Now * 1e6))
			switch {
			case now.Before(o.before.Add(-skew)):
				return fmt.Sprintf("it is %v behind", o.before.Sub(now).Round(time.Second)), false
			case now.After(o.after.Add(skew)):
				return fmt.Sprintf("it is %v ahead", now.Sub(o.after).Round(time.Second)), false
			}
			return "they agree", true
		}),
	}}
	return e
}

// plain returns a short printable text of a job as it is, and quotes any other.
func plain(s string) string {
	for _, r := range s {
		if r < ' ' || r > '~' {
			return quoted(s)
		}
	}
	if len(s) > 300 {
		return quoted(s)
	}
	return s
}
