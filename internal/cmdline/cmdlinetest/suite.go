// Package cmdlinetest checks every command of a program: mistyped names and flags, help, and
// examples. A new command is checked without being named in a test.
package cmdlinetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Program is a program under test.
type Program struct {
	Root func() *cobra.Command // a new tree of commands, as main makes it
	Run  func(args ...string) (code int, stdout, stderr string)
}

// Run checks every command of the program. It calls the program only with arguments that are
// mistakes or ask for help.
func Run(t *testing.T, p Program) {
	root := p.Root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	p.check(t, root)
}

func (p Program) check(t *testing.T, cmd *cobra.Command) {
	p.mistypedNames(t, cmd)
	p.mistypedFlags(t, cmd)
	p.arguments(t, cmd)
	p.help(t, cmd)
	if own := cmd.Name() != "help" && !strings.Contains(cmd.CommandPath(), " completion"); own { // cobra's have their examples in the text
		p.examples(t, cmd)
	}
	for _, below := range cmd.Commands() {
		p.check(t, below)
	}
}

// pathOf returns the arguments that name a command.
func pathOf(cmd *cobra.Command, more ...string) []string {
	return append(strings.Fields(cmd.CommandPath())[1:], more...)
}

// refused runs a command line that must be refused as a mistake.
func (p Program) refused(t *testing.T, args []string, says ...string) {
	t.Helper()
	code, stdout, stderr := p.Run(args...)
	if code != 2 || stdout != "" {
		t.Errorf("%q: exit code %d, and on the standard output %.200q", args, code, stdout)
	}
	for _, want := range says {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q: no %q in %s", args, want, stderr)
		}
	}
}

// typos returns a name as hasty people type it: a letter is missing, doubled or wrong, or two are
// swapped.
func typos(name string) []string {
	last := len(name) - 1
	return []string{name[:last], name[:1] + name, name[:last] + "q", name[:last-1] + name[last:] + name[last-1:last]}
}

func (p Program) mistypedNames(t *testing.T, cmd *cobra.Command) {
	if !cmd.HasSubCommands() {
		return
	}
	taken := func(name string) bool {
		return slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == name })
	}
	try := "Try `" + cmd.CommandPath() + " --help`."
	for _, below := range cmd.Commands() {
		for _, typo := range typos(below.Name()) {
			if taken(typo) || !below.IsAvailableCommand() { // cobra does not suggest help
				continue
			}
			p.refused(t, pathOf(cmd, typo), "unknown command", "Did you mean this?", "\t"+below.Name()+"\n", try)
			p.refused(t, pathOf(cmd, typo, "--help"), "\t"+below.Name()+"\n")
			p.refused(t, append([]string{"help"}, pathOf(cmd, typo)...), "\t"+below.Name()+"\n")
		}
	}
	p.refused(t, pathOf(cmd, "nothing-like-it"), "unknown command", try)
	if !cmd.Runnable() {
		p.refused(t, pathOf(cmd), "a command is missing", try, cmd.CommandPath()+" [command]")
	}
}

func (p Program) mistypedFlags(t *testing.T, cmd *cobra.Command) {
	if cmd.DisableFlagParsing {
		return
	}
	flags := cmd.Flags()
	flags.AddFlagSet(cmd.InheritedFlags())
	try := "Try `" + cmd.CommandPath() + " --help`."
	flags.VisitAll(func(f *pflag.Flag) {
		if typo := f.Name[:len(f.Name)-1]; flags.Lookup(typo) == nil {
			p.refused(t, pathOf(cmd, "--"+typo), "unknown flag: --"+typo, "Did you mean this?", "\t--"+f.Name+"\n", try)
		}
	})
	p.refused(t, pathOf(cmd, "--nothing-like-it"), "unknown flag: --nothing-like-it", try)
}

// arguments checks that a command with a wrong number of arguments tells how it is used.
func (p Program) arguments(t *testing.T, cmd *cobra.Command) {
	if cmd.HasSubCommands() || cmd.Args == nil {
		return
	}
	for _, args := range [][]string{nil, slices.Repeat([]string{"x"}, 20)} {
		if cmd.Args(cmd, args) != nil {
			p.refused(t, pathOf(cmd, args...), "Usage: "+cmd.UseLine(), "Try `"+cmd.CommandPath()+" --help`.")
		}
	}
}

// help checks that all ways to ask for the help of a command show the same, and that it has the
// command's own flags apart from the flags of all commands.
func (p Program) help(t *testing.T, cmd *cobra.Command) {
	code, text, stderr := p.Run(pathOf(cmd, "--help")...)
	if code != 0 || stderr != "" || cmd.Short == "" {
		t.Errorf("the help of %s: exit code %d, %s", cmd.CommandPath(), code, stderr)
	}
	for _, args := range [][]string{pathOf(cmd, "-h"), append([]string{"help"}, pathOf(cmd)...)} {
		if code, other, _ := p.Run(args...); code != 0 || other != text {
			t.Errorf("%q: exit code %d, and the help differs from that of --help:\n%s", args, code, other)
		}
	}
	own, _, _ := strings.Cut(text, "\nGlobal Flags:\n")
	_, own, _ = strings.Cut(own, "\nFlags:\n")
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && !strings.Contains(own, " --"+f.Name+" ") {
			t.Errorf("the help of %s does not show --%s as one of its flags:\n%s", cmd.CommandPath(), f.Name, text)
		}
		if f.Usage == "" {
			t.Errorf("%s --%s is not explained", cmd.CommandPath(), f.Name)
		}
	})
	if cmd.HasExample() && !strings.Contains(text, "\nExamples:\n"+cmd.Example+"\n") {
		t.Errorf("the help of %s does not show its examples:\n%s", cmd.CommandPath(), text)
	}
}

// examples checks that a command has examples, that a line of them calls this command, or one below
// it, and that the lines are correct.
func (p Program) examples(t *testing.T, cmd *cobra.Command) {
	called := false
	for line := range strings.Lines(cmd.Example) {
		if !strings.HasPrefix(line, "  ") {
			t.Errorf("the example %q of %s is not indented by two spaces", line, cmd.CommandPath())
		}
		line, _, _ = strings.Cut(strings.TrimSpace(line), "  #")
		_, line, found := strings.Cut(" "+line, " "+cmd.Root().Name()+" ") // what is before prepares it
		if !found {
			continue
		}
		line, _, _ = strings.Cut(line, " > ")
		line, _, _ = strings.Cut(line, " && ")
		root := p.Root()
		root.InitDefaultHelpCmd()
		root.InitDefaultCompletionCmd()
		named, rest, err := root.Find(words(line))
		if err == nil {
			err = named.ParseFlags(rest)
		}
		if err == nil {
			err = named.ValidateArgs(named.Flags().Args())
		}
		if err == nil {
			err = named.ValidateRequiredFlags()
		}
		if err == nil {
			err = named.ValidateFlagGroups()
		}
		if err != nil || !named.Runnable() {
			t.Errorf("the example %q of %s is wrong: %v", line, cmd.CommandPath(), err)
		}
		called = called || strings.HasPrefix(named.CommandPath()+" ", cmd.CommandPath()+" ")
	}
	if !called {
		t.Errorf("%s has no example that calls it", cmd.CommandPath())
	}
}

// words splits a line of a shell at spaces outside of double quotes.
func words(line string) []string {
	quoted := false
	return strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == '"' || r == ' ' && !quoted
	})
}
