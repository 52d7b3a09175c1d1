package main

import "github.com/spf13/cobra"

func (c *command) doctorCommand() *cobra.Command {
	return &cobra.Command{Use: "doctor", Hidden: true}
}
