package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	client "secbox/clients/go"
	"secbox/fault"
	"secbox/sandbox/remote/machine"
)

func loginCommand(getenv func(string) string) *cobra.Command {
	c := connection{getenv: getenv}
	var forget bool
	cmd := &cobra.Command{
		Use: "login [SERVER]", Short: "Keep the address of a core-api and a token for it, for the other commands",
		Long: `Asks for the token, or reads it from --token-file, the environment variable ` + envToken + ` or a pipe; checks it at the server; and writes both to your
configuration, which only you can read. An empty token is for a core-api that needs none.`,
		Example: `  secbox login https://core-api.example.com
  secbox login --forget`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := loginPath(getenv)
			if err != nil {
				return err
			}
			if forget {
				if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
					return shown(err)
				}
				fmt.Fprintln(cmd.OutOrStdout(), "forgotten")
				return nil
			}
			server := first(append(args, c.server, getenv(envServer), defaultServer)...)
			token, err := readToken(getenv, c.tokenFile)
			if err == nil && token == "" {
				token, err = askToken(cmd)
			}
			if err != nil {
				return shown(err)
			}
			api, err := client.New(client.Config{
				Server: server, Token: token, Insecure: c.insecure, UserAgent: "secbox/" + version,
				Patience: -1,
			})
			if err == nil {
				for _, e := range api.Execs(cmd.Context(), url.Values{"limit": {"1"}}) {
					err = e
					break
				}
			}
			if err != nil {
				return shown(err)
			}
			if err := writeLogin(path, login{Server: server, Token: token}); err != nil {
				return shown(err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "core-api at %s answers; %s has the login\n", server, path)
			return nil
		},
	}
	cmd.Flags().BoolVar(&forget, "forget", false, "remove the login")
	c.addFlags(cmd.Flags())
	return cmd
}

// askToken reads a token from the terminal without showing it, or a line from a pipe.
func askToken(cmd *cobra.Command) (string, error) {
	var line string
	if in, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		fmt.Fprint(cmd.ErrOrStderr(), "token (empty for none): ")
		typed, err := typeSecret(cmd.Context(), int(in.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
		if err != nil {
			return "", err
		}
		line = string(typed)
	} else {
		var err error
		line, err = bufio.NewReader(io.LimitReader(cmd.InOrStdin(), maxTokenFile)).ReadString('\n')
		line = string(withoutBOM([]byte(line)))
		if err != nil && err != io.EOF {
			return "", err
		}
	}
	token := strings.TrimSpace(line)
	if !machine.ValidToken(token) {
		return "", fault.New(fault.InvalidRequest, "this is not a token: a token is one word of printable ASCII")
	}
	return token, nil
}

// typeSecret reads a line from a terminal without showing it. When ctx ends, the terminal is as
// before, and the read, which cannot be ended, is left behind.
func typeSecret(ctx context.Context, terminal int) ([]byte, error) {
	before, err := term.GetState(terminal)
	if err != nil {
		return nil, err
	}
	var typed []byte
	read := make(chan error, 1)
	go func() {
		line, err := term.ReadPassword(terminal)
		typed = line
		read <- err
	}()
	select {
	case err := <-read:
		return typed, err
	case <-ctx.Done():
		_ = term.Restore(terminal, before)
		return nil, exit{exitCanceled, "canceled"}
	}
}

// writeLogin replaces the user's configuration, which only the user can read.
func writeLogin(path string, l login) error {
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".login-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err = f.Chmod(0o600); err == nil {
		_, err = f.Write(append(text, '\n'))
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
