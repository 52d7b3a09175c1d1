package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	client "secbox/clients/go"
)

func sessionCommand(getenv func(string) string) *cobra.Command {
	c := connection{getenv: getenv}
	cmd := &cobra.Command{
		Use: "session", Short: "Start, list, extend, reach and end sessions: containers that stay, for many execs",
		Example: `  S=$(secbox session start --idle 10m)
  secbox exec --session $S -- bash -c 'echo 1 >/tmp/kept'
  secbox exec --session $S -- cat /tmp/kept
  secbox session end $S`,
	}
	c.addFlags(cmd.PersistentFlags())

	var l limits
	var name, in string
	var idle, ttl time.Duration
	var env []string
	start := &cobra.Command{
		Use: "start", Short: "Start a session and print its id", Args: cobra.NoArgs, Example: "  secbox session start --idle 10m --memory 1g",
		RunE: verb(&c, func(cmd *cobra.Command, api *client.Client, _ []string) error {
			req := client.SessionRequest{
				Project: project(getenv, in), Name: name, Image: l.image, IdleMS: idle.Milliseconds(), TTLMS: ttl.Milliseconds(),
				Policy: l.policy(), Env: variables(getenv, env),
			}
			s, err := api.StartSession(cmd.Context(), req)
			if err == nil {
				fmt.Fprintln(harmless{to: cmd.OutOrStdout()}, s.ID)
			}
			return err
		}),
	}
	start.Flags().StringVarP(&in, "project", "p", "", "project whose files the session has")
	start.Flags().StringVar(&name, "name", "", "name of the session")
	start.Flags().DurationVar(&idle, "idle", 0, "end it after this time without an exec, such as 10m")
	start.Flags().DurationVar(&ttl, "ttl", 0, "end it after this time, such as 8h")
	start.Flags().StringArrayVarP(&env, "env", "e", nil, "NAME=VALUE, or NAME for the value here; may be repeated")
	l.addFlags(start.Flags())

	var all bool
	var limit int
	list := &cobra.Command{
		Use: "ls", Short: "List sessions that run, newest first", Args: cobra.NoArgs, Example: "  secbox session ls --all",
		RunE: verb(&c, func(cmd *cobra.Command, api *client.Client, _ []string) error {
			query := filter("status", "running", "limit", strconv.Itoa(min(limit, 500)))
			if all {
				query.Del("status")
			}
			out := table(cmd)
			fmt.Fprintln(out, "SESSION\tCREATED\tSTATUS\tEXECS\tPROJECT\tNAME")
			n := 0
			for s, err := range api.Sessions(cmd.Context(), query) {
				if err != nil {
					return err
				}
				fmt.Fprintf(out, "%s\t%s\t%s\t%d\t%s\t%s\n", s.ID, ago(s.CreatedAt), s.Status, s.Execs, plain(s.Project), plain(s.Name))
				if n++; n >= limit {
					break
				}
			}
			return out.Flush()
		}),
	}
	list.Flags().BoolVarP(&all, "all", "a", false, "also those that have ended")
	list.Flags().IntVarP(&limit, "limit", "l", 20, "how many")

	show := &cobra.Command{
		Use: "show SESSION", Short: "Show a session", Args: cobra.ExactArgs(1), Example: "  secbox session show $S",
		RunE: verb(&c, func(cmd *cobra.Command, api *client.Client, args []string) error {
			s, err := api.Session(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return encodeLines(cmd.OutOrStdout(), []client.Session{s})
		}),
	}
	extend := &cobra.Command{
		Use: "extend SESSION TIME", Short: "Give a session this much time from now", Args: cobra.ExactArgs(2),
		Example: "  secbox session extend $S 1h",
		RunE: verb(&c, func(cmd *cobra.Command, api *client.Client, args []string) error {
			more, err := time.ParseDuration(args[1])
			if err != nil {
				return exit{2, fmt.Sprintf("%q is no time; write one like 90m", args[1])}
			}
			s, err := api.ExtendSession(cmd.Context(), args[0], more)
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), "ends at", s.ExpiresAt.Local().Format(time.DateTime))
			}
			return err
		}),
	}
	var linkFor time.Duration
	link := &cobra.Command{
		Use: "link SESSION PORT", Short: "Print a link for a browser to a server in a session", Args: cobra.ExactArgs(2),
		Example: "  secbox session link $S 8000 --for 10m",
		RunE: verb(&c, func(cmd *cobra.Command, api *client.Client, args []string) error {
			port, err := strconv.ParseUint(args[1], 10, 16)
			if err != nil {
				return exit{2, fmt.Sprintf("%q is no port; give a number from 1024 to 65535", args[1])}
			}
			l, err := api.LinkPort(cmd.Context(), args[0], int(port), linkFor)
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), l.URL)
			}
			return err
		}),
	}
	link.Flags().DurationVar(&linkFor, "for", 0, "how long the link works, such as 10m; an hour without it, at most 24h")
	end := &cobra.Command{
		Use: "end SESSION…", Short: "End sessions, and what runs in them", Args: cobra.MinimumNArgs(1), Example: "  secbox session end $S",
		RunE: verb(&c, func(cmd *cobra.Command, api *client.Client, args []string) error {
			for _, id := range args {
				if err := api.EndSession(cmd.Context(), id); err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), "ended", id)
			}
			return nil
		}),
	}
	cmd.AddCommand(start, list, show, extend, link, end)
	return cmd
}
