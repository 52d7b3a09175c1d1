package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"secbox/access/tokens"
	"secbox/audit/admin"
	"secbox/fault"
	"secbox/internal/buildinfo"
	"secbox/internal/statedir"
	"secbox/server"
	"secbox/settings"
	"secbox/store"
)

func (c *command) serveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Serve the API until a signal ends it",
		Example: `  core-api serve
  core-api serve --config /etc/secbox.yaml --addr 127.0.0.1:8003`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := c.settings()
			if err != nil {
				return err
			}
			log := newLogger(c.stderr, s)
			app, err := server.Start(cmd.Context(), s, c.environ, log)
			if err != nil {
				return err
			}
			<-cmd.Context().Done()
			log.Info("core-api ends; running execs may finish, and a second signal ends them at once", "patience", app.DrainTimeout)
			// A second SIGHUP is not one: a terminal that closes sends it, and then its shell does.
			again, stop := signal.NotifyContext(context.WithoutCancel(cmd.Context()), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return app.Shutdown(again)
		},
	}
}

// withDatabase calls f with the installation's database, which must exist. A server may use the
// embedded one at the same time.
func (c *command) withDatabase(ctx context.Context, f func(settings.Settings, store.Database) error) error {
	s, err := c.settings()
	if err != nil {
		return err
	}
	if err := server.NeedDatabase(s); err != nil {
		return err
	}
	return onDatabase(ctx, s, f)
}

// makingDatabase is withDatabase for commands that may run before the first start of a server. It
// reports that it creates the embedded database.
func (c *command) makingDatabase(ctx context.Context, f func(settings.Settings, store.Database) error) error {
	s, err := c.settings()
	if err != nil {
		return err
	}
	if s.DatabaseURL.Reveal() == "" {
		if server.NeedDatabase(s) != nil {
			fmt.Fprintf(c.stderr, "Making a new database in the state dir %s.\n", s.StateDir)
		}
		// Create the directory as the server does. A running server has locked it, which does not
		// matter here.
		if dir, err := statedir.Open(s.StateDir); err == nil {
			_ = dir.Close()
		} else if !fault.Is(err, fault.StateDirInUse) {
			return err
		}
	}
	return onDatabase(ctx, s, f)
}

func onDatabase(ctx context.Context, s settings.Settings, f func(settings.Settings, store.Database) error) error {
	db, err := store.Open(ctx, s.DatabaseURL.Reveal(), s.StateDir)
	if err != nil {
		return err
	}
	return errors.Join(f(s, db), db.Close())
}

func (c *command) migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database to this version's schema; serve does it too",
		Example: `  core-api migrate --state-dir /var/lib/secbox
  DATABASE_URL=postgres://… core-api migrate`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.makingDatabase(cmd.Context(), func(_ settings.Settings, db store.Database) error {
				if err := admin.Record(cmd.Context(), db.AdminEvents(), admin.SchemaMigrated, buildinfo.Version, nil); err != nil {
					return err
				}
				fmt.Fprintf(c.stdout, "The %s database has this version's schema.\n", db.Kind())
				return nil
			})
		},
	}
}

// printReport prints a report as JSON, or as text by print, and ends with exitBroken if something
// is broken.
func (c *command) printReport(asJSON bool, report any, print func() error, broken bool) error {
	if asJSON {
		print = func() error { return c.printJSON(report) }
	}
	err := print()
	if err == nil && broken {
		return exitBroken
	}
	return err
}

// printJSON prints a report as indented JSON.
func (c *command) printJSON(report any) error {
	encoder := json.NewEncoder(c.stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(report)
}

func (c *command) settingsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "settings",
		Short: "List every setting with its default and meaning; --json: the values in force, without secrets",
		Example: `  core-api settings
  core-api settings --config /etc/secbox.yaml --json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := c.settings()
			if err != nil {
				return err
			}
			if asJSON {
				return c.printJSON(map[string]any{"settings": s.Redacted(), "digest": s.Digest()})
			}
			table := tabwriter.NewWriter(c.stdout, 0, 4, 2, ' ', 0)
			fmt.Fprintln(table, "KEY\tENVIRONMENT\tDEFAULT\tMEANING")
			for _, d := range settings.Describe() {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", d.Key, d.Env, d.Default, d.Doc)
			}
			return table.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the values in force as JSON")
	return cmd
}

func (c *command) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Create, list and revoke bearer tokens", Example: "  core-api token create --role admin"}
	cmd.AddCommand(c.tokenCreate(), c.tokenList(), c.tokenRevoke())
	return cmd
}

func (c *command) tokenCreate() *cobra.Command {
	var spec tokens.Spec
	var role string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a token and print its secret, this once",
		Example: `  core-api token create --role worker --name ci --project demo
  core-api token create --role runner --user dan --name laptop > laptop.token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec.Role = tokens.Role(role)
			spec.Name = cmp.Or(spec.Name, role, "token") // without a role, only that is refused
			return c.makingDatabase(cmd.Context(), func(_ settings.Settings, db store.Database) error {
				token, secret, err := tokens.NewService(db.Tokens(), time.Now).Create(cmd.Context(), spec)
				if err != nil {
					return err
				}
				fmt.Fprintf(c.stderr, "Created token %s (%s). Its secret is shown only now:\n", token.ID, token.Role)
				fmt.Fprintln(c.stdout, secret)
				return nil
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&role, "role", "", "worker, auditor, agent-admin, admin or runner")
	flags.StringVar(&spec.Name, "name", "", "purpose of the token, shown in lists (default: the role)")
	flags.StringSliceVar(&spec.Projects, "project", nil, "only these projects (repeatable)")
	flags.StringSliceVar(&spec.Agents, "agent", nil, "only these agents (repeatable)")
	flags.StringSliceVar(&spec.Users, "for-user", nil, "only these users (repeatable)")
	flags.StringVar(&spec.UserID, "user", "", "for role runner: the user of the machine")
	return cmd
}

func (c *command) tokenList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List tokens, never their secrets",
		Example: "  core-api token list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withDatabase(cmd.Context(), func(_ settings.Settings, db store.Database) error {
				list, err := tokens.NewService(db.Tokens(), time.Now).List(cmd.Context())
				if err != nil {
					return err
				}
				table := tabwriter.NewWriter(c.stdout, 0, 4, 2, ' ', 0)
				fmt.Fprintln(table, "ID\tROLE\tNAME\tPROJECTS\tAGENTS\tUSERS\tCREATED\tREVOKED")
				for _, t := range list {
					revoked, users := "-", listOrAny(t.Users)
					if t.Role == tokens.Runner { // the user of the machine
						users = t.UserID
					}
					if t.Revoked() {
						revoked = t.RevokedAt.Format(time.RFC3339)
					}
					fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, t.Role, t.Name,
						listOrAny(t.Projects), listOrAny(t.Agents), users, t.CreatedAt.Format(time.RFC3339), revoked)
				}
				return table.Flush()
			})
		},
	}
}

func listOrAny(list []string) string {
	if len(list) == 0 {
		return "any"
	}
	return strings.Join(list, ",")
}

func (c *command) tokenRevoke() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID",
		Short:   "Revoke a token; it stops working at once",
		Example: "  core-api token revoke 0193f0c2-7a1e-7b52-9d7e-3f6c1f0a9b11",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withDatabase(cmd.Context(), func(s settings.Settings, db store.Database) error {
				service := tokens.NewService(db.Tokens(), time.Now)
				token, err := service.Revoke(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				fmt.Fprintf(c.stdout, "Token %s is revoked.\n", token.ID)
				needed, err := service.Any(cmd.Context())
				if err != nil || !needed {
					return err
				}
				usable, err := service.Usable(cmd.Context())
				if err == nil && !usable {
					fmt.Fprintln(c.stderr, "Warning: no valid token is left, and requests still need one. Create one with:",
						server.CreateAdminCommand(s))
				}
				return err
			})
		},
	}
}
