package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"secbox/fault"
)

// maxAnswer is how much of an answer of /v1/ is read, in bytes: a page of 500 entries with
// descriptions of 4 KiB fits.
const maxAnswer = 8 << 20

type registryOptions struct {
	mcpOptions
	user, agent string
	agents      bool // the entry is an agent, not a skill
}

func registryCommand(getenv func(string) string) *cobra.Command {
	var o registryOptions
	cmd := &cobra.Command{
		Use:   "registry",
		Short: "Publish, find and install skills and agents",
		Long: `Uses the registry of a core-api: skills and agents that users publish for each other. Files are read from and written to the user's sandbox,
wherever that is: on the server, or on the machine that ` + "`secbox runner`" + ` serves.`,
		Example: `  secbox registry search weather
  secbox registry install weather --user bob --agent agent001`,
	}
	flags := cmd.PersistentFlags()
	o.addFlags(flags)
	flags.StringVar(&o.user, "user", "", "the user whose sandbox is meant")
	flags.StringVar(&o.agent, "agent", "", "the agent whose user is meant")
	flags.BoolVar(&o.agents, "agents", false, "agents instead of skills")

	entry := func(use, short, method, action, done string) *cobra.Command {
		example := "  secbox registry " + use + " weather --user bob --agent agent001"
		return &cobra.Command{
			Use: use + " NAME", Short: short, Example: example, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				if err := o.needUser(); err != nil {
					return err
				}
				e, err := o.endpoint(getenv)
				if err != nil {
					return err
				}
				path := "/v1/registry/" + url.PathEscape(o.user) + "/" + url.PathEscape(o.agent) + "/" + o.kind() + "/" +
					url.PathEscape(args[0]) + "/" + action
				var entry struct {
					Version int    `json:"version"`
					Digest  string `json:"digest"`
				}
				var into any = &entry
				if method == http.MethodDelete {
					into = nil
				}
				if err := e.v1(cmd.Context(), method, path, into); err != nil {
					return err
				}
				if into == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", done, args[0])
					return nil
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s version %d %.12s\n", done, args[0], entry.Version, entry.Digest)
				return nil
			},
		}
	}
	cmd.AddCommand(
		&cobra.Command{
			Use: "search [WORD…]", Short: "List published skills whose name or description has all words",
			Example: "  secbox registry search weather forecast",
			RunE:    func(cmd *cobra.Command, args []string) error { return o.search(cmd, getenv, strings.Join(args, " ")) },
		},
		&cobra.Command{
			Use: "list", Short: "List the skills and agents that the user can use, with --agents only the agents", Args: cobra.NoArgs,
			Example: "  secbox registry list --user bob --agent agent001",
			RunE:    func(cmd *cobra.Command, _ []string) error { return o.list(cmd, getenv) },
		},
		entry("publish", "Publish a skill of the user for all users", http.MethodPost, "publish", "published"),
		entry("withdraw", "Remove a published skill from the registry", http.MethodDelete, "publish", "withdrawn"),
		entry("install", "Install a published skill for the user", http.MethodPost, "install", "installed"),
		entry("uninstall", "Remove an installed skill of the user", http.MethodDelete, "install", "uninstalled"),
	)
	return cmd
}

func (o *registryOptions) kind() string {
	if o.agents {
		return "agents"
	}
	return "skills"
}

func (o *registryOptions) needUser() error {
	if o.user == "" || o.agent == "" {
		return fault.New(fault.InvalidRequest, "the user whose sandbox is meant is missing; give --user and --agent")
	}
	return nil
}

// endpoint returns the core-api with the token.
func (o *registryOptions) endpoint(getenv func(string) string) (*endpoint, error) {
	o.getenv = getenv
	u, token, err := o.reach()
	if err != nil {
		return nil, err
	}
	u.Path, u.RawQuery = strings.TrimSuffix(u.Path, "/mcp"), ""
	return newEndpoint(u, token), nil
}

// search prints all pages.
func (o *registryOptions) search(cmd *cobra.Command, getenv func(string) string, text string) error {
	e, err := o.endpoint(getenv)
	if err != nil {
		return err
	}
	out := table(cmd)
	defer func() { _ = out.Flush() }()
	query := url.Values{"limit": {"500"}}
	if text != "" {
		query.Set("query", text)
	}
	for {
		var page struct {
			Items []struct {
				Name        string `json:"name"`
				Version     int    `json:"version"`
				Author      string `json:"author_user_id"`
				Description string `json:"description"`
			} `json:"items"`
			Next *string `json:"next_cursor"`
		}
		if err := e.v1(cmd.Context(), http.MethodGet, "/v1/registry/"+o.kind()+"?"+query.Encode(), &page); err != nil {
			return err
		}
		for _, item := range page.Items {
			fmt.Fprintf(out, "%s\t%d\t%s\t%s\n", item.Name, item.Version, item.Author, item.Description)
		}
		if page.Next == nil || len(page.Items) == 0 {
			return nil
		}
		query.Set("cursor", *page.Next)
	}
}

// list prints the user's catalog, with --agents only the agents, and to standard error what is
// missing in it.
func (o *registryOptions) list(cmd *cobra.Command, getenv func(string) string) error {
	if err := o.needUser(); err != nil {
		return err
	}
	e, err := o.endpoint(getenv)
	if err != nil {
		return err
	}
	var found struct {
		Entries []struct {
			Kind        string `json:"kind"`
			Name        string `json:"name"`
			Description string `json:"description"`
			Global      bool   `json:"global"`
			Warning     string `json:"warning"`
		} `json:"entries"`
		Problems []struct {
			Path   string `json:"path"`
			Reason string `json:"reason"`
		} `json:"problems"`
	}
	if err := e.v1(cmd.Context(), http.MethodGet, "/v1/catalog/"+url.PathEscape(o.user)+"/"+url.PathEscape(o.agent), &found); err != nil {
		return err
	}
	out := table(cmd)
	for _, entry := range found.Entries {
		if o.agents && entry.Kind != "agent" {
			continue
		}
		whose := "own"
		if entry.Global {
			whose = "global"
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", entry.Kind, entry.Name, whose, entry.Description)
		if entry.Warning != "" {
			fmt.Fprintf(harmless{to: cmd.ErrOrStderr()}, "secbox: %s %q: %s\n", entry.Kind, entry.Name, entry.Warning)
		}
	}
	for _, p := range found.Problems {
		fmt.Fprintf(harmless{to: cmd.ErrOrStderr()}, "secbox: not listed: %q: %s\n", p.Path, p.Reason)
	}
	return out.Flush()
}

// v1 makes a request without a body to a path below /v1/, and decodes the data of its answer unless
// data is nil.
func (e *endpoint) v1(ctx context.Context, method, path string, data any) error {
	req, err := e.request(ctx, method, path)
	if err != nil {
		return err
	}
	resp, err := e.client.Do(req)
	if err != nil {
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
			return fault.Wrap(fault.EngineUnavailable, err,
				"core-api does not answer at %s (%s); start it with `core-api serve`, or give its address with --server", e.address(),
				dial.Err)
		}
		return fault.Wrap(fault.OutcomeUnknown, err,
			"the connection to core-api at %s broke before the answer; the request may have been carried out", e.address())
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fault.Wrap(fault.OutcomeUnknown, err, "the answer of core-api at %s broke off", e.address())
	}
	var answer struct {
		Status string          `json:"status"`
		Data   json.RawMessage `json:"data"`
	}
	err = json.Unmarshal(body, &answer)
	switch {
	case err == nil && resp.StatusCode == http.StatusOK && answer.Status == "success":
		if data != nil {
			err = json.Unmarshal(answer.Data, data)
		}
		if err != nil {
			return fault.Wrap(fault.Internal, err, "the answer of core-api at %s is not understood; are both of the same version?",
				e.address())
		}
		return nil
	case err == nil && answer.Status == "error":
		var why struct {
			Code    fault.Code `json:"code"`
			Message string     `json:"message"`
		}
		if json.Unmarshal(answer.Data, &why) == nil && why.Code != "" {
			return fault.New(why.Code, "%s", why.Message)
		}
	}
	return fault.New(fault.InvalidRequest, "%s is not a core-api: it answered %d %s; give the address of core-api with --server",
		e.address(), resp.StatusCode, http.StatusText(resp.StatusCode))
}
