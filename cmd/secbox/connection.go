package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	client "secbox/clients/go"
	"secbox/fault"
)

const (
	envServer  = "SECBOX_SERVER"
	envProject = "SECBOX_PROJECT"
	envConfig  = "SECBOX_CONFIG" // the path of the user's configuration

	defaultProject = "default"
)

// login is the user's configuration, which `secbox login` writes.
type login struct {
	Server string `json:"server"`
	Token  string `json:"token,omitempty"`
}

// loginPath returns the path of the user's configuration.
func loginPath(getenv func(string) string) (string, error) {
	if path := getenv(envConfig); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fault.Wrap(fault.InvalidRequest, err, "the directory of your configuration is unknown (%s); set %s to a file", err, envConfig)
	}
	return filepath.Join(dir, "secbox", "login.json"), nil
}

// readLogin returns the user's configuration; empty if there is none.
func readLogin(getenv func(string) string) (l login, err error) {
	path, err := loginPath(getenv)
	if err != nil {
		return login{}, nil //nolint:nilerr // without a home there is no configuration
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return login{}, nil
	}
	if err == nil {
		defer f.Close()
		err = json.NewDecoder(io.LimitReader(f, 2*maxTokenFile)).Decode(&l)
	}
	if err != nil {
		return login{}, fault.Wrap(fault.InvalidRequest, err, "cannot read %s: %s; run `secbox login` again", path, err)
	}
	return l, nil
}

// connection is how a command reaches core-api. The flag, the environment or the login names the
// server. The token comes from a file, the environment or the login to this server.
type connection struct {
	getenv            func(string) string
	server, tokenFile string
	insecure          bool
}

func (c *connection) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.server, "server", "", "address of core-api (default: "+envServer+", the login, or "+defaultServer+")")
	flags.StringVar(&c.tokenFile, "token-file", "", "file that holds the token (default: "+envToken+", or the login)")
	flags.BoolVar(&c.insecure, "insecure", false, "send the token over plain http to another machine")
}

// resolve returns the address and the token.
func (c *connection) resolve() (server, token string, err error) {
	saved, err := readLogin(c.getenv)
	if err != nil {
		return "", "", err
	}
	server = first(c.server, c.getenv(envServer), saved.Server, defaultServer)
	token, err = readToken(c.getenv, c.tokenFile)
	if token == "" && strings.TrimSuffix(server, "/") == strings.TrimSuffix(saved.Server, "/") {
		token = saved.Token
	}
	return server, token, err
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// open returns a client of the core-api.
func (c *connection) open() (*client.Client, error) {
	server, token, err := c.resolve()
	if err != nil {
		return nil, err
	}
	api, err := client.New(client.Config{Server: server, Token: token, Insecure: c.insecure, UserAgent: "secbox/" + version})
	if err != nil {
		return nil, fault.New(fault.InvalidRequest, "%s", err)
	}
	return api, nil
}

// exitCode of errors that are neither a refusal nor a wrong command line.
const exitFailed = 1

// verb adapts a command that uses core-api to cobra: of its errors the message is shown, with the
// exit code of the refusal.
func verb(c *connection, do func(cmd *cobra.Command, api *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		api, err := c.open()
		if err == nil {
			err = do(cmd, api, args)
		}
		return interrupted(cmd, shown(err))
	}
}

// interrupted gives an error after Ctrl-C the exit code of shells.
func interrupted(cmd *cobra.Command, err error) error {
	if err == nil || cmd.Context().Err() == nil {
		return err
	}
	if failed, ok := errors.AsType[exit](err); ok {
		return exit{exitCanceled, failed.message}
	}
	return err
}

// shown gives an error an exit code.
func shown(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if _, ok := errors.AsType[exit](err); ok {
		return err
	}
	if refused, ok := errors.AsType[*client.Error](err); ok {
		return exit{refusalCode(refused), messageOf(err)}
	}
	return exit{exitFailed, err.Error()}
}

// messageOf returns the message of an error. A refused token has the places of tokens beside it.
func messageOf(err error) string {
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.Status == http.StatusUnauthorized {
		return withTokenHint(err.Error())
	}
	return err.Error()
}

func withTokenHint(text string) string {
	return text + " (secbox reads the token from --token-file, " + envToken + " or the login of `secbox login`)"
}

// inPlaces names the places of a list in a refusal, such as inputs[0], as the user knows them.
func inPlaces(err error, list string, name func(int) string) error {
	refused, ok := errors.AsType[*client.Error](err)
	if !ok {
		return err
	}
	named := func(text string) string {
		before, rest, found := strings.Cut(text, list+"[")
		number, after, closed := strings.Cut(rest, "]")
		i, err := strconv.Atoi(number)
		if !found || !closed || err != nil {
			return text
		}
		if field, ok := strings.CutPrefix(after, "."); ok {
			after = ": " + field
		}
		return before + name(i) + after
	}
	refused.Detail = named(refused.Detail)
	for i, f := range refused.Fields {
		refused.Fields[i].Field = named(f.Field)
	}
	return err
}

// withoutBOM removes the byte order mark that editors on Windows put before a text.
func withoutBOM(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\ufeff")) }

func refusalCode(e *client.Error) int {
	switch e.Code {
	case client.Unreachable, client.NotCoreAPI:
		return exitFailed
	}
	return fault.ExitCode(fault.Code(e.Code))
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// project returns the project of a command without --project.
func project(getenv func(string) string, flag string) string {
	return first(flag, getenv(envProject), defaultProject)
}

// filter collects the values of flags that were set.
func filter(pairs ...string) url.Values {
	out := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out.Set(pairs[i], pairs[i+1])
		}
	}
	return out
}
