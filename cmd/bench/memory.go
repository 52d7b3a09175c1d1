//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"secbox/engine"
)

// memory fills the pool with containers, one for each of many projects, and adds up what their processes hold.
func (b *bench) memory(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("only root sees the memory of containers' processes, on the machine of the engine")
	}
	if b.against != "" {
		return nil
	}
	return b.withSubjects(ctx, "memory", nil, func(ctx context.Context, xs []*subject) error {
		x := xs[0]
		b.logf("memory: %d waiting containers", b.slots)
		full := func(p pool) bool { return p.Idle >= b.slots }
		if err := x.fill(ctx, full, func() error {
			return several(ctx, b.slots, 1, func(ctx context.Context, i int) error {
				_, err := x.exec(ctx, fmt.Sprintf("memory-%d", i), nothing)
				return err
			})
		}); err != nil {
			return err
		}
		ids, err := b.docker.Output(ctx, "ps", "--no-trunc", "--filter", "label="+engine.LabelNode+"="+x.node, "--format", "{{.ID}}")
		if err != nil {
			return because(ctx, err)
		}
		return b.weigh(x.pid(), strings.Fields(string(ids)))
	})
}

// weigh finds the processes of a server's waiting containers: docker CLIs are the server's children, a shim has its container's id on its
// command line, and sandbox-init is the shim's child.
func (b *bench) weigh(server int, containers []string) error {
	all, err := processes()
	if err != nil {
		return err
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
		if err != nil {
			return err
		}
		counts[kind]++
		pss[kind], rss[kind] = pss[kind]+held[0], rss[kind]+held[1]
	}
	n := len(containers)
	if n == 0 || counts[0] != n || counts[1] != n || counts[2] != n {
		return fmt.Errorf("%d containers have %d docker CLIs, %d shims and %d processes here", n, counts[0], counts[1], counts[2])
	}
	now, peak, err := resident(server)
	if err != nil {
		return err
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
	b.report.Comparisons = append(b.report.Comparisons, c)
	return nil
}

// isShimOf reports whether the process is the containerd-shim of one of the containers.
func (p process) isShimOf(containers []string) bool {
	at := slices.Index(p.args, "-id")
	return strings.Contains(p.args[0], "containerd-shim") && at >= 0 && at+1 < len(p.args) && slices.Contains(containers, p.args[at+1])
}
