package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"secbox/fault"
	"secbox/server"
	"secbox/settings"
	"secbox/store"
	"secbox/translog"
)

func (c *command) auditCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Export and verify the record of what ran, and keep or remove it"}
	cmd.AddCommand(c.retentionCommand(), c.holdCommand())
	cmd.AddCommand(&cobra.Command{
		Use:   "key",
		Short: "Print the public key of the transparency log, for auditors; run it on the node that has the log's key",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withDatabase(cmd.Context(), func(s settings.Settings, db store.Database) error {
				installation, err := db.Audit().InstallationID(cmd.Context())
				if err != nil {
					return err
				}
				state, err := db.TransparencyLog().State(cmd.Context())
				if err != nil {
					return err
				}
				key, err := server.LogKey(s, translog.Origin(installation), state.VerifierKey != "")
				if err != nil {
					return err
				}
				if state.VerifierKey != "" && state.VerifierKey != key.Verifier {
					return fault.New(fault.InvalidSettings, "the database says that the transparency log was begun with another key than this node's: %s", state.VerifierKey)
				}
				fmt.Fprintln(c.stdout, key.Verifier)
				return nil
			})
		},
	})
	cmd.AddCommand(c.auditExport(), c.auditVerify())
	return cmd
}
