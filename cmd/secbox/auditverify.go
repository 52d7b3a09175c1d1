package main

import (
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"secbox/audit"
	"secbox/audit/translog/proof"
	"secbox/audit/translog/verify"
	"secbox/fault"
)

type verifyOptions struct {
	registryOptions // server, token-file, insecure
	verify.Options
	since, dir string
	json       bool
}

func verifyCommand(getenv func(string) string) *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify --server URL --key KEY",
		Short: "Compare all records of a core-api with its transparency log",
		Long: `Does over HTTP what ` + "`core-api audit verify`" + ` does on the server, without trust in the server: recomputes the transparency log, and compares with it the signature of its checkpoint, its
tiles, every event, and every record with its events, column by column. Each difference is a line. Artifacts are not compared; each download is.

A run compares all of this, unless a flag leaves out a part. With --dir, it remembers which log it has verified, unless there were differences, and the next run proves that the log extends it. --new-only
compares only the execs that have entries since then. It says first what it leaves out: records and events there that were changed, inserted or removed since are not found.

The exit code is 0 without a difference, 1 with some, and 2 if it could not check. The token (core-api token create --role auditor) comes from the environment variable ` + envToken + ` or a file.`,
		Example: `  secbox audit verify --server https://core-api.example.com --key log.pub --token-file auditor.token --dir ~/secbox-verified
  secbox audit verify --server https://core-api.example.com --key log.pub --token-file auditor.token --since 7d --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return verdict(o.run(cmd, getenv)) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.server, "server", defaultServer, "address of core-api")
	flags.StringVar(&o.tokenFile, "token-file", "", "file that holds the token (default: the environment variable "+envToken+")")
	flags.BoolVar(&o.insecure, "insecure", false, "send the token over plain http to another machine")
	flags.StringVar(&o.Key, "key", "", "the log's public key, or a file with it")
	_ = cmd.MarkFlagRequired("key") // the flag exists
	flags.StringVar(&o.dir, "dir", "", "directory in which to remember what was verified")
	flags.StringVar(&o.since, "since", "", "only execs created since then: a date, a time, or an age such as 7d")
	flags.StringVar(&o.Project, "project", "", "only execs of this project")
	flags.BoolVar(&o.NewOnly, "new-only", false, "leave out execs without entries since the last run")
	cmd.MarkFlagsMutuallyExclusive("new-only", "since")
	cmd.MarkFlagsMutuallyExclusive("new-only", "project")
	flags.Bool("full", true, "does nothing: a run is full unless another flag leaves out a part")
	_ = flags.MarkHidden("full") // the flag exists
	flags.BoolVar(&o.json, "json", false, "print JSON Lines: the differences, and at last the summary")
	return cmd
}

func (o verifyOptions) run(cmd *cobra.Command, getenv func(string) string) error {
	e, err := o.endpoint(getenv)
	if err != nil {
		return err
	}
	var bad fault.Fields
	if o.Since = audit.ParseTime("--since", o.since, time.Now(), &bad); bad.Err() != nil {
		return fault.New(fault.InvalidRequest, "--since %q %s", o.since, fault.From(bad.Err()).Fields[0].Reason)
	}
	if o.Key, err = proof.ReadKey(o.Key); err != nil {
		return err
	}
	kept := ""
	if o.dir != "" {
		if err := os.MkdirAll(o.dir, 0o700); err != nil {
			return fault.Wrap(fault.InvalidRequest, err, "cannot make the directory %s: %s; give another one with --dir", o.dir,
				fault.Reason(err))
		}
		kept = filepath.Join(o.dir, "verified.json")
		if o.Kept, err = verify.ReadKept(kept, o.Key); err != nil {
			return err
		}
		o.TempDir = o.dir
	}
	printer := verify.Printer{Out: cmd.OutOrStdout(), JSON: o.json}
	o.Report, o.Progress = printer.Difference, verify.Progress(cmd.ErrOrStderr())
	printer.Begin(o.Options)
	sum, verified, err := verify.Run(cmd.Context(), newEvidence(e), o.Options)
	if err != nil {
		return err
	}
	printer.Summary(sum)
	if verified != nil && kept != "" {
		err = verify.WriteKept(kept, verified)
	}
	if err == nil && sum.Differences > 0 {
		err = exit{1, "the evidence is not what the log says"}
	}
	return err
}
