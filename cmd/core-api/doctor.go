package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"secbox/audit"
	"secbox/engine"
	"secbox/fault"
	"secbox/health"
	"secbox/server"
	"secbox/settings"
	"secbox/store"
)

func (c *command) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether an exec could run, and that the engine enforces every limit",
		Long: "Checks whether an exec could run, and tests with jobs in throw-away containers that the engine enforces the memory, " +
			"process, CPU and\n" +
			"network limits and the other hardening. Says whether waiting containers serve any project, or why not. If they do, it tests " +
			"that they see\n" +
			"nothing of another project. The exit code is 0 only if an exec could run and every probe passed.\n" +
			"A server may run at the same time.",
		Example: `  core-api doctor
  core-api doctor --config /etc/secbox.yaml --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := c.settings()
			if err != nil {
				return err
			}
			diagnosis, err := c.diagnose(cmd.Context(), s)
			if err != nil {
				return err
			}
			write := diagnosis.WriteText
			if asJSON {
				write = diagnosis.WriteJSON
			}
			if err := write(c.stdout); err != nil {
				return err
			}
			if !diagnosis.OK() {
				return exitCode(1)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the diagnosis as JSON")
	return cmd
}

func (c *command) diagnose(ctx context.Context, s settings.Settings) (d health.Diagnosis, err error) {
	log := slog.New(slog.DiscardHandler) // the diagnosis has the errors
	deps, err := server.NewDeps(s, c.environ)
	if err != nil {
		return d, err
	}
	if err := deps.OpenWorkspace(); err != nil {
		return d, err
	}
	if err := deps.OpenSkills(log); err != nil {
		return d, err
	}
	kind := "sqlite"
	if s.DatabaseURL.Reveal() != "" {
		kind = "postgres"
	}
	dir, err := os.MkdirTemp("", "secbox-doctor-")
	if err != nil {
		return d, fault.Wrap(fault.Internal, err, "cannot make a temporary directory")
	}
	defer os.RemoveAll(dir)
	spool := func() (audit.Unstored, error) { return audit.LookAt(audit.SpoolDir(s.StateDir)) }
	run := func(database health.Database, auditLog func(context.Context) (health.AuditLog, error)) error {
		node := "doctor-" + server.NewID()
		e, err := deps.NewEngine(engine.Identity{Installation: "doctor", Node: node}, dir, log)
		if err != nil {
			return err
		}
		checker := deps.NewChecker(database, kind, auditLog, nil, spool, node, log)
		d = health.NewDoctor(health.DoctorConfig{
			Checker: checker, Engine: e, Workspace: deps.Workspace, Now: time.Now,
			Share: func(ctx context.Context, spec engine.Spec) (engine.Engine, string) {
				pool, because := deps.Share(ctx, e, node, spec,
					slog.New(slog.NewTextHandler(c.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
				if pool == nil {
					return nil, because
				}
				return pool, ""
			},
		}).Run(ctx)
		return e.Close()
	}
	if errors.Is(server.NeedDatabase(s), fs.ErrNotExist) { // the server creates it
		err := run(nil, nil)
		return d, err
	}
	ran := false
	err = c.withDatabase(ctx, func(_ settings.Settings, db store.Database) error {
		ran = true
		auditLog, err := server.CompareLog(ctx, s, db)
		if err != nil { // the database does not answer, and is checked
			auditLog = nil
		}
		return run(db.Audit(), auditLog)
	})
	if !ran { // the database could not be opened; the other checks can still run
		err = run(health.Failing{Err: err}, nil)
	}
	return d, err
}
