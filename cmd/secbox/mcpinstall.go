package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"secbox/fault"
	"secbox/mcp/hosts"
)

// toolName matches the names of tools that all hosts take.
var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// answerTime is how long mcp install waits for the list of tools.
const answerTime = 20 * time.Second

type installOptions struct {
	mcpOptions
	host, name, file string
	print            bool
}

func mcpInstallCommand(getenv func(string) string) *cobra.Command {
	o := installOptions{mcpOptions: mcpOptions{connection: connection{getenv: getenv}}}
	cmd := &cobra.Command{
		Use:   "install --for HOST",
		Short: "Add secbox mcp to the configuration of an MCP host",
		Long: `Lists the tools of the server, then adds an entry to the configuration file of an MCP host, which starts "secbox mcp" from then on. Other
entries and comments stay, and the former file is kept beside the new one with the ending ` + hosts.BackupEnding + `.

HOST is one of ` + hostNames() + `.

The token stays out of the command line: the entry names the file of --token-file, or has the token of the environment variable ` + envToken + `,
and only you may read the configuration then. After "secbox login" it needs neither.`,
		Example: `  secbox mcp install --for claude-desktop --project demo
  secbox mcp install --for vscode --file .vscode/mcp.json --token-file ~/.secbox-token
  secbox mcp install --for codex --print`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	flags := cmd.Flags()
	o.addTo(flags)
	flags.StringVar(&o.host, "for", "", "the host: "+hostNames())
	flags.StringVar(&o.name, "name", "secbox", "name of the entry, which the host shows before the names of tools")
	flags.StringVar(&o.file, "file", "", "the configuration `FILE` (default: the host's own for this user)")
	flags.BoolVar(&o.print, "print", false, "print the entry, and change no file")
	return cmd
}

func (o *installOptions) run(cmd *cobra.Command) error {
	h, ok := hosts.Named(o.host)
	if !ok {
		return fault.New(fault.InvalidRequest, "--for %q is no host; use one of %s, or copy what --print shows for one of them", o.host, hostNames())
	}
	if !toolName.MatchString(o.name) {
		return fault.New(fault.InvalidRequest, "--name %q is not a name for hosts; use letters, digits, _ and -, at most 64", o.name)
	}
	var err error
	if o.tokenFile != "" { // the host has another working directory
		if o.tokenFile, err = filepath.Abs(o.tokenFile); err != nil {
			return fault.Wrap(fault.InvalidRequest, err, "cannot make --token-file %s absolute: %s", o.tokenFile, err)
		}
	}
	u, token, err := o.reach()
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fault.Wrap(fault.Internal, err, "cannot find the path of this program: %s", err)
	}
	tools, err := countTools(cmd.Context(), u, token)
	if err != nil {
		return err
	}
	e := hosts.Entry{Name: o.name, Command: program, Args: o.arguments(), TokenVariable: envToken}
	if o.tokenFile == "" && o.getenv(envToken) != "" { // the program that the host starts finds a login
		e.Token = token
	}
	if o.print {
		text, err := h.Add(nil, e)
		if err != nil {
			return err
		}
		fmt.Fprint(cmd.OutOrStdout(), string(text))
		return nil
	}
	file := o.file
	if file == "" {
		if file, err = h.File(runtime.GOOS, o.getenv); err != nil {
			return err
		}
	}
	backup, err := hosts.Change(file, e.Token != "", func(old []byte) ([]byte, error) { return h.Add(old, e) })
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s now has %s: %d tools of %s. %s\n", file, o.name, tools, u.Scheme+"://"+u.Host, h.Next)
	if backup != "" {
		fmt.Fprintf(cmd.OutOrStdout(), "The former file is %s.\n", backup)
	}
	return nil
}

func hostNames() string { return strings.Join(hosts.Names(), ", ") }

// arguments returns the arguments with which a host starts this program.
func (o *installOptions) arguments() []string {
	args := []string{"mcp", "--server", o.server}
	if o.project != "" {
		args = append(args, "--project", o.project)
	}
	if o.tokenFile != "" {
		args = append(args, "--token-file", o.tokenFile)
	}
	if o.insecure {
		args = append(args, "--insecure")
	}
	return args
}

// boundedBuffer keeps what a server answers, up to maxMessage bytes.
type boundedBuffer struct{ bytes.Buffer }

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxMessage {
		return 0, errTooLong
	}
	return b.Buffer.Write(p)
}

// countTools returns how many tools a server offers. It is an error if the server offers none, or
// one whose name hosts refuse.
func countTools(ctx context.Context, u *url.URL, token string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var answers boundedBuffer
	log := slog.New(slog.DiscardHandler) // the answers have the errors
	err := newBridge(u, token, &answers, log).run(ctx, strings.NewReader(
		`{"jsonrpc": "2.0", "id": "", "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, `+
			`"clientInfo": {"name": "secbox", "version": "`+version+`"}}}`+"\n"+
			`{"jsonrpc": "2.0", "method": "notifications/initialized"}`+"\n"+
			`{"jsonrpc": "2.0", "id": "tools", "method": "tools/list"}`+"\n"))
	if err != nil {
		return 0, err
	}
	var answer struct {
		ID     string `json:"id"`
		Result struct {
			Tools []struct {
				Name string `json:"name"`
			} `json:"tools"`
		} `json:"result"`
		Error struct {
			Message string `json:"message"`
			Data    struct {
				Code fault.Code `json:"code"`
			} `json:"data"`
		} `json:"error"`
	}
	for line := range bytes.Lines(answers.Bytes()) {
		if json.Unmarshal(line, &answer) == nil && answer.Error.Message != "" {
			return 0, fault.New(cmp.Or(answer.Error.Data.Code, fault.EngineUnavailable), "%s", answer.Error.Message)
		}
	}
	if answer.ID != "tools" || len(answer.Result.Tools) == 0 {
		return 0, fault.New(fault.EngineUnavailable, "%s://%s lists no tools; core-api doctor on its machine says why", u.Scheme, u.Host)
	}
	for _, t := range answer.Result.Tools {
		if !toolName.MatchString(t.Name) {
			return 0, fault.New(fault.InvalidRequest, "hosts refuse the name of the tool %q; install a newer core-api", t.Name)
		}
	}
	return len(answer.Result.Tools), nil
}
