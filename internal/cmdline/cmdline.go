// Package cmdline runs the command lines of core-api and secbox. Cobra prints the help of a
// command, and reports success, when the name of a command below it is mistyped or missing; Execute
// makes that an error, so that a script does not go on. The package must not know any command.
package cmdline

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Execute runs the command that the arguments of root name. It returns that command, and its error
// or the mistake in the arguments. A mistake names what was probably meant; nothing has run then,
// and nothing is on the standard output.
func Execute(ctx context.Context, root *cobra.Command) (*cobra.Command, error) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	prepare(root)
	root.SetFlagErrorFunc(flagError)
	help := root.HelpFunc()
	var mistake error
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		rest := cmd.Flags().Args()
		switch asked := cmd.Flags().Changed("help") || !cmd.Flags().Parsed(); { // `help NAME` does not parse the flags of NAME
		case cmd.HasSubCommands() && len(rest) > 0:
			mistake = unknown(cmd, rest)
			return
		case !asked && !cmd.Runnable():
			mistake = errors.New("a command is missing; name one of those above")
			cmd.SetOut(cmd.ErrOrStderr())
		}
		help(cmd, args)
	})
	called, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = mistake
	}
	return called, err
}

// prepare completes the checks of the arguments of a command and of all below it.
func prepare(cmd *cobra.Command) {
	for _, below := range cmd.Commands() {
		prepare(below)
	}
	check := cmd.Args
	switch {
	case cmd.Name() == "help" && cmd.Parent() == cmd.Root():
		cmd.Args = func(help *cobra.Command, args []string) error {
			found, rest, err := help.Root().Find(args)
			if err == nil && len(rest) > 0 {
				err = unknown(found, rest)
			}
			return err
		}
	case check == nil: // any arguments, or cobra's check of the root's
	case cmd.HasSubCommands():
		cmd.Args = unknown
	default:
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return fmt.Errorf("%w\nUsage: %s", err, cmd.UseLine())
			}
			return nil
		}
	}
}

// unknown returns an error if there are arguments, for a command whose arguments are the names of
// others.
func unknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), meant(cmd, args[0], ""))
}

// flagError adds the flags that were probably meant to the error about an unknown one.
func flagError(cmd *cobra.Command, err error) error {
	missing, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || missing.GetSpecifiedShortnames() != "" {
		return err
	}
	flags := new(cobra.Command) // cobra has suggestions only for commands
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	return fmt.Errorf("%w%s", err, meant(flags, missing.GetSpecifiedName(), "--"))
}

// meant returns the names below cmd that are like the typed one, as cobra writes them for the
// commands of the root, or nothing.
func meant(cmd *cobra.Command, typed, before string) string {
	cmd.SuggestionsMinimumDistance = 2 // cobra's own default, which it sets too late
	names := cmd.SuggestionsFor(typed)
	if len(names) == 0 {
		return ""
	}
	return "\n\nDid you mean this?\n\t" + before + strings.Join(names, "\n\t"+before) + "\n"
}
