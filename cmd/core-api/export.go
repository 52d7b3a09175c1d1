package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"secbox/audit"
	"secbox/audit/export"
	"secbox/audit/translog"
	"secbox/fault"
	"secbox/settings"
	"secbox/store"
)

func (c *command) auditExport() *cobra.Command {
	asked := map[string]*string{}
	var output string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write all records that match, oldest first, and the checkpoint that covers them",
		Long: `Writes the records of execs as JSON Lines, as CSV for spreadsheets, or as OCSF events, like GET /audit/export. It may run beside a server, and changes nothing; the export itself is an
administrative event. An export without its last element, the end with the checkpoint, was cut off.`,
		Example: `  core-api audit export > records.jsonl
  core-api audit export --project-id demo --status failed --since 7d --format csv --output failed.csv`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			get := func(name string) string {
				if p := asked[name]; p != nil {
					return *p
				}
				return ""
			}
			var bad fault.Fields
			q := export.ParseQuery(get, time.Now(), &bad)
			if err := bad.Err(); err != nil {
				return err
			}
			return c.withDatabase(cmd.Context(), func(_ settings.Settings, db store.Database) error {
				x := export.Exporter{Records: db.Audit(), Log: translog.Log{Store: db.TransparencyLog()}, Events: db.AdminEvents()}
				return writeFile(output, c.stdout, func(w io.Writer) error {
					_, err := x.Write(cmd.Context(), w, q)
					return err
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&output, "output", "-", "a new file; - is the standard output")
	for _, p := range append(audit.FilterParams(), export.Params()...) {
		asked[p.Name] = flags.String(strings.ReplaceAll(p.Name, "_", "-"), "", p.Meaning)
	}
	return cmd
}

// writeFile writes to stdout if path is -, else to a new file that only this user can read. It
// removes the file when write fails.
func writeFile(path string, stdout io.Writer, write func(io.Writer) error) error {
	if path == "-" {
		return write(stdout)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fault.Wrap(fault.InvalidRequest, err, "cannot create the file: %s; name a new one in --output", fault.Reason(err))
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
