package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"secbox/audit/admin"
	"secbox/cluster/nodes"
	"secbox/fault"
	"secbox/internal/statedir"
	"secbox/packages/library"
	"secbox/packages/repair"
	"secbox/packages/versions"
	"secbox/server"
	"secbox/settings"
	"secbox/store"
)

func (c *command) skillsRepair() *cobra.Command {
	var opts repair.Options
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "repair",
		Short: "Make the registry of skill packages and the workspace root agree after a restore of one of them",
		Long: "Make the registry of skill packages (in the database) and their versions (below agents/ in the workspace root) agree " +
			"again,\n" +
			"after a restore of one of them. Every version is read and compared with its name, which is its digest.\n\n" +
			"Nothing is deleted: invalid versions are moved to agents/<agent>/.quarantine, and users' own copies stay unchanged. Each " +
			"line of\n" +
			"output is one repair. Stop all servers of the installation first; with --dry-run they may run, and their work in progress " +
			"may\n" +
			"show up as a difference.\n\n" +
			"The exit code is 0 if everything agrees now, and 1 if a repair failed or, with --dry-run, is needed.",
		Example: `  core-api skills repair --dry-run
  core-api skills repair`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := c.settings()
			if err != nil {
				return err
			}
			report, err := c.repair(cmd.Context(), s, opts)
			if err != nil {
				return err
			}
			broken := report.Count(repair.Failed) > 0 || opts.DryRun && report.Changes() > 0
			return c.printReport(asJSON, report, func() error { return printRepair(c.stdout, report) }, broken)
		},
	}
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "only print the repairs")
	cmd.Flags().BoolVar(&opts.AllLost, "all-lost", false, "continue even if the workspace root has no version of any skill")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	return cmd
}

// repair locks the state directory, so that no server of this node can start.
func (c *command) repair(ctx context.Context, s settings.Settings, opts repair.Options) (report repair.Report, err error) {
	own := ""
	if err := server.NeedDatabase(s); err != nil {
		return report, err
	}
	dir, err := statedir.Open(s.StateDir)
	switch {
	case err == nil:
		own = dir.NodeID()
		defer func() { err = errors.Join(err, dir.Close()) }()
	case !fault.Is(err, fault.StateDirInUse):
		return report, err
	case !opts.DryRun:
		return report, fault.Wrap(fault.StateDirInUse, err,
			"a server is running on the state dir %s: stop all servers of this installation and run this again, or use --dry-run",
			s.StateDir)
	}
	deps, err := server.NewDeps(s, c.environ)
	if err != nil {
		return report, err
	}
	if err := deps.OpenWorkspace(); err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, deps.Workspace.Close()) }()
	db, err := store.Open(ctx, s.DatabaseURL.Reveal(), s.StateDir)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if !opts.DryRun {
		if err := waitForNodes(ctx, db.Nodes(), own, c.stderr); err != nil {
			return report, err
		}
		if err := admin.Record(ctx, db.AdminEvents(), admin.SkillsRepair, "", map[string]any{"all_lost": opts.AllLost}); err != nil {
			return report, err
		}
	}
	stored := versions.New(deps.Workspace)
	defer func() { err = errors.Join(err, stored.Close()) }()
	l, err := library.New(library.Config{Workspace: deps.Workspace, Versions: stored, Registry: db.Skills(), Log: newLogger(c.stderr, s)})
	if err != nil {
		return report, err
	}
	opts.Now, opts.Progress = time.Now(), progress(c.stderr)
	return l.Repair(ctx, opts)
}

const (
	nodeInterval     = 500 * time.Millisecond
	progressInterval = 5 * time.Second
)

// waitForNodes returns when no other node is live. It waits for the leases of nodes that were
// killed to end; one that is renewed is an error.
func waitForNodes(ctx context.Context, known nodes.Store, own string, stderr io.Writer) error {
	var first []nodes.Node
	for warned := false; ; {
		seen, err := known.List(ctx, ever)
		if err != nil {
			return err
		}
		seen = slices.DeleteFunc(seen, func(n nodes.Node) bool {
			return n.NodeID == own || n.State() != nodes.StateLive && n.State() != nodes.StateDraining
		})
		if len(seen) == 0 {
			return nil
		}
		for _, n := range seen {
			at := slices.IndexFunc(first, func(f nodes.Node) bool { return f.NodeID == n.NodeID })
			if first != nil && (at < 0 || !n.SeenAt.Equal(first[at].SeenAt)) {
				return fault.New(fault.StateDirInUse,
					"the node %s is running: stop all servers of this installation and run this again, or use --dry-run", n.NodeID)
			}
		}
		if first == nil {
			first = seen
		}
		if !warned {
			warned = true
			fmt.Fprintf(stderr, "The lease of %s has not ended; waiting for its end, or for a sign that it still runs.\n",
				many(len(seen), "node"))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(nodeInterval):
		}
	}
}

// progress reports the progress of long repairs.
func progress(w io.Writer) func(versions, of int, bytes int64) {
	last := time.Now()
	return func(versions, of int, bytes int64) {
		if time.Since(last) < progressInterval {
			return
		}
		last = time.Now()
		fmt.Fprintf(w, "%d of %s read, %d MiB\n", versions, many(of, "version"), bytes>>20)
	}
}

func printRepair(w io.Writer, report repair.Report) error {
	for _, line := range report.Lines {
		whose := "agent " + line.AgentID
		if line.UserID != "" {
			whose += ", user " + line.UserID
		}
		if line.SkillID != "" {
			whose += ", skill " + line.SkillID
		}
		fmt.Fprintf(w, "%s: %s: %s\n", whose, line.Kind, line.What)
	}
	done := many(report.Changes(), "repair")
	if report.DryRun {
		done += " to do"
	}
	_, err := fmt.Fprintf(w, "%s, %s read (%d MiB), %s: %s, %d failed; %s without a pointer left to garbage collection.\n",
		many(report.Agents, "agent"), many(report.Versions, "version"), report.Bytes>>20, many(report.Pointers, "pointer"), done,
		report.Count(repair.Failed), many(report.Unused, "version"))
	if err == nil && report.DryRun {
		_, err = fmt.Fprintln(w, "Nothing was changed.")
	}
	return err
}
