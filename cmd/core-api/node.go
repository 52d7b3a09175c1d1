package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"secbox/cluster/nodes"
	"secbox/fault"
	"secbox/settings"
	"secbox/store"
)

func (c *command) nodeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "List, drain and forget the nodes that share the database", Example: "  core-api node list"}
	cmd.AddCommand(c.nodeList(), c.nodeDrain(), c.nodeForget())
	return cmd
}

// nodeRow is a node as node list --json prints it.
type nodeRow struct {
	NodeID     string      `json:"node_id"`
	Name       string      `json:"name"`
	Address    string      `json:"address"` // empty: other nodes cannot reach it
	State      nodes.State `json:"state"`
	Version    string      `json:"version"`
	StartedAt  time.Time   `json:"started_at"`
	SeenAt     time.Time   `json:"seen_at"`
	SeenAgoMS  int64       `json:"seen_ago_ms"` // by the database's clock
	LeaseUntil *time.Time  `json:"lease_until"` // null: it has no lease
	Epoch      int64       `json:"epoch"`
	Running    int         `json:"running"`
	Queued     int         `json:"queued"`
}

const ever = 100 * 365 * 24 * time.Hour

func (c *command) nodeList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the nodes with their states and open execs, the latest to give a sign first",
		Example: `  core-api node list
  core-api node list --json`,
		Long: "Lists the nodes that have ever used the database, except those that were forgotten.\n\n" +
			"live      the node renews its lease\n" +
			"draining  live, and it takes no new commands\n" +
			"silent    its lease has ended, and another node is about to retire it\n" +
			"retired   it has no lease: it has ended, or another node has retired its lease",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withDatabase(cmd.Context(), func(_ settings.Settings, db store.Database) error {
				all, err := db.Nodes().List(cmd.Context(), ever)
				if err != nil {
					return err
				}
				slices.SortStableFunc(all, func(a, b nodes.Node) int { return cmp.Compare(b.SeenAt.Unix(), a.SeenAt.Unix()) })
				rows := make([]nodeRow, len(all))
				for i, n := range all {
					rows[i] = nodeRow{
						NodeID: n.NodeID, Name: n.Name, Address: n.Address, State: n.State(), Version: n.Version,
						StartedAt: n.StartedAt.UTC(), SeenAt: n.SeenAt.UTC(),
						SeenAgoMS: n.ReadAt.Sub(n.SeenAt).Milliseconds(), Epoch: n.Epoch, Running: n.Running, Queued: n.Queued,
					}
					if !n.LeaseUntil.IsZero() {
						rows[i].LeaseUntil = new(n.LeaseUntil.UTC())
					}
				}
				return c.printReport(asJSON, rows, func() error { return c.printNodes(rows) }, false)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the nodes as JSON")
	return cmd
}

func (c *command) printNodes(rows []nodeRow) error {
	table := tabwriter.NewWriter(c.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tSTATE\tNAME\tADDRESS\tSEEN\tRUNNING\tQUEUED\tVERSION")
	for _, n := range rows {
		seen := (time.Duration(n.SeenAgoMS) * time.Millisecond).Round(time.Second)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%v ago\t%d\t%d\t%s\n", printable(n.NodeID), n.State, cmp.Or(printable(n.Name), "-"),
			cmp.Or(printable(n.Address), "-"), seen,
			n.Running, n.Queued, printable(n.Version))
	}
	return table.Flush()
}

func (c *command) nodeDrain() *cobra.Command {
	var undo, wait bool
	cmd := &cobra.Command{
		Use:   "drain ID",
		Short: "Have a node take no new commands, until --undo or its next start",
		Example: `  core-api node drain node-2 --wait
  core-api node drain node-2 --undo`,
		Long: "Has a node take no new commands: it starts no execs that wait, answers new ones with 503 draining, and /readyz fails, so " +
			"that load\n" +
			"balancers send requests to other nodes. What runs goes on. The node obeys when it renews its lease the next time, by " +
			"default within\n" +
			"three seconds. --undo ends it, and so does the next start of the node.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if undo && wait {
				return fault.New(fault.InvalidRequest, "--wait waits for the end of what a drained node runs; leave it out with --undo")
			}
			return c.withDatabase(cmd.Context(), func(_ settings.Settings, db store.Database) error {
				id := args[0]
				if err := db.Nodes().Drain(cmd.Context(), id, !undo); err != nil {
					return err
				}
				if undo {
					fmt.Fprintf(c.stdout, "Node %s takes new commands again.\n", printable(id))
					return nil
				}
				fmt.Fprintf(c.stdout, "Node %s takes no new commands.\n", printable(id))
				if !wait {
					return nil
				}
				if err := waitForIdle(cmd.Context(), db.Nodes(), id); err != nil {
					return err
				}
				fmt.Fprintln(c.stdout, "It runs none any longer.")
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "have the node take new commands again")
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the node has obeyed and runs nothing")
	return cmd
}

// waitForIdle returns when a drained node has renewed its lease, by which it learns that it is
// drained, and then has no open execs; or has no lease.
func waitForIdle(ctx context.Context, known nodes.Store, id string) error {
	var first time.Time
	for {
		all, err := known.List(ctx, ever)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(n nodes.Node) bool { return n.NodeID == id })
		switch {
		case i < 0 || all[i].State() == nodes.StateRetired:
			return nil
		case !all[i].Draining:
			return fault.New(fault.NodeConflict, "the node %s is drained no longer: it was started again, or this was undone", id)
		case first.IsZero():
			first = all[i].SeenAt
		case all[i].SeenAt.After(first) && all[i].Running+all[i].Queued == 0:
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(nodeInterval):
		}
	}
}

func (c *command) nodeForget() *cobra.Command {
	return &cobra.Command{
		Use:     "forget ID",
		Short:   "Remove a node that has ended for good from the list",
		Example: "  core-api node forget node-2",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withDatabase(cmd.Context(), func(_ settings.Settings, db store.Database) error {
				err := db.Nodes().Forget(cmd.Context(), args[0])
				if err == nil {
					fmt.Fprintf(c.stdout, "Node %s is forgotten. Its execs stay on record.\n", printable(args[0]))
				}
				return err
			})
		},
	}
}
