package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	client "secbox/clients/go"
)

// skillsOptions are the flags of the commands that use a user's skills.
type skillsOptions struct {
	connection
	user, agent string
}

func skillsCommand(getenv func(string) string) *cobra.Command {
	o := skillsOptions{connection: connection{getenv: getenv}}
	cmd := &cobra.Command{
		Use: "skills", Short: "List and invoke skills; upload, compare, sync and promote a user's own",
		Example: `  secbox skills list
  secbox skills invoke report --inputs @inputs.json
  secbox skills upload report.zip --user bob --agent agent001`,
	}
	o.addFlags(cmd.PersistentFlags())
	cmd.PersistentFlags().StringVar(&o.user, "user", "", "the user whose skills are meant")
	cmd.PersistentFlags().StringVar(&o.agent, "agent", "", "the agent whose user is meant")
	cmd.AddCommand(
		&cobra.Command{
			Use: "list", Short: "List skills that can be invoked", Args: cobra.NoArgs, Example: "  secbox skills list",
			RunE: verb(&o.connection, func(cmd *cobra.Command, api *client.Client, _ []string) error {
				list, err := api.Skills(cmd.Context())
				if err != nil {
					return err
				}
				out := table(cmd)
				for _, s := range list {
					sentence, _, _ := strings.Cut(s.Description, ". ") // skills show has all of it
					fmt.Fprintf(out, "%s\t%s\n", plain(s.ID), plain(sentence))
				}
				return out.Flush()
			}),
		},
		&cobra.Command{
			Use: "show SKILL", Short: "Show a skill: its schemas, limits and files, in JSON", Args: cobra.ExactArgs(1),
			Example: "  secbox skills show shell.run",
			RunE: verb(&o.connection, func(cmd *cobra.Command, api *client.Client, args []string) error {
				s, err := api.Skill(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return indented(cmd.OutOrStdout(), s.Raw)
			}),
		},
		o.invokeCommand(),
		o.uploadCommand(),
		o.ofUser("status", "", "Show how the user's skills differ from the baselines", http.MethodGet, "status"),
		o.ofUser("diff", "SKILL", "Show what the user has changed in a skill", http.MethodGet, "diff"),
		o.ofUser("sync", "SKILL", "Bring the baseline's changes of a skill to the user", http.MethodPost, "sync"),
		o.ofUser("promote", "SKILL", "Make the user's version of a skill the baseline", http.MethodPost, "baseline"),
	)
	return cmd
}

func (o *skillsOptions) invokeCommand() *cobra.Command {
	var in, inputs, session string
	var l limits
	cmd := &cobra.Command{
		Use: "invoke SKILL", Short: "Call a skill and print its outputs in JSON", Args: cobra.ExactArgs(1),
		Example: "  secbox skills invoke report --inputs @inputs.json",
		RunE: verb(&o.connection, func(cmd *cobra.Command, api *client.Client, args []string) error {
			call := client.Invocation{UserID: o.user, SessionID: session, Policy: l.policy(), Inputs: json.RawMessage(inputs)}
			if session == "" {
				call.Project = project(o.getenv, in)
			}
			if len(inputs) > 1 && inputs[0] == '@' {
				text, err := os.ReadFile(inputs[1:])
				if err != nil {
					return err
				}
				call.Inputs = withoutBOM(text)
			}
			if len(call.Inputs) > 0 && !json.Valid(call.Inputs) {
				return exit{2, "--inputs is not JSON; write an object, or @FILE"}
			}
			out, err := api.Invoke(cmd.Context(), args[0], call)
			if err != nil {
				return err
			}
			fmt.Fprint(cmd.ErrOrStderr(), out.Exec.Stderr)
			if string(out.Outputs) != "null" {
				if err := indented(cmd.OutOrStdout(), out.Outputs); err != nil {
					return err
				}
			}
			return outcome(out.Exec.State)
		}),
	}
	cmd.Flags().StringVarP(&in, "project", "p", "", "project whose files the skill has")
	cmd.Flags().StringVar(&inputs, "inputs", "{}", "inputs in JSON such as {\"script\": \"true\"}, or @FILE")
	cmd.Flags().StringVar(&session, "session", "", "session to run in")
	l.addFlags(cmd.Flags())
	return cmd
}

// path is a route of the user's skills.
func (o *skillsOptions) path(rest ...string) (string, error) {
	if o.user == "" || o.agent == "" {
		return "", exit{2, "the user is missing; give --user and --agent"}
	}
	path := "/v1/skills/" + url.PathEscape(o.user) + "/" + url.PathEscape(o.agent)
	for _, part := range rest {
		path += "/" + url.PathEscape(part)
	}
	return path, nil
}

// ofUser is a command that makes one request for the user's skills and prints the answer.
func (o *skillsOptions) ofUser(name, argument, short, method, action string) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: name, Short: short, Example: "  secbox skills " + name + " --user bob --agent agent001", Args: cobra.NoArgs,
		RunE: verb(&o.connection, func(cmd *cobra.Command, api *client.Client, args []string) error {
			path, err := o.path(append(args, action)...)
			if err != nil {
				return err
			}
			query := url.Values{}
			if force {
				query.Set("force", "true")
			}
			answer, err := api.V1(cmd.Context(), method, path, query, "", nil)
			if err != nil {
				return err
			}
			return printAnswer(cmd.OutOrStdout(), answer)
		}),
	}
	if argument != "" {
		cmd.Use, cmd.Args, cmd.Example = name+" "+argument, cobra.ExactArgs(1), "  secbox skills "+name+" report --user bob --agent agent001"
	}
	if method == http.MethodPost {
		cmd.Flags().BoolVar(&force, "force", false, "also if changes are lost by it")
	}
	return cmd
}

func (o *skillsOptions) uploadCommand() *cobra.Command {
	var baseline bool
	cmd := &cobra.Command{
		Use: "upload FILE.zip", Short: "Upload a skill, for the user or with --baseline for all users of the agent", Args: cobra.ExactArgs(1),
		Example: "  secbox skills upload report.zip --user bob --agent agent001",
		RunE: verb(&o.connection, func(cmd *cobra.Command, api *client.Client, args []string) error {
			path, err := o.path("upload")
			if err != nil {
				return err
			}
			query := url.Values{}
			if baseline {
				query.Set("scope", "baseline")
			}
			answer, err := o.upload(cmd.Context(), api, path, query, args[0])
			if err != nil {
				return err
			}
			return printAnswer(cmd.OutOrStdout(), answer)
		}),
	}
	cmd.Flags().BoolVar(&baseline, "baseline", false, "make it the version of all users of the agent")
	return cmd
}

// upload sends a file as a form, without holding it in memory.
func (o *skillsOptions) upload(ctx context.Context, api *client.Client, path string, query url.Values, name string,
) (json.RawMessage, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	body, to := io.Pipe()
	form := multipart.NewWriter(to)
	go func() {
		part, err := form.CreateFormFile("file", filepath.Base(name))
		if err == nil {
			_, err = io.Copy(part, f)
		}
		if err == nil {
			err = form.Close()
		}
		_ = to.CloseWithError(err)
	}()
	defer body.Close()
	return api.V1(ctx, http.MethodPost, path, query, form.FormDataContentType(), body)
}

// printAnswer prints a text as it is, such as a diff, and anything else as JSON.
func printAnswer(out io.Writer, answer json.RawMessage) error {
	var text string
	if json.Unmarshal(answer, &text) != nil {
		return indented(out, answer)
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err := io.WriteString(harmless{to: out}, text)
	return err
}

func indented(out io.Writer, text json.RawMessage) error {
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, text, "", "  "); err != nil {
		return err
	}
	_, err := fmt.Fprintln(harmless{out, true}, pretty.String())
	return err
}
