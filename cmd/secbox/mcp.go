package main

import (
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"secbox/fault"
	"secbox/sandbox/remote/machine"
)

const (
	defaultServer = "http://127.0.0.1:8003"
	envToken      = "SECBOX_TOKEN"
	maxTokenFile  = 4096 // bytes
)

type mcpOptions struct {
	connection
	project, names string
}

func mcpCommand(getenv func(string) string) *cobra.Command {
	o := mcpOptions{connection: connection{getenv: getenv}}
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Run an MCP server over stdio: the skills of a core-api as tools",
		Long: `Passes the messages of an MCP client on standard input to the /mcp of a core-api, and the answers to standard output. Logs go to standard
error. It ends when its standard input has ended and all that it asked for is answered.

The token comes from a file, the environment variable ` + envToken + ` or the login, never from the command line, where other users could read it.
A core-api without tokens needs none from its own machine.`,
		Example: "  SECBOX_TOKEN=… secbox mcp --server https://core-api.example.com --project demo",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			endpoint, token, err := o.reach()
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			return newBridge(endpoint, token, cmd.OutOrStdout(), log).run(cmd.Context(), cmd.InOrStdin())
		},
	}
	o.addTo(cmd.Flags())
	cmd.Flags().StringVar(&o.names, "names", "", "dotted: names of tools with dots, skill.shell.run instead of skill_shell_run")
	cmd.AddCommand(mcpInstallCommand(getenv))
	return cmd
}

// addTo adds the flags that say which server to use, and for which project.
func (o *mcpOptions) addTo(flags *pflag.FlagSet) {
	o.addFlags(flags)
	flags.StringVar(&o.project, "project", "",
		"project whose files the tools work on, unless a call names another (default: one for the token)")
}

// reach returns the address of /mcp and the token that may be sent there; the token is empty if
// there is none.
func (o *mcpOptions) reach() (*url.URL, string, error) {
	server, token, err := o.resolve()
	if err != nil {
		return nil, "", err
	}
	o.server = server
	u, err := o.endpoint()
	if err != nil {
		return nil, "", err
	}
	return u, token, o.mayCarry(u, token)
}

// endpoint returns the address of /mcp with the parameters from the flags.
func (o *mcpOptions) endpoint() (*url.URL, error) {
	u, err := url.Parse(o.server)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fault.New(fault.InvalidRequest, "--server %q is not an address; use one like %s", o.server, defaultServer)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fault.New(fault.InvalidRequest, "--server takes an address without user, query or fragment, like %s", defaultServer)
	}
	if o.names != "" && o.names != "dotted" && o.names != "underscore" {
		return nil, fault.New(fault.InvalidRequest, "--names %q is unknown; leave it out, or use dotted", o.names)
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/mcp") + "/mcp"
	query := url.Values{}
	if o.names != "" {
		query.Set("names", o.names)
	}
	if o.project != "" {
		query.Set("project_id", o.project)
	}
	u.RawQuery = query.Encode()
	return u, nil
}

// readToken returns the token in a file, or without one that in the environment; "" if there is
// none.
func readToken(getenv func(string) string, file string) (string, error) {
	token, from := getenv(envToken), envToken
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return "", fault.Wrap(fault.InvalidRequest, err, "cannot read the token file %s: %s", file, err)
		}
		defer f.Close()
		content, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1)) // it may be a device without an end
		if err != nil {
			return "", fault.Wrap(fault.InvalidRequest, err, "cannot read the token file %s: %s", file, err)
		}
		if len(content) > maxTokenFile {
			return "", fault.New(fault.InvalidRequest, "the token file %s has more than %d bytes; it must contain only a token", file,
				maxTokenFile)
		}
		token, from = string(withoutBOM(content)), file
		if strings.TrimSpace(token) == "" {
			return "", fault.New(fault.InvalidRequest, "the token file %s is empty", file)
		}
	}
	token = strings.TrimSpace(token)
	if !machine.ValidToken(token) {
		return "", fault.New(fault.InvalidRequest, "%s does not contain a token: a token is one word of printable ASCII", from)
	}
	return token, nil
}

// mayCarry refuses to send a token in plain text to another machine.
func (o *mcpOptions) mayCarry(endpoint *url.URL, token string) error {
	if token == "" || endpoint.Scheme == "https" || o.insecure || machine.IsLoopback(endpoint.Hostname()) {
		return nil
	}
	return fault.New(fault.Forbidden,
		"the token would go to %s in plain text, where others can read it; use https://, or --insecure if the network is safe",
		net.JoinHostPort(endpoint.Hostname(), endpoint.Port()))
}
