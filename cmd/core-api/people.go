package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"secbox/access/sessions"
	"secbox/access/tokens"
	"secbox/settings"
	"secbox/store"
)

func (c *command) peopleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "people", Short: "List, block and unblock people who sign in to the console by single sign-on",
		Example: `  core-api people block "oidc:https://idp.example#ada"`,
	}
	cmd.AddCommand(c.peopleList(),
		c.peopleChange("block", "End the sessions of a person, who cannot sign in again", (*sessions.Service).Block,
			"%s is blocked, and the sessions of the person have ended. Tokens that the person created stay valid: see core-api token "+
				"list.\n"),
		c.peopleChange("unblock", "Let a person sign in again", (*sessions.Service).Unblock, "%s may sign in again.\n"))
	return cmd
}

// personRow is a person as people list --json prints it.
type personRow struct {
	ID        string      `json:"id"`
	Name      string      `json:"name"`
	Role      tokens.Role `json:"role"`
	Sessions  int         `json:"sessions"` // that are open
	FirstAt   time.Time   `json:"first_at"`
	SeenAt    time.Time   `json:"seen_at"`
	BlockedAt *time.Time  `json:"blocked_at"` // null: the person may sign in
}

func (c *command) peopleList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List people with their roles and open sessions, the latest to sign in for the first time first",
		Example: `  core-api people list
  core-api people list --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withDatabase(cmd.Context(), func(_ settings.Settings, db store.Database) error {
				people, err := allPeople(cmd.Context(), peopleOf(db))
				if err != nil {
					return err
				}
				return c.printReport(asJSON, people, func() error { return c.printPeople(people) }, false)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the people as JSON")
	return cmd
}

func (c *command) printPeople(people []personRow) error {
	table := tabwriter.NewWriter(c.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tROLE\tNAME\tSESSIONS\tFIRST SIGN-IN\tLAST SIGN-IN\tBLOCKED")
	for _, p := range people {
		blocked := "-"
		if p.BlockedAt != nil {
			blocked = p.BlockedAt.Format(time.RFC3339)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", printable(p.ID), cmp.Or(printable(string(p.Role)), "-"), printable(p.Name),
			p.Sessions,
			p.FirstAt.Format(time.RFC3339), p.SeenAt.Format(time.RFC3339), blocked)
	}
	return table.Flush()
}

// printable returns the words of a provider without characters that change a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// peopleOf returns the people of the installation, also the people of a former provider.
func peopleOf(db store.Database) *sessions.Service {
	return sessions.New(db.Sessions(), tokens.NewService(db.Tokens(), time.Now), time.Now)
}

// peoplePage is how many people are read at once.
const peoplePage = 500

func allPeople(ctx context.Context, s *sessions.Service) ([]personRow, error) {
	rows, after := []personRow{}, ""
	for {
		page, err := s.People(ctx, after, peoplePage)
		if err != nil {
			return nil, err
		}
		for _, p := range page {
			row := personRow{ID: p.ID, Name: p.Name, Role: p.Role, Sessions: p.Sessions, FirstAt: p.FirstAt.UTC(), SeenAt: p.SeenAt.UTC()}
			if !p.BlockedAt.IsZero() {
				row.BlockedAt = new(p.BlockedAt.UTC())
			}
			rows = append(rows, row)
		}
		if len(page) < peoplePage {
			return rows, nil
		}
		after = page[len(page)-1].ID
	}
}

func (c *command) peopleChange(use, short string, change func(*sessions.Service, context.Context, string) error,
	done string,
) *cobra.Command {
	return &cobra.Command{
		Use:     use + " ID",
		Short:   short,
		Example: "  core-api people " + use + ` "oidc:https://idp.example#ada"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withDatabase(cmd.Context(), func(_ settings.Settings, db store.Database) error {
				err := change(peopleOf(db), cmd.Context(), args[0])
				if err == nil {
					fmt.Fprintf(c.stdout, done, printable(args[0]))
				}
				return err
			})
		},
	}
}
