package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	client "secbox/clients/go"
)

func policyCommand(getenv func(string) string) *cobra.Command {
	c := connection{getenv: getenv}
	var l limits
	var project_, skill string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "policy", Short: "Show the limits that a command would get, and where each comes from", Args: cobra.NoArgs,
		Example: "  secbox policy --memory 2g --timeout 10m",
		RunE: verb(&c, func(cmd *cobra.Command, api *client.Client, _ []string) error {
			snapshot, err := api.Resolve(cmd.Context(), client.Request{
				Project: project(getenv, project_), SkillID: skill, Image: l.image,
				Policy: l.policy(),
			})
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), snapshot)
			}
			out := table(cmd)
			fmt.Fprintln(out, "FIELD\tVALUE\tFROM")
			if err := writePolicy(out, "", snapshot); err != nil {
				return err
			}
			return out.Flush()
		}),
	}
	cmd.Flags().StringVarP(&project_, "project", "p", "", "project of the command")
	cmd.Flags().StringVar(&skill, "skill", "", "skill, whose manifest has limits, too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "in JSON")
	l.addFlags(cmd.Flags())
	c.addFlags(cmd.Flags())
	return cmd
}

// writePolicy writes the fields of a policy as rows of a table.
func writePolicy(out io.Writer, indent string, snapshot json.RawMessage) error {
	var policy struct {
		Fields map[string]struct {
			Value json.RawMessage `json:"value"`
			Layer string          `json:"layer"`
		} `json:"fields"`
	}
	if err := json.Unmarshal(snapshot, &policy); err != nil {
		return fmt.Errorf("the policy cannot be read: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(policy.Fields)) {
		field := policy.Fields[name]
		fmt.Fprintf(out, "%s%s\t%s\t%s\n", indent, name, plain(string(field.Value)), field.Layer)
	}
	return nil
}

// writeJSON writes a server's JSON on a line.
func writeJSON(out io.Writer, text json.RawMessage) error {
	return encodeLines(out, []json.RawMessage{text})
}

// encodeLines writes each item as JSON on a line.
func encodeLines[T any](out io.Writer, items []T) error {
	encoder := json.NewEncoder(harmless{out, true})
	encoder.SetEscapeHTML(false)
	for _, item := range items {
		if err := encoder.Encode(item); err != nil {
			return err
		}
	}
	return nil
}
