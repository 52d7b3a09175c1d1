package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"secbox/audit/retention"
	"secbox/audit/translog/verify"
	"secbox/fault"
	"secbox/server"
	"secbox/settings"
	"secbox/store"
)

func (c *command) retentionCommand() *cobra.Command {
	var dryRun, asJSON, acceptClock bool
	cmd := &cobra.Command{
		Use:   "retention --dry-run",
		Short: "Tell what the rules audit.retention_days, audit.artifacts_retention_days and sandbox.workspace_ttl_hours would remove now",
		Example: `  core-api audit retention --dry-run
  core-api audit retention run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !dryRun {
				return errors.New("give --dry-run to see what would be removed, or use `core-api audit retention run` to remove it")
			}
			return c.withRetention(cmd.Context(), func(r *retention.Runner) error {
				plans, err := r.DryRun(cmd.Context())
				if err != nil {
					return err
				}
				if asJSON {
					return c.printJSON(plans)
				}
				return c.printPlans(plans)
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "remove nothing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	run := &cobra.Command{
		Use:   "run",
		Short: "Remove it now; a server does it every hour",
		Long: "Remove what the rules no longer keep now, as a server does every hour. A run removes at most 100,000 execs, at most 200 a " +
			"second; run it\n" +
			"again for the rest. Servers may run meanwhile.",
		Example: "  core-api audit retention run",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withRetention(cmd.Context(), func(r *retention.Runner) error {
				done, err := r.Once(cmd.Context(), acceptClock)
				fmt.Fprintf(c.stdout, "Removed %d records, and the artifacts of %d execs whose record stays; removed files of %d "+
					"projects. Held: %d. Altered, and kept: %d.\n",
					done.Records, done.Artifacts, done.Projects, done.Held, done.Altered)
				return err
			})
		},
	}
	run.Flags().BoolVar(&acceptClock, "accept-clock", false,
		"the database's clock is right, although no core-api ran for long or it was set back")
	cmd.AddCommand(run)
	return cmd
}

// withRetention calls f with the runs of the installation.
func (c *command) withRetention(ctx context.Context, f func(*retention.Runner) error) error {
	return c.withDatabase(ctx, func(s settings.Settings, db store.Database) error {
		if s.Audit.RetentionDays == 0 && s.Audit.ArtifactsRetentionDays == 0 && s.Sandbox.WorkspaceTTLHours == 0 {
			fmt.Fprintln(c.stderr, "No rule removes anything: audit.retention_days, audit.artifacts_retention_days and "+
				"sandbox.workspace_ttl_hours are 0.")
		}
		deps, err := server.NewDeps(s, c.environ)
		if err != nil {
			return err
		}
		if err := deps.OpenExistingWorkspace(); err != nil {
			return err
		}
		// Results in the spool of a server belong to rows that are open or lost in the database.
		spooled := func() []string { return nil }
		runner := server.NewRetention(s, db, deps.Workspace, "command-"+server.NewID(), spooled, newLogger(c.stderr, s))
		return errors.Join(f(runner), deps.Workspace.Close())
	})
}

func (c *command) printPlans(plans []retention.Plan) error {
	table := tabwriter.NewWriter(c.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "RULE\tDAYS\tBEFORE\tREMOVES\tBYTES\tHELD\tNOT YET\tALTERED")
	for _, p := range plans {
		days := strconv.FormatInt(p.Days, 10)
		if p.Hours > 0 {
			days = fmt.Sprintf("%d h", p.Hours)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\n", p.Rule, days, p.Before.UTC().Format(time.RFC3339), p.Due, p.Bytes, p.Held,
			p.Kept, p.Altered)
	}
	return table.Flush()
}

func (c *command) holdCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "hold", Short: "Keep execs from being removed by retention",
		Example: `  core-api audit hold add --project demo --reason "case 2026-17"`,
	}
	cmd.AddCommand(c.holdAdd(), c.holdList(), &cobra.Command{
		Use:     "remove ID",
		Short:   "Remove a hold; the next run removes what no other hold keeps",
		Example: "  core-api audit hold remove 0193f0c2-7a1e-7b52-9d7e-3f6c1f0a9b11",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withDatabase(cmd.Context(), func(_ settings.Settings, db store.Database) error {
				h, err := db.Retention().RemoveHold(cmd.Context(), args[0], byCommand)
				if err == nil {
					fmt.Fprintf(c.stdout, "The hold on %s %s is removed.\n", h.Kind, strconv.Quote(h.Value))
				}
				return err
			})
		},
	})
	return cmd
}

// byCommand is who adds and removes holds here; the administrative event names the user of the
// operating system.
const byCommand = "core-api"

func (c *command) holdAdd() *cobra.Command {
	values := map[retention.HoldKind]*string{}
	var reason string
	cmd := &cobra.Command{
		Use:   "add --reason WHY --project P | --user U | --task T | --exec ID",
		Short: "Keep the execs of a project, user or task, or one exec, and print the hold's id",
		Example: `  core-api audit hold add --project demo --reason "case 2026-17"
  core-api audit hold add --exec 0193f0c2-7a1e-7b52-9d7e-3f6c1f0a9b11 --reason "case 2026-17"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h := retention.Hold{ID: server.NewID(), Reason: reason, AddedBy: byCommand}
			for _, kind := range retention.HoldKinds {
				switch {
				case !cmd.Flags().Changed(string(kind)):
				case h.Kind != "":
					return fault.New(fault.InvalidRequest, "give one of --project, --user, --task and --exec; add a hold for each")
				default:
					h.Kind, h.Value = kind, *values[kind]
				}
			}
			if strings.TrimSpace(reason) == "" {
				return fault.New(fault.InvalidRequest,
					"give --reason: it is on record, for those who will ask whether the hold may be removed")
			}
			if h.Kind == "" {
				return fault.New(fault.InvalidRequest, "give one of --project, --user, --task and --exec")
			}
			if err := h.Check(); err != nil {
				return err
			}
			return c.withDatabase(cmd.Context(), func(_ settings.Settings, db store.Database) error {
				added, err := db.Retention().AddHold(cmd.Context(), h)
				if err == nil {
					fmt.Fprintln(c.stdout, added.ID)
				}
				return err
			})
		},
	}
	for _, kind := range retention.HoldKinds {
		values[kind] = cmd.Flags().String(string(kind), "", "the id of the "+string(kind))
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record (required)")
	return cmd
}

func (c *command) holdList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the holds, oldest first",
		Example: "  core-api audit hold list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withDatabase(cmd.Context(), func(_ settings.Settings, db store.Database) error {
				holds, err := db.Retention().Holds(cmd.Context(), retention.HoldCursor{}, retention.MaxHolds)
				if err != nil {
					return err
				}
				table := tabwriter.NewWriter(c.stdout, 0, 4, 2, ' ', 0)
				fmt.Fprintln(table, "ID\tHOLDS\tADDED\tBY\tREASON")
				for _, h := range holds {
					fmt.Fprintf(table, "%s\t%s %s\t%s\t%s\t%s\n", h.ID, h.Kind, verify.Printable(h.Value), h.AddedAt.Format(time.RFC3339),
						h.AddedBy, h.Reason)
				}
				return table.Flush()
			})
		},
	}
}
