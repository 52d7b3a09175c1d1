package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	client "secbox/clients/go"
)

func lsCommand(getenv func(string) string) *cobra.Command {
	c := connection{getenv: getenv}
	var project, status, task, session, skill, user, since, until, reason string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List execs, newest first",
		Example: `  secbox ls
  secbox ls --status failed,timeout --since 24h
  secbox ls --task nightly --json --limit 1000`,
		Args: cobra.NoArgs,
		RunE: verb(&c, func(cmd *cobra.Command, api *client.Client, _ []string) error {
			query := filter("project_id", project, "status", status, "task_id", task, "session_id", session, "skill_id", skill,
				"user_id", user, "since", since, "until", until, "error_reason", reason, "limit", strconv.Itoa(min(limit, 500)))
			out := table(cmd) // nothing comes before an error of the first page
			if !asJSON {
				fmt.Fprintln(out, "EXEC\tCREATED\tSTATUS\tEXIT\tTIME\tPROJECT\tCOMMAND")
			}
			n := 0
			for rec, err := range api.Execs(cmd.Context(), query) {
				if err != nil {
					return err
				}
				if asJSON {
					if err := writeJSON(cmd.OutOrStdout(), rec.Raw); err != nil {
						return err
					}
				} else {
					fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", rec.ExecID, ago(rec.CreatedAt), statusText(rec.State),
						exitText(rec.State), duration(rec.State), plain(rec.Project), commandText(rec, 60))
				}
				if n++; n >= limit {
					break
				}
			}
			return out.Flush()
		}),
	}
	flags := cmd.Flags()
	flags.StringVarP(&project, "project", "p", "", "only execs of this project")
	flags.StringVar(&status, "status", "", "only execs with one of these statuses, such as failed,timeout")
	flags.StringVar(&reason, "reason", "", "only execs with this error_reason")
	flags.StringVar(&task, "task", "", "only execs of this task")
	flags.StringVar(&session, "session", "", "only this session and the execs in it")
	flags.StringVar(&skill, "skill", "", "only execs of this skill")
	flags.StringVar(&user, "user", "", "only execs for this user")
	flags.StringVar(&since, "since", "", "only execs since then: a duration such as 24h, a date, or a time in RFC 3339")
	flags.StringVar(&until, "until", "", "only execs before then")
	flags.IntVarP(&limit, "limit", "l", 20, "how many")
	flags.BoolVar(&asJSON, "json", false, "the whole records, one in JSON on each line")
	c.addFlags(flags)
	return cmd
}

func showCommand(getenv func(string) string) *cobra.Command {
	c := connection{getenv: getenv}
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show EXEC", Short: "Show the record of an exec: what ran, under which limits, and how it ended",
		Example: "  secbox show 019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d", Args: cobra.ExactArgs(1),
		RunE: verb(&c, func(cmd *cobra.Command, api *client.Client, args []string) error {
			rec, err := api.Exec(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), rec.Raw)
			}
			out := table(cmd)
			row := func(name, value string) {
				if value != "" {
					fmt.Fprintf(out, "%s\t%s\n", name, plain(value))
				}
			}
			row("exec", rec.ExecID)
			row("status", statusText(rec.State))
			row("exit code", exitText(rec.State))
			row("reason", rec.ErrorReason)
			row("detail", rec.Detail)
			row("command", commandText(rec, 2000))
			row("project", rec.Project)
			row("session", rec.SessionID)
			row("skill", rec.SkillID)
			row("task", rec.TaskID)
			row("user", rec.UserID)
			row("image", rec.Image)
			row("requested by", first(rec.Token, rec.RequestedBy))
			row("created", rec.CreatedAt.Local().Format(time.DateTime))
			row("time", duration(rec.State))
			row("stdout", bytesText(rec.StdoutBytes)+cut(rec.StdoutCut))
			row("stderr", bytesText(rec.StderrBytes)+cut(rec.StderrCut))
			if len(rec.Policy) > 0 {
				fmt.Fprintln(out, "limits")
				if err := writePolicy(out, "  ", rec.Policy); err != nil {
					return err
				}
			}
			return out.Flush()
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "the whole record in JSON")
	c.addFlags(cmd.Flags())
	return cmd
}

func cut(is bool) string {
	if is {
		return ", cut"
	}
	return ""
}

// commandText is the command of an exec on one line, in at most so many characters.
func commandText(rec client.Record, most int) string {
	words := append([]string{rec.Cmd}, rec.Args...)
	if len(words) > 3 && words[1] == "-c" && strings.HasPrefix(words[2], `exec -- "$0"`) {
		words = words[3:] // as `secbox exec` has sent it
	}
	for i, word := range words {
		if word == "" || strings.ContainsAny(word, " \t\n\"'$`\\&|;<>*?()[]{}!#~") {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	text := []rune(plain(strings.Join(words, " ")))
	if len(text) > most {
		text = append(text[:most-1], '…')
	}
	return string(text)
}

func statusText(s client.State) string {
	if s.ErrorReason == "" || s.ErrorReason == s.Status || s.ErrorReason == "nonzero_exit" {
		return s.Status
	}
	return s.Status + " (" + s.ErrorReason + ")"
}

func exitText(s client.State) string {
	if s.ExitCode == nil {
		return "-"
	}
	return strconv.Itoa(*s.ExitCode)
}

func duration(s client.State) string {
	if s.StartedAt.IsZero() || s.EndedAt.IsZero() {
		return "-"
	}
	return (time.Duration(s.DurationMS) * time.Millisecond).String()
}

// ago is how long ago a time is, roughly.
func ago(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	d := time.Since(at)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(max(0, d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return at.Local().Format(time.DateOnly)
}

func logsCommand(getenv func(string) string) *cobra.Command {
	c := connection{getenv: getenv}
	var follow bool
	var stream string
	cmd := &cobra.Command{
		Use: "logs EXEC", Short: "Show what an exec has written", Args: cobra.ExactArgs(1),
		Example: `  secbox logs 019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d
  secbox logs -f 019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d`,
		RunE: verb(&c, func(cmd *cobra.Command, api *client.Client, args []string) error {
			if !follow {
				rec, err := api.Exec(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if !rec.Ended() {
					return exit{exitFailed, "exec " + rec.ExecID + " is " + rec.Status + "; add -f to see its output while it comes"}
				}
			}
			execID := ""
			each := show(cmd.OutOrStdout(), cmd.ErrOrStderr(), &execID)
			_, err := api.Follow(cmd.Context(), args[0], "", func(e client.Event) error {
				if stream != "" && e.Type != stream && e.State == nil {
					return nil
				}
				return each(e)
			})
			return err
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the exec has ended")
	cmd.Flags().StringVar(&stream, "only", "", "stdout or stderr")
	c.addFlags(cmd.Flags())
	return cmd
}

func artifactsCommand(getenv func(string) string) *cobra.Command {
	c := connection{getenv: getenv}
	var get string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "artifacts EXEC [PATH…]", Short: "List or fetch the files that an exec left in /workspace/artifacts",
		Args: cobra.MinimumNArgs(1),
		Example: `  secbox artifacts 019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d
  secbox artifacts 019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d --get results`,
		RunE: verb(&c, func(cmd *cobra.Command, api *client.Client, args []string) error {
			list, err := api.Artifacts(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if len(args) > 1 {
				if list, err = chosen(list, args[1:]); err != nil {
					return err
				}
			}
			if get != "" {
				progress := newProgress(cmd.ErrOrStderr())
				defer progress.end()
				for i, a := range list {
					progress.show("%d of %d: %s, %s", i+1, len(list), plain(a.Path), bytesText(a.Size))
					if err := api.SaveArtifacts(cmd.Context(), args[0], list[i:i+1], get); err != nil {
						return err
					}
				}
				return nil
			}
			if asJSON {
				return encodeLines(cmd.OutOrStdout(), list)
			}
			out := table(cmd)
			for _, a := range list {
				fmt.Fprintf(out, "%s\t%s\t%s\n", plain(a.Path), bytesText(a.Size), a.SHA256)
			}
			return out.Flush()
		}),
	}
	cmd.Flags().StringVar(&get, "get", "", "directory to fetch them into")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one in JSON on each line")
	c.addFlags(cmd.Flags())
	return cmd
}

func chosen(list []client.Artifact, names []string) ([]client.Artifact, error) {
	var out []client.Artifact
	for _, name := range names {
		found := false
		for _, a := range list {
			if a.Path == name || strings.HasPrefix(a.Path, strings.TrimSuffix(name, "/")+"/") {
				out, found = append(out, a), true
			}
		}
		if !found {
			return nil, exit{exitFailed, fmt.Sprintf("there is no artifact %q; leave the path out to list them", name)}
		}
	}
	return out, nil
}

func cancelCommand(getenv func(string) string) *cobra.Command {
	c := connection{getenv: getenv}
	cmd := &cobra.Command{
		Use: "cancel EXEC…", Short: "Cancel execs", Args: cobra.MinimumNArgs(1),
		Example: "  secbox cancel 019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d",
		RunE: verb(&c, func(cmd *cobra.Command, api *client.Client, args []string) error {
			for _, id := range args {
				if err := api.Cancel(cmd.Context(), id); err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), "canceled", id)
			}
			return nil
		}),
	}
	c.addFlags(cmd.Flags())
	return cmd
}

func waitCommand(getenv func(string) string) *cobra.Command {
	c := connection{getenv: getenv}
	var task string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "wait EXEC… | --task TASK", Short: "Wait until execs have ended, and print how",
		Long: `Waits until the execs, or all of a task, have ended. Exit codes: 0 if all succeeded; of one exec that failed its exit code, of several 1.`,
		Example: `  secbox wait 019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d
  secbox wait --task nightly --timeout 1h`,
		RunE: verb(&c, func(cmd *cobra.Command, api *client.Client, args []string) error {
			if (task == "") == (len(args) == 0) {
				return exit{2, "name execs, or a task with --task"}
			}
			if task != "" {
				return waitTask(cmd, api, task, timeout)
			}
			var failed error
			for _, id := range args {
				rec, err := api.Wait(cmd.Context(), id)
				if err != nil {
					return err
				}
				fmt.Fprintf(harmless{to: cmd.OutOrStdout()}, "%s\t%s\t%s\n", rec.ExecID, statusText(rec.State), exitText(rec.State))
				if err := outcome(rec.State); err != nil {
					failed = err
				}
			}
			if failed != nil && len(args) > 1 {
				return exit{exitFailed, "not all succeeded"}
			}
			return failed
		}),
	}
	cmd.Flags().StringVar(&task, "task", "", "task whose execs are meant")
	cmd.Flags().DurationVar(&timeout, "timeout", 24*time.Hour, "how long to wait for a task")
	c.addFlags(cmd.Flags())
	return cmd
}

func waitTask(cmd *cobra.Command, api *client.Client, task string, timeout time.Duration) error {
	now, err := api.WaitTask(cmd.Context(), task, timeout)
	if err != nil {
		return err
	}
	if err := encodeLines(cmd.OutOrStdout(), []client.Task{now}); err != nil {
		return err
	}
	switch {
	case !now.Ended:
		return exit{exitTimeout, fmt.Sprintf("%d of %d execs have not ended", now.Unended, now.Total)}
	case now.Statuses["succeeded"] != now.Total:
		return exit{exitFailed, fmt.Sprintf("%d of %d did not succeed", now.Total-now.Statuses["succeeded"], now.Total)}
	}
	return nil
}
