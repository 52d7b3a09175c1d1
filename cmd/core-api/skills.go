package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"secbox/policy"
	"secbox/skills"
)

func (c *command) skillsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "skills", Short: "Check and repair skills", Example: "  core-api skills lint my-skills"}
	cmd.AddCommand(c.skillsLint(), c.skillsRepair())
	return cmd
}

// exitBroken reports a broken skill. Errors of the command itself have other codes.
const exitBroken exitCode = 1

func (c *command) skillsLint() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "lint DIR",
		Short: "Check the folder of a skill, or a folder of skills, as the server does; needs no engine and no database",
		Long: "Check the folder of a skill, or a folder of skills, as the server does when it loads them.\n\n" +
			"Limits and images are compared with the settings: --config, environment and flags apply as for serve.\n" +
			"Each line names the file, the place in it as a JSON pointer, and the problem. The exit code is 0 if all skills are usable\n" +
			"(warnings do not count), 1 if one is broken, and 2 if DIR contains no skill.",
		Example: `  core-api skills lint my-skills
  core-api skills lint my-skills/word_count --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := c.settings()
			if err != nil {
				return err
			}
			allowed, err := policy.New(s.PolicyConfig())
			if err != nil {
				return err
			}
			report, err := skills.Lint(args[0], allowed)
			if err != nil {
				return err
			}
			return c.printReport(asJSON, report, func() error { return c.printLint(report) }, report.Broken() > 0)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	return cmd
}

func (c *command) printLint(report skills.LintReport) error {
	for _, folder := range report.Folders {
		for _, p := range folder.Problems {
			fmt.Fprintf(c.stdout, "%s: %s\n", problemLocation(folder.Folder, p), p.Reason)
		}
		for _, p := range folder.Warnings {
			fmt.Fprintf(c.stdout, "%s: warning: %s\n", problemLocation(folder.Folder, p), p.Reason)
		}
	}
	_, err := fmt.Fprintf(c.stdout, "%s: %d broken, %s.\n", many(len(report.Folders), "skill"), report.Broken(),
		many(report.Warnings(), "warning"))
	return err
}

// problemLocation returns folder/manifest.json#/pointer, as far as it is known.
func problemLocation(folder string, p skills.Problem) string {
	place := folder
	if p.File != "" {
		place += "/" + p.File
	}
	if p.Pointer != "" {
		place += "#" + p.Pointer
	}
	return place
}

func many(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
