package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

var errWeigh = errors.New("the memory of containers' processes is only seen by root, on the machine of the engine")

func canWeigh() error {
	if os.Geteuid() != 0 {
		return errWeigh
	}
	return nil
}

// weigh finds the processes of a server's idle containers and adds up what they hold: the docker CLIs are the server's children, a shim
// has its container's id on its command line, and sandbox-init is the shim's child.
func weigh(server int, containers []string) (*Idling, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	out := &Idling{Slots: len(containers)}
	var clis, shims, inits int
	for _, p := range all {
		var into *Held
		switch {
		case p.parent == server && p.runsDocker():
			clis, into = clis+1, &out.CLI
		case p.parent == server:
			into = &out.Others
		case p.isShimOf(containers):
			shims, into = shims+1, &out.Shim
		case slices.ContainsFunc(all, func(q process) bool { return q.pid == p.parent && q.isShimOf(containers) }):
			inits, into = inits+1, &out.Init
		default:
			continue
		}
		h, err := held(p.pid)
		if err != nil {
			return nil, err
		}
		into.add(h)
	}
	if n := len(containers); n == 0 || clis != n || shims != n || inits != n {
		return nil, fmt.Errorf("%w: %d containers have %d docker CLIs, %d shims and %d processes here", errWeigh, n, clis, shims, inits)
	}
	for _, part := range []*Held{&out.CLI, &out.Shim, &out.Init, &out.Others} {
		*part = part.by(out.Slots)
		out.Slot.add(*part)
	}
	if out.CoreAPI, err = held(server); err != nil {
		return nil, err
	}
	m, err := memoryOf(server)
	out.CoreAPIPeak = m.peak
	return out, err
}

// isShimOf tells whether it is the containerd-shim of one of the containers.
func (p process) isShimOf(containers []string) bool {
	at := slices.Index(p.args, "-id")
	return strings.Contains(p.args[0], "containerd-shim") && at >= 0 && at+1 < len(p.args) && slices.Contains(containers, p.args[at+1])
}

// held reads what a process holds, all its mappings together.
func held(pid int) (Held, error) {
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	switch {
	case errors.Is(err, fs.ErrPermission):
		return Held{}, fmt.Errorf("%w: %w", errWeigh, err)
	case err != nil:
		return Held{}, err
	}
	h := Held{PSS: -1, RSS: -1}
	for line := range strings.Lines(string(rollup)) {
		words := strings.Fields(line)
		if len(words) != 3 || words[2] != "kB" {
			continue
		}
		kilobytes, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			return Held{}, err
		}
		switch words[0] {
		case "Pss:":
			h.PSS = kilobytes << 10
		case "Rss:":
			h.RSS = kilobytes << 10
		}
	}
	if h.PSS < 0 || h.RSS < 0 {
		return Held{}, fmt.Errorf("/proc/%d/smaps_rollup has no Pss or Rss", pid)
	}
	return h, nil
}
