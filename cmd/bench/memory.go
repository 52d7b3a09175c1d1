//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"secbox/engine"
)

// memory fills the pool and adds up what the processes of its containers hold, and the mounts that they add to this machine.
func (b *bench) memory(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("only root sees the memory of containers' processes, on the machine of the engine")
	}
	if b.against != "" {
		return nil
	}
	before, err := mountPoints()
	if err != nil {
		return err
	}
	n := strconv.Itoa(b.slots)
	environ := []string{poolMax + n, poolReady + n, poolMemory + strconv.Itoa(b.slots*engine.SlotMemoryMB)}
	return b.withSubjects(ctx, "memory", environ, func(ctx context.Context, xs []*subject) error {
		x := xs[0]
		b.logf("memory: %d waiting containers", b.slots)
		if err := x.fill(ctx, b.slots); err != nil {
			return err
		}
		ids, err := b.docker.Output(ctx, "ps", "--no-trunc", "--filter", "label="+engine.LabelNode+"="+x.node, "--format", "{{.ID}}")
		if err != nil {
			return because(ctx, err)
		}
		containers := strings.Fields(string(ids))
		c, err := weigh(x.pid(), containers)
		if err != nil {
			return err
		}
		now, err := mountPoints()
		if err != nil {
			return err
		}
		base, err := b.baseOf(ctx, containers[0])
		if err != nil {
			return because(ctx, err)
		}
		below := 0
		for _, at := range now {
			if base != "" && (at == base || strings.HasPrefix(at, base+"/")) {
				below++
			}
		}
		c.Notes = append(c.Notes, fmt.Sprintf("mounts on this machine: %d before core-api's start, %d now; of these in core-api's base: %d", len(before), len(now), below))
		b.report.Comparisons = append(b.report.Comparisons, c)
		return nil
	})
}

// baseOf returns the directory that has the mount of a container for any project; empty: the container is for one.
func (b *bench) baseOf(ctx context.Context, container string) (string, error) {
	source, err := b.docker.Output(ctx, "inspect", "--format", `{{range .Mounts}}{{if eq .Destination "/workspace"}}{{.Source}}{{end}}{{end}}`, container)
	if at := strings.TrimSpace(string(source)); err == nil && at != "" {
		return filepath.Dir(at), nil
	}
	return "", err
}

// weigh finds the processes of a server's waiting containers: docker CLIs are the server's children, a shim has its container's id on its
// command line, and sandbox-init is the shim's child.
func weigh(server int, containers []string) (*Comparison, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	names := []string{"docker CLI", "shim", "sandbox-init", "core-api's other children"}
	var counts [4]int
	var pss, rss [4]float64
	for _, p := range all {
		var kind int
		switch {
		case p.parent == server && p.isDockerRun():
			kind = 0
		case p.isShimOf(containers):
			kind = 1
		case slices.ContainsFunc(all, func(q process) bool { return q.pid == p.parent && q.isShimOf(containers) }):
			kind = 2
		case p.parent == server:
			kind = 3
		default:
			continue
		}
		held, err := sizes(fmt.Sprintf("/proc/%d/smaps_rollup", p.pid), "Pss", "Rss")
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has just ended, as a short docker CLI does; the counts below show if it was another
		}
		if err != nil {
			return nil, err
		}
		counts[kind]++
		pss[kind], rss[kind] = pss[kind]+held[0], rss[kind]+held[1]
	}
	n := len(containers)
	if n == 0 || counts[0] != n || counts[1] != n || counts[2] != n {
		return nil, fmt.Errorf("%d containers have %d docker CLIs, %d shims and %d processes here", n, counts[0], counts[1], counts[2])
	}
	now, peak, err := resident(server)
	if err != nil {
		return nil, err
	}
	c := &Comparison{Section: "memory", Title: fmt.Sprintf("%d waiting containers; PSS counts pages that processes share in parts, RSS in full", n)}
	var slot float64
	for i, name := range names {
		slot += pss[i] / float64(n)
		c.Notes = append(c.Notes, fmt.Sprintf("%s, per container: PSS %s, RSS %s", name, binarySize(pss[i]/float64(n)), binarySize(rss[i]/float64(n))))
	}
	c.Notes = append(c.Notes, "core-api held at most "+binarySize(peak))
	c.Targets = []Target{
		fact(fmt.Sprintf("memory of a waiting container, of %d, all processes", n), sizeBytes, slot, 20e6),
		fact("memory of core-api with them", sizeBytes, now, 64<<20),
	}
	return c, nil
}

// isShimOf reports whether the process is the containerd-shim of one of the containers.
func (p process) isShimOf(containers []string) bool {
	at := slices.Index(p.args, "-id")
	return strings.Contains(p.args[0], "containerd-shim") && at >= 0 && at+1 < len(p.args) && slices.Contains(containers, p.args[at+1])
}
