package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"secbox/fault"
	"secbox/sandbox/remote/machine"
)

type runnerOptions struct {
	server, token, tokenFile, workspace, name string
	allow                                     []string
	insecure                                  bool
}

func runnerCommand(getenv func(string) string) *cobra.Command {
	var o runnerOptions
	cmd := &cobra.Command{
		Use:   "runner",
		Short: "Serve a directory of this machine to a core-api, as its user's sandbox",
		Long: `Dials a core-api and serves --workspace to it, so that the user's agents can read and search its files; with --allow write they can change them, with
--allow exec run commands. The runner opens no port: it dials out, through routers and proxies. When the connection breaks, commands go on,
and their results are delivered on a new one. Ctrl-C ends the runner and all its commands.

Files are confined to the workspace, commands are not: they run as the user who started the runner, with that user's permissions.

The token (core-api token create --role runner --user NAME) comes from the environment variable ` + envToken + ` or a file. With --token other
users of this machine can read it in the process list.`,
		Example: `  mkdir -p ~/agent && SECBOX_TOKEN=… secbox runner --server wss://core-api.example.com --workspace ~/agent --allow exec,write`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := o.takeToken(getenv)
			if err != nil {
				return err
			}
			workspace, err := expandHome(o.workspace)
			if err != nil {
				return err
			}
			m, err := machine.New(machine.Config{
				Server: o.server, Token: token, Workspace: workspace, Name: o.name, Allow: o.allow, Version: version,
				Insecure: o.insecure, Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)),
			})
			if err != nil {
				return err
			}
			harden()
			return m.Run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.server, "server", defaultServer, "address of core-api: wss://, ws://, https:// or http://")
	flags.StringVar(&o.workspace, "workspace", "", "directory to serve; it must exist")
	flags.StringVar(&o.name, "name", "", "name of this machine (default: the host's name)")
	flags.StringSliceVar(&o.allow, "allow", nil,
		"permissions beside reading and searching files: exec, write, or both separated by a comma")
	flags.StringVar(&o.tokenFile, "token-file", "", "file that holds the token (default: the environment variable "+envToken+")")
	flags.StringVar(&o.token, "token", "", "the token; other users of this machine can read it in the process list")
	flags.BoolVar(&o.insecure, "insecure", false, "send the token over plain http to another machine")
	return cmd
}

// takeToken returns the token.
func (o *runnerOptions) takeToken(getenv func(string) string) (string, error) {
	if o.token != "" && o.tokenFile != "" {
		return "", fault.New(fault.InvalidRequest, "--token and --token-file exclude each other; use one of them")
	}
	if o.token != "" {
		return strings.TrimSpace(o.token), nil
	}
	token, err := readToken(getenv, o.tokenFile)
	if err == nil && token == "" {
		err = fault.New(fault.Unauthenticated,
			"no token in %s, and no --token-file; core-api makes one with: core-api token create --role runner --user NAME", envToken)
	}
	return token, err
}

// expandHome expands ~ in --workspace=~/agent, which shells do not.
func expandHome(path string) (string, error) {
	below, ok := strings.CutPrefix(path, "~/")
	if !ok {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fault.Wrap(fault.InvalidRequest, err,
			"the workspace %s is in your home directory, which is unknown (%s); give the whole path", path, err)
	}
	return filepath.Join(home, below), nil
}
