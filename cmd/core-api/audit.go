package main

import "github.com/spf13/cobra"

func (c *command) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "Export and verify the record of what ran, and keep or remove it",
		Example: "  core-api audit verify --artifacts && echo verified",
	}
	cmd.AddCommand(c.retentionCommand(), c.holdCommand())
	cmd.AddCommand(c.auditKey(), c.auditExport(), c.auditVerify(), c.auditSpool())
	return cmd
}
