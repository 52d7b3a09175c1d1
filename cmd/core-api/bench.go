package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"secbox/bench"
	"secbox/dockercli"
	"secbox/fault"
)

func (c *command) benchCommand() *cobra.Command {
	o := bench.Defaults()
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure this program against plain docker run, and its lists on a large database",
		Long: `Measures this program, as a server of its own on throw-away directories, against plain docker run with the same flags, in turns:
cold, with the pool at an even pace, with arrivals at random, in a closed loop and in bursts; what idle slots weigh; what a skill's invoke
and its call over MCP add to an exec, and a catalog of a thousand; skill packages beside unzip and cp; users' sandboxes beside docker exec,
os/exec and plain HTTP; and the audit's lists
on a large SQLite and PostgreSQL database of its own. Settings, files and the environment's CORE_API_… and DATABASE_URL play no part.
It takes some twenty minutes and some gigabytes of disk space, which are free again afterwards.

The exit code is 0 when everything was measured, reached or not, because machines are noisy; it is 1 when something could not be measured,
and when a database's plan for a list is not the promised one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"config", "addr", "state-dir", "workspace-root", "skills-dir", "database-url", "log-level", "log-format"} {
				if cmd.Flags().Changed(name) {
					return fmt.Errorf("bench measures with default settings on directories of its own; leave out --%s", name)
				}
			}
			if err := o.Check(); err != nil {
				return err
			}
			program, err := os.Executable()
			if err != nil {
				return fault.Wrap(fault.Internal, err, "this program cannot find itself")
			}
			if o.Docker, err = dockercli.Find("", c.environ); err != nil {
				return err
			}
			o.Server, o.Environ, o.Log = []string{program, "serve"}, c.environ, c.stderr
			o.Command = strings.Join(append([]string{"core-api"}, os.Args[1:]...), " ")
			report, err := bench.Run(cmd.Context(), o)
			if printErr := printReport(c, report, asJSON); printErr != nil {
				return fault.Wrap(fault.Internal, printErr, "the report could not be written")
			}
			switch {
			case cmd.Context().Err() != nil:
				fmt.Fprintln(c.stderr, "core-api: bench was interrupted")
				return exitCode(130)
			case err != nil:
				fmt.Fprintln(c.stderr, "core-api: not everything could be measured:")
				fmt.Fprintln(c.stderr, err)
				return exitCode(1)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.Only, "only", nil, "only these sections: "+strings.Join(bench.Sections(), ", "))
	flags.IntVar(&o.Pairs, "pairs", o.Pairs, "cold, warm, uneven: pairs of exec and docker run; skills, sandboxes: turns; packages: lists, and a fifth as many uploads")
	flags.IntVar(&o.Rounds, "rounds", o.Rounds, "cold-throughput: rounds, each with both sides")
	flags.IntVar(&o.RoundExecs, "round-execs", o.RoundExecs, "cold-throughput: execs in a round of one side")
	flags.IntVar(&o.Concurrency, "concurrency", o.Concurrency, "cold-throughput: how many at a time")
	flags.Int64Var(&o.OutputBytes, "output-bytes", o.OutputBytes, "output: what the job prints")
	flags.IntVar(&o.OutputRounds, "output-rounds", o.OutputRounds, "output: rounds, each with both sides")
	flags.DurationVar(&o.Pace, "pace", o.Pace, "warm: from the start of a turn to the next one's; uneven: between two arrivals on average")
	flags.Uint64Var(&o.Seed, "seed", o.Seed, "uneven: of the arrivals")
	flags.IntSliceVar(&o.ClosedAt, "closed-at", o.ClosedAt, "closed: how many at a time")
	flags.IntVar(&o.ClosedExecs, "closed-execs", o.ClosedExecs, "closed: execs in a round of one side")
	flags.IntVar(&o.ClosedRounds, "closed-rounds", o.ClosedRounds, "closed: rounds at each concurrency, each with both sides")
	flags.IntVar(&o.Burst, "burst", o.Burst, "burst: how many at once")
	flags.IntVar(&o.BurstRounds, "burst-rounds", o.BurstRounds, "burst: rounds, each with both sides")
	flags.IntVar(&o.Slots, "slots", o.Slots, "memory: idle slots")
	flags.StringVar(&o.GoJudge, "go-judge", "", "warm: URL of a go-judge that gets a turn too, such as http://127.0.0.1:5050")
	flags.IntVar(&o.Skills, "skills", o.Skills, "skills: how many are in the catalog that is timed")
	flags.IntVar(&o.PackageFiles, "package-files", o.PackageFiles, "packages: in the skill that is uploaded and copied")
	flags.IntVar(&o.PackageSkills, "package-skills", o.PackageSkills, "packages: how many are listed")
	flags.IntVar(&o.SandboxFiles, "sandbox-files", o.SandboxFiles, "sandboxes: small files that are read from a runner")
	flags.IntVar(&o.SandboxExecs, "sandbox-execs", o.SandboxExecs, "sandboxes: execs in a round of one side")
	flags.IntVar(&o.SandboxRounds, "sandbox-rounds", o.SandboxRounds, "sandboxes: rounds, each with both sides")
	flags.Int64Var(&o.LargeBytes, "large-bytes", o.LargeBytes, "sandboxes: of the file that is streamed")
	flags.IntVar(&o.Rows, "rows", o.Rows, "lists: rows in each database")
	flags.IntVar(&o.Tasks, "tasks", o.Tasks, "lists: how many are timed, each of another task")
	flags.DurationVar(&o.TimeLimit, "time-limit", o.TimeLimit, "of each section; what was measured until then counts")
	flags.StringVar(&o.Dir, "dir", "", "where throw-away files lie; measure on the disk that you will use (default: the system's)")
	flags.BoolVar(&asJSON, "json", false, "print the report as JSON")
	cmd.AddCommand(c.benchSideCommand())
	return cmd
}

func printReport(c *command, report bench.Report, asJSON bool) error {
	if report.Begun.IsZero() {
		return nil // it did not come to measuring
	}
	if !asJSON {
		return report.WriteText(c.stdout)
	}
	return c.printJSON(report)
}
