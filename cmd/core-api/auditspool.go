package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"secbox/audit"
	"secbox/audit/translog/verify"
	"secbox/fault"
	"secbox/settings"
	"secbox/store"
)

func (c *command) auditSpool() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "spool",
		Short: "List, store and discard results of execs that the database has not taken",
		Long: "When the database refuses the end of an exec, its node keeps the result in the state dir and tries again, at least every " +
			"30 seconds. These\n" +
			"commands are for results that it goes on refusing, and for damaged files. A server may run meanwhile.",
		Example: "  core-api audit spool list --state-dir /var/lib/secbox",
	}
	cmd.AddCommand(c.spoolList(), c.spoolStore(), c.spoolDiscard())
	return cmd
}

// spoolRow is a file of the spool as spool list --json prints it.
type spoolRow struct {
	File    string       `json:"file"`
	ExecID  string       `json:"exec_id"` // empty: no record can be read
	Status  audit.Status `json:"status"`
	EndedAt *time.Time   `json:"ended_at"`
	Problem string       `json:"problem"` // why no record can be read
}

func (c *command) spoolList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the files of the audit spool in the state dir",
		Example: "  core-api audit spool list --state-dir /var/lib/secbox --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := c.settings()
			if err != nil {
				return err
			}
			files, err := audit.ReadSpool(audit.SpoolDir(s.StateDir))
			if err != nil {
				return err
			}
			rows := make([]spoolRow, len(files))
			for i, f := range files {
				rows[i] = spoolRow{File: f.Name, ExecID: f.Record.ExecID, Status: f.Record.Status}
				if f.Err != nil {
					rows[i].Problem = f.Err.Error()
				} else {
					rows[i].EndedAt = new(f.Record.EndedAt.UTC())
				}
			}
			return c.printReport(asJSON, rows, func() error { return c.printSpool(rows) }, false)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the files as JSON")
	return cmd
}

func (c *command) printSpool(rows []spoolRow) error {
	if len(rows) == 0 {
		fmt.Fprintln(c.stdout, "The spool is empty.")
		return nil
	}
	table := tabwriter.NewWriter(c.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "FILE\tRESULT\tENDED\tPROBLEM")
	for _, r := range rows {
		status, ended, problem := string(r.Status), "-", "-"
		if r.EndedAt != nil {
			ended = r.EndedAt.Format(time.RFC3339)
		} else {
			status, problem = "-", verify.Printable(r.Problem)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", verify.Printable(r.File), status, ended, problem)
	}
	return table.Flush()
}

// withSpooled calls f with the file of the spool that a user names by its exec or its name.
func (c *command) withSpooled(ctx context.Context, name string, f func(db store.Database, dir string, file audit.SpooledFile) error) error {
	return c.withDatabase(ctx, func(s settings.Settings, db store.Database) error {
		dir := audit.SpoolDir(s.StateDir)
		files, err := audit.ReadSpool(dir)
		if err != nil {
			return err
		}
		for _, file := range files {
			if name == file.Name || name == strings.TrimSuffix(file.Name, filepath.Ext(file.Name)) {
				return f(db, dir, file)
			}
		}
		return fault.New(fault.NotFound, "the spool %s has no result of %s: the database has it, or another node does; `core-api audit "+
			"spool list` shows what is there", dir, printable(name))
	})
}

func (c *command) spoolStore() *cobra.Command {
	return &cobra.Command{
		Use:   "store EXEC_ID",
		Short: "Write a result to the database now, and print why it is refused",
		Long: "Writes a result of the spool to the database and removes its file. If the database does not have the exec, as after the " +
			"restore of a\n" +
			"backup, it gets the whole record, with the events of its beginning and its end as of now.",
		Example: "  core-api audit spool store 0193f0c2-7a1e-7b52-9d7e-3f6c1f0a9b11",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withSpooled(cmd.Context(), args[0], func(db store.Database, dir string, file audit.SpooledFile) error {
				if file.Err != nil {
					return fault.Wrap(fault.InvalidRequest, file.Err,
						"no record can be read from %s: %v; repair it, or end its exec with `core-api audit spool discard`", file.Name,
						file.Err)
				}
				status, err := audit.StoreSpooled(cmd.Context(), db.Audit(), dir, file)
				if err != nil {
					return err
				}
				fmt.Fprintf(c.stdout, "Exec %s is on record as %s.\n", file.Record.ExecID, status)
				return nil
			})
		},
	}
}

func (c *command) spoolDiscard() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "discard EXEC_ID|FILE",
		Short: "Remove a file of the spool, and end its exec as lost",
		Long: "Removes a file of the spool, with all that is in it if it is a directory, and ends its exec as lost if its record is " +
			"open. Put -- before a\nname that begins with -.",
		Example: "  core-api audit spool discard 0193f0c2-7a1e-7b52-9d7e-3f6c1f0a9b11 --force",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withSpooled(cmd.Context(), args[0], func(db store.Database, dir string, file audit.SpooledFile) error {
				if file.Err == nil && !force {
					return fault.New(fault.InvalidRequest, "%s holds the result of exec %s (%s): store it with `core-api audit spool "+
						"store`, or give --force to lose it", file.Name, file.Record.ExecID, file.Record.Status)
				}
				if err := audit.DiscardSpooled(cmd.Context(), db.Audit(), dir, file); err != nil {
					return err
				}
				fmt.Fprintf(c.stdout, "%s is removed.\n", printable(file.Name))
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also if a result can be read from the file")
	return cmd
}
