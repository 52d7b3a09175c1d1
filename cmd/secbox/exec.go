package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	client "secbox/clients/go"
	"secbox/fault"
)

// Exit codes of `secbox exec` beside the command's own.
const (
	exitTimeout  = 124 // as of timeout(1)
	exitNotRun   = 125 // as of docker run
	exitBroken   = 126 // it began, and the server ended it or does not know its end
	exitCanceled = 130
	exitOOM      = 137
	exitPipe     = 141 // the reader of the output has left; as of a shell's command that SIGPIPE ends
)

type execOptions struct {
	connection
	limits
	project, session, out, cwd, context, task, each, key string
	inputs, env                                          []string
	interactive, terminal, noStdin, detach, quiet        bool
}

func execCommand(getenv func(string) string) *cobra.Command {
	o := execOptions{connection: connection{getenv: getenv}}
	cmd := &cobra.Command{
		Use:   "exec [flags] -- COMMAND [ARGUMENT…]",
		Short: "Run a command in a fresh container, or in a session",
		Long: `Runs the command, shows its output as it comes, and ends with its exit code. What comes through a pipe on standard input, or from a file, is the
command's standard input. No shell interprets the command: give one, as in bash -lc '…'. Files for the command are in /workspace/inputs; what it leaves in
/workspace/artifacts can be fetched.

Exit codes: the command's own; 124 it took too long; 125 it did not run (refused, or no server); 126 the server ended it, does not know its end, or cut its output;
130 canceled; 137 it needed too much memory; 141 the reader of the output left. A wrong flag is 2. The reason is on standard error.

Ctrl-C cancels the command; a second one does not wait for its end.`,
		Example: `  secbox exec -- python3 -c 'print(6 * 7)'
  secbox exec --input data.csv --out results -- bash -lc 'wc -l <inputs/data.csv >artifacts/lines'
  secbox exec --memory 512m --timeout 30s -- make test
  secbox exec --session 019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d -it -- bash
  tar -c src | secbox exec -- tar -t
  secbox exec --each jobs.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.StringVarP(&o.project, "project", "p", "", "project whose files the command has (default: "+envProject+", or "+defaultProject+")")
	flags.StringVar(&o.session, "session", "", "session to run in, instead of a fresh container")
	flags.StringVar(&o.context, "context", "", "in a session: interpreter of bash or python that keeps its state")
	flags.StringArrayVar(&o.inputs, "input", nil, "FILE or FILE:PATH for /workspace/inputs; may be repeated")
	flags.StringArrayVarP(&o.env, "env", "e", nil, "NAME=VALUE, or NAME for the value here; may be repeated")
	flags.StringVarP(&o.cwd, "workdir", "w", "", "directory to start in (default: /workspace/work)")
	flags.StringVar(&o.out, "out", "", "directory to fetch the artifacts into")
	flags.BoolVarP(&o.interactive, "interactive", "i", false, "standard input of the command, also from a terminal")
	flags.BoolVarP(&o.terminal, "tty", "t", false, "run the command in a terminal (with -i)")
	flags.BoolVarP(&o.noStdin, "no-stdin", "n", false, "no standard input, as in a loop that reads a list")
	flags.BoolVarP(&o.detach, "detach", "d", false, "do not wait: print the id of the exec")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "no messages about artifacts on standard error")
	flags.StringVar(&o.task, "task", "", "task_id of the exec, for `secbox ls --task` and `secbox wait --task`")
	flags.StringVar(&o.key, "key", "", "Idempotency-Key: the same request with it runs once")
	flags.StringVar(&o.each, "each", "", "file with a request in JSON on each line (- for standard input): put all into the queue and wait for them")
	o.limits.addFlags(flags)
	o.connection.addFlags(flags)
	return cmd
}

func (o *execOptions) run(cmd *cobra.Command, args []string) error {
	if err := o.check(args); err != nil {
		return err
	}
	api, err := o.open()
	if err == nil {
		switch {
		case o.each != "":
			return interrupted(cmd, shown(o.runEach(cmd, api)))
		case o.detach:
			err = o.start(cmd, api, args)
		case o.terminal:
			err = o.runTerminal(cmd, api, args)
		default:
			err = o.runOne(cmd, api, args)
		}
	}
	var ended exit
	switch {
	case err == nil, errors.As(err, &ended):
		return err
	case errors.Is(err, context.Canceled):
		return exit{exitCanceled, "canceled"}
	}
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return exit{exitNotRun, e.Message}
	}
	message := messageOf(inPlaces(err, "inputs", func(i int) string { return "--input " + o.inputs[i] }))
	if client.CodeOf(err) == string(fault.BodyTooLarge) && len(o.inputs) > 0 {
		message += "; or make the large file the standard input: secbox exec … <FILE"
	}
	return exit{exitNotRun, message}
}

func (o *execOptions) check(args []string) error {
	switch {
	case o.each != "" && len(args) > 0:
		return fault.New(fault.InvalidRequest, "--each has the commands in its file; leave %s out", args[0])
	case o.each == "" && len(args) == 0:
		return fault.New(fault.InvalidRequest, "the command is missing: secbox exec -- COMMAND [ARGUMENT…]")
	case o.each != "" && o.key != "":
		return fault.New(fault.InvalidRequest, "--key is for one command; leave it out")
	case o.context != "" && o.session == "":
		return fault.New(fault.InvalidRequest, "--context needs --session: an interpreter lives in one")
	case o.context != "" && !slices.Contains([]string{"bash", "python", "python3"}, args[0]):
		return fault.New(fault.InvalidRequest, "--context runs code: write -- bash CODE, or -- python CODE")
	case o.terminal && (o.detach || o.each != ""):
		return fault.New(fault.InvalidRequest, "--tty cannot be combined with --detach or --each")
	}
	if info, err := os.Stat(o.out); o.out != "" && err == nil && !info.IsDir() {
		return fault.New(fault.InvalidRequest, "--out %s is a file; name a directory", o.out)
	}
	return nil
}

// request makes the request for a command.
func (o *execOptions) request(args []string) (client.Request, error) {
	req := client.Request{SessionID: o.session, Command: client.Argv(args...), Image: o.image, Policy: o.policy(), Key: o.key}
	req.Command.Cwd, req.Command.Context = o.cwd, o.context
	if o.context != "" { // the code, not a program
		req.Command = client.Command{Script: strings.Join(args[1:], "\n"), Context: o.context}
		if args[0] != "bash" {
			req.Command.Script, req.Command.Code = "", strings.Join(args[1:], "\n")
		}
	}
	if o.session == "" {
		req.Project = project(o.getenv, o.project)
	}
	if o.task != "" {
		req.Task = &client.TaskRef{TaskID: o.task}
	}
	req.Command.Env = variables(o.getenv, o.env)
	for _, file := range o.inputs {
		name, as := splitInput(file)
		in, err := client.InputFile(name, as)
		if err != nil {
			return req, fault.Wrap(fault.InvalidRequest, err, "--input %s: %s", file, err)
		}
		req.Inputs = append(req.Inputs, in)
	}
	return req, nil
}

// variables reads the values of --env.
func variables(getenv func(string) string, list []string) map[string]string {
	var env map[string]string
	for _, variable := range list {
		name, value, given := strings.Cut(variable, "=")
		if !given {
			value = getenv(name)
		}
		if env == nil {
			env = map[string]string{}
		}
		env[name] = value
	}
	return env
}

// splitInput splits FILE:PATH. The file may be C:\data.csv.
func splitInput(text string) (file, as string) {
	if _, err := os.Stat(text); err == nil {
		return text, ""
	}
	if i := strings.LastIndexByte(text, ':'); i > 1 {
		return text[:i], text[i+1:]
	}
	return text, ""
}

// stdin returns what the command reads; nil for nothing.
func (o *execOptions) stdin(cmd *cobra.Command) io.Reader {
	in := cmd.InOrStdin()
	if o.noStdin || isTerminal(in) && !o.interactive {
		return nil
	}
	return in
}

// maxStdin is how much standard input is sent with a request, in bytes.
const maxStdin = 16 << 20

func (o *execOptions) withStdin(cmd *cobra.Command, req *client.Request) error {
	in := o.stdin(cmd)
	if in == nil || o.context != "" {
		return nil
	}
	content, err := io.ReadAll(io.LimitReader(in, maxStdin+1))
	if err != nil {
		return fault.Wrap(fault.InvalidRequest, err, "cannot read standard input: %s", err)
	}
	if len(content) > maxStdin {
		return fault.New(fault.InvalidRequest, "standard input has more than %d bytes", maxStdin)
	}
	req.Command.Stdin = string(content)
	return nil
}

func (o *execOptions) start(cmd *cobra.Command, api *client.Client, args []string) error {
	req, err := o.request(args)
	if err == nil {
		err = o.withStdin(cmd, &req)
	}
	if err != nil {
		return err
	}
	rec, err := api.Start(cmd.Context(), req)
	if err == nil {
		fmt.Fprintln(harmless{to: cmd.OutOrStdout()}, rec.ExecID)
	}
	return err
}

func (o *execOptions) runOne(cmd *cobra.Command, api *client.Client, args []string) error {
	req, err := o.request(args)
	if err != nil {
		return err
	}
	if in := o.stdin(cmd); in != nil && o.context == "" {
		req.Stdin = in
		if content, whole := head(in); whole { // no second request
			req.Stdin, req.Command.Stdin = nil, string(content)
		} else {
			req.Stdin = io.MultiReader(bytes.NewReader(content), in)
		}
	}
	state, err := o.follow(cmd, api, func(ctx context.Context, each func(client.Event) error) (client.State, error) {
		return api.Stream(ctx, req, each)
	})
	if err != nil {
		return err
	}
	return o.end(cmd, api, state)
}

// head reads what a regular file has, if it is short UTF-8; whole says that nothing is left.
func head(in io.Reader) (content []byte, whole bool) {
	f, ok := in.(*os.File)
	if !ok {
		return nil, false
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() && info.Mode()&os.ModeCharDevice == 0 || info.Size() > shortStdin {
		return nil, false
	}
	content, err := io.ReadAll(io.LimitReader(f, shortStdin))
	return content, err == nil && len(content) < shortStdin && utf8.Valid(content)
}

// shortStdin is how much standard input may be sent with the request, in bytes.
const shortStdin = 64 << 10

// follow shows the events of an exec, and cancels it when the program is interrupted.
func (o *execOptions) follow(cmd *cobra.Command, api *client.Client,
	stream func(context.Context, func(client.Event) error) (client.State, error),
) (client.State, error) {
	signal.Ignore(syscall.SIGPIPE) // a write fails instead, and the exec is canceled
	execID := ""
	each := show(cmd.OutOrStdout(), cmd.ErrOrStderr(), &execID)
	state, err := stream(cmd.Context(), each)
	interrupted := cmd.Context().Err() != nil
	if err == nil || execID == "" {
		return state, err
	}
	if !interrupted && !errors.Is(err, errOutput) { // it began
		return state, exit{exitBroken, fmt.Sprintf("exec %s may still run: %s; secbox wait %s says how it ends", execID, err, execID)}
	}
	// The reader of the output is gone, or the user wants an end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), 15*time.Second)
	defer cancel()
	if err := api.Cancel(ctx, execID); err != nil && client.CodeOf(err) != string(fault.ExecEnded) {
		return state, fmt.Errorf("exec %s may still run: %w", execID, err)
	}
	if !interrupted && errors.Is(err, syscall.EPIPE) {
		return state, silent(exitPipe)
	}
	if !interrupted {
		return state, exit{exitCanceled, err.Error() + "; exec " + execID + " is canceled"}
	}
	rec, err := api.Wait(ctx, execID)
	return rec.State, err
}

// errOutput wraps the errors of writing to standard output or standard error.
var errOutput = errors.New("writing the output failed")

// show returns a function that writes the output of an exec, and sets its id.
func show(stdout, stderr io.Writer, execID *string) func(client.Event) error {
	return func(e client.Event) error {
		to := stdout
		switch e.Type {
		case "status", "end":
			*execID = e.State.ExecID
			return nil
		case "stderr":
			to = stderr
		case "stdout":
		default:
			return nil
		}
		if _, err := to.Write(e.Data); err != nil {
			return fmt.Errorf("%w: %w", errOutput, err)
		}
		return nil
	}
}

// end fetches the artifacts, says what a user should know, and returns the exit code as an error.
func (o *execOptions) end(cmd *cobra.Command, api *client.Client, state client.State) error {
	say := func(format string, args ...any) {
		fmt.Fprintf(harmless{to: cmd.ErrOrStderr()}, "secbox: "+format+"\n", args...)
	}
	if state.StdoutCut {
		say("standard output is cut: the command wrote %s; ask for more with --max-output", bytesText(state.StdoutBytes))
	}
	if state.StderrCut {
		say("standard error is cut: the command wrote %s", bytesText(state.StderrBytes))
	}
	if p := state.Problem; p != nil {
		say("output is missing: %s", p.Detail)
	}
	for _, left := range state.Omitted {
		say("%s is no artifact: %s", plain(left.Path), left.Reason)
	}
	switch {
	case o.out != "" && len(state.Artifacts) > 0:
		ctx := context.WithoutCancel(cmd.Context())
		if err := api.SaveArtifacts(ctx, state.ExecID, state.Artifacts, o.out); err != nil {
			return exit{exitFailed, fmt.Sprintf("%s; secbox artifacts %s --get %s fetches them again", err, state.ExecID, o.out)}
		}
		if !o.quiet {
			say("artifacts in %s: %d", o.out, len(state.Artifacts))
		}
	case len(state.Artifacts) > 0 && !o.quiet && isTerminal(cmd.ErrOrStderr()):
		say("artifacts: %d; secbox artifacts %s --get DIR fetches them", len(state.Artifacts), state.ExecID)
	}
	if err := outcome(state); err != nil || !state.StdoutCut || isTerminal(cmd.OutOrStdout()) {
		return err
	}
	return silent(exitBroken) // the next program of a pipe has not got all
}

// flagsOf names the flags beside the limits in a detail.
var flagsOf = strings.NewReplacer(
	"policy_overrides.timeout_ms", "timeout_ms with --timeout", "policy_overrides.memory_mb", "memory_mb with --memory",
	"policy_overrides.pids", "pids with --pids", "policy_overrides.tmp_mb", "tmp_mb with --tmp", "policy_overrides.shm_mb", "shm_mb with --shm",
)

// outcome returns the exit code of an exec that has ended, as an error; nil for success.
func outcome(state client.State) error {
	why := state.Status
	if state.ErrorReason != "" && state.ErrorReason != state.Status {
		why += ", " + state.ErrorReason
	}
	if state.Detail != "" {
		why += ": " + plain(flagsOf.Replace(state.Detail))
	}
	message := fmt.Sprintf("exec %s: %s", state.ExecID, why)
	switch state.Status {
	case "succeeded":
		return nil
	case "failed":
		if state.ExitCode != nil && *state.ExitCode >= 1 && *state.ExitCode <= 255 { // else a shell would take it for another one
			return silent(*state.ExitCode)
		}
		return exit{exitBroken, message}
	case "timeout":
		return exit{exitTimeout, message}
	case "oom_killed":
		return exit{exitOOM, message}
	case "canceled":
		return exit{exitCanceled, message}
	case "rejected":
		return exit{exitNotRun, message}
	}
	return exit{exitBroken, message}
}

// silent is the exit code of a command, which has said itself what is wrong.
func silent(code int) error { return exit{code: code} }
