// Command core-api reads the command line and the settings and runs package server. Its other
// subcommands maintain the same installation: migrate, doctor, token, people, node, image,
// settings, skills, audit. It must not know how requests are served.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"secbox/audit/admin"
	"secbox/fault"
	"secbox/internal/buildinfo"
	"secbox/internal/cmdline"
	commands "secbox/sandbox/process"
	"secbox/settings"
)

func main() {
	commands.Main() // this program runs the commands of the backend none in another process
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// endings returns the signals that end the program. SIGHUP, of a terminal that closes, is one,
// unless the starter ignores it, as nohup does.
func endings() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// run returns the exit code.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	c := &command{environ: environ, stdout: stdout, stderr: stderr}
	root := c.root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	called, err := cmdline.Execute(admin.By(ctx, admin.Actor{Type: admin.ByCommand, ID: admin.CommandID, Name: osUser()}), root)
	if err == nil {
		return 0
	}
	var quiet exitCode
	if errors.As(err, &quiet) {
		return int(quiet)
	}
	return complain(stderr, called.CommandPath(), err)
}

// osUser returns the name of the user who runs this program. The environment does not decide it.
func osUser() string {
	if uid := os.Getuid(); uid >= 0 { // not on Windows
		if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
			return u.Username
		}
		return "uid " + strconv.Itoa(uid)
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

// exitCode ends the program without a message.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// complain prints an error of a command and returns its exit code.
func complain(w io.Writer, path string, err error) int {
	var e *fault.Error
	if !errors.As(err, &e) { // an error of cobra: a wrong flag or subcommand
		fmt.Fprintln(w, "core-api:", err)
		fmt.Fprintf(w, "Try `%s --help`.\n", path)
		return 2
	}
	fmt.Fprintln(w, "core-api:", e.Message)
	if len(e.Fields) > 1 {
		for _, f := range e.Fields {
			if !strings.Contains(e.Message, f.Reason) { // some messages contain the list
				fmt.Fprintf(w, "  %s: %s\n", f.Field, f.Reason)
			}
		}
	}
	if e.Code == fault.Internal && e.Err != nil {
		fmt.Fprintln(w, "  cause:", e.Err)
	}
	return fault.ExitCode(e.Code)
}

// command has what all subcommands share.
type command struct {
	environ        []string
	stdout, stderr io.Writer

	file      string
	overrides settings.Overrides
}

func (c *command) root() *cobra.Command {
	root := &cobra.Command{
		Use:     "core-api",
		Short:   "The server of secbox: runs commands for AI agents in throw-away Docker containers and records what ran",
		Version: buildinfo.Version,
		Example: `  core-api doctor
  core-api serve --config /etc/secbox.yaml`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&c.file, "config", "", "settings file (YAML)")
	flags.StringVar(&c.overrides.Addr, "addr", "", "address to listen on (default 127.0.0.1:8003)")
	flags.StringVar(&c.overrides.StateDir, "state-dir", "", "private directory of this node, on a local disk")
	flags.StringVar(&c.overrides.WorkspaceRoot, "workspace-root", "", "directory that holds the projects")
	flags.StringVar(&c.overrides.SkillsDir, "skills-dir", "", "folder of skills in addition to the built-in ones")
	flags.StringVar(&c.overrides.DatabaseURL, "database-url", "",
		"postgres://… (default: SQLite in the state dir); prefer DATABASE_URL, which process lists do not show")
	flags.StringVar(&c.overrides.LogLevel, "log-level", "", "debug, info, warn or error")
	flags.StringVar(&c.overrides.LogFormat, "log-format", "", "text or json")
	root.AddCommand(c.serveCommand(), c.migrateCommand(), c.tokenCommand(), c.peopleCommand(), c.nodeCommand(), c.imageCommand(),
		c.settingsCommand(), c.doctorCommand(), c.skillsCommand(), c.auditCommand(), &cobra.Command{
			Use: "version", Short: "Print the version and the commit it was built from", Example: "  core-api version", Args: cobra.NoArgs,
			Run: func(*cobra.Command, []string) { fmt.Fprintln(c.stdout, "core-api", buildinfo.Describe()) },
		})
	return root
}

// settings loads the effective settings.
func (c *command) settings() (settings.Settings, error) {
	return settings.Load(c.file, c.environ, c.overrides)
}
