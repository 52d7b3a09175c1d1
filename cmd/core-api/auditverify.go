package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/retention"
	"secbox/audit/translog"
	"secbox/audit/translog/proof"
	"secbox/audit/translog/verify"
	"secbox/fault"
	"secbox/server"
	"secbox/settings"
	"secbox/store"
)

// The exit codes of audit verify.
const (
	exitDifferences = exitCode(1)
	exitUnchecked   = exitCode(2)
)

// keptFile is the name of the file in the state dir with what audit verify has verified.
const keptFile = "audit-verified.json"

type verifyOptions struct {
	verify.Options
	key, since string
	artifacts  bool
	json       bool
}

func (c *command) auditVerify() *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare all records of what ran with the transparency log",
		Long: `Recomputes the transparency log, and compares with it: the signature of its checkpoint, its tiles and root, every event with its entry, every record with its events, column by column,
every hold with its events, and with --artifacts every manifest with its record and every artifact with its manifest. It only reads, also beside a running server. Each difference is a line.

A run compares everything, unless a flag leaves out a part. It remembers in the state dir which log it has verified, unless there were differences, and the next run proves that the log extends it. What a run
remembers under another key is a difference, and stays: the log was rebuilt, or an operator replaced its key; then move audit-verified.json away.

--new-only compares only the execs that have entries since the last run. It says first what it leaves out: records and events there that were changed, inserted or removed since are not found. --since and --project
compare all execs of a time or a project, and no holds.

The exit code is 0 without a difference, 1 with some, and 2 if it could not check.`,
		Example: `  core-api audit verify --artifacts
  core-api audit verify --since 7d --project demo --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := c.withDatabase(cmd.Context(), func(s settings.Settings,
				db store.Database,
			) error {
				return c.verify(cmd.Context(), s, db, o)
			})
			if known := exitCode(0); err == nil || errors.As(err, &known) {
				return err
			}
			complain(c.stderr, cmd.CommandPath(), err)
			return exitUnchecked
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.key, "key", "", "the log's public key, or a file with it (default: that of this node's signing key)")
	flags.StringVar(&o.since, "since", "", "only execs created since then: a date, a time, or an age such as 7d")
	flags.StringVar(&o.Project, "project", "", "only execs of this project")
	flags.BoolVar(&o.artifacts, "artifacts", false, "compare the artifacts too")
	flags.BoolVar(&o.NewOnly, "new-only", false, "leave out execs without entries since the last run")
	cmd.MarkFlagsMutuallyExclusive("new-only", "since")
	cmd.MarkFlagsMutuallyExclusive("new-only", "project")
	flags.Bool("full", true, "does nothing: a run is full unless another flag leaves out a part")
	_ = flags.MarkHidden("full") // the flag exists
	flags.BoolVar(&o.json, "json", false, "print JSON Lines: the differences, and at last the summary")
	return cmd
}

func (c *command) verify(ctx context.Context, s settings.Settings, db store.Database, o verifyOptions) (err error) {
	var bad fault.Fields
	if o.Since = audit.ParseTime("since", o.since, time.Now(), &bad); bad.Err() != nil {
		return bad.Err()
	}
	if o.Key, err = verifierKey(ctx, s, db, o.key); err != nil {
		return err
	}
	kept := filepath.Join(s.StateDir, keptFile)
	if o.Kept, err = verify.ReadKept(kept, o.Key); err != nil {
		return err
	}
	if o.artifacts {
		deps, err := server.NewDeps(s, c.environ)
		if err != nil {
			return err
		}
		if err := deps.OpenExistingWorkspace(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, deps.Workspace.Close()) }()
		o.Artifacts = func(ctx context.Context, r audit.Record, report func(what, expected, found string)) (int, error) {
			return checkArtifacts(ctx, deps, db, r, report)
		}
	}
	printer := verify.Printer{Out: c.stdout, JSON: o.json}
	o.TempDir, o.Report, o.Progress = s.StateDir, printer.Difference, verify.Progress(c.stderr)
	printer.Begin(o.Options)
	sum, verified, err := verify.Run(ctx, translog.Log{Store: db.TransparencyLog()}, o.Options)
	if err != nil {
		return err
	}
	printer.Summary(sum)
	if verified != nil {
		err = verify.WriteKept(kept, verified)
	}
	if err == nil && sum.Differences > 0 {
		err = exitDifferences
	}
	return err
}

// verifierKey returns the given key, or the public half of this node's signing key. It does not
// believe the key in the database.
func verifierKey(ctx context.Context, s settings.Settings, db store.Database, given string) (string, error) {
	if given != "" {
		return proof.ReadKey(given)
	}
	installation, err := db.Audit().InstallationID(ctx)
	if err != nil {
		return "", err
	}
	key, err := server.LogKey(s, translog.Origin(installation), true)
	if err != nil {
		return "", fault.Wrap(fault.InvalidSettings, err, "%s; on a node without the key, give the public one in --key",
			fault.From(err).Message)
	}
	return key.Verifier, nil
}

// checkArtifacts compares the artifacts of an exec, unless retention has removed them.
func checkArtifacts(ctx context.Context, deps *server.Deps, db store.Database, r audit.Record,
	report func(what, expected, found string),
) (int, error) {
	if r.ManifestDigest == "" {
		return 0, nil
	}
	project, err := deps.Workspace.Existing(r.ProjectID)
	files := 0
	if err == nil {
		files, err = project.CheckArtifacts(ctx, r.ExecID, r.ManifestDigest, report)
	}
	if !fault.Is(err, fault.UnknownArtifact) {
		if fault.Is(err, fault.ProjectDamaged) {
			report("artifacts", r.ManifestDigest, err.Error())
			err = nil
		}
		return files, err
	}
	stones, err := db.Retention().Tombstones(ctx, []string{r.ExecID})
	if err != nil {
		return 0, err
	}
	found := "none"
	for _, stone := range stones {
		if stone.Part != retention.Artifacts {
			continue
		}
		if removed, err := saysRemoved(ctx, db.AdminEvents(), stone); err != nil || removed {
			return 0, err
		}
		found = "none, and a tombstone without an execs_removed event"
	}
	report("artifacts", fmt.Sprintf("a manifest with the digest %s", r.ManifestDigest), found)
	return 0, nil
}

// removalTakes is more than the transaction of a removal takes, in which both tombstone and event
// get their times.
const removalTakes = 5 * time.Second

// saysRemoved reports whether an administrative event says what the tombstone of an exec's
// artifacts says. Verify compares the event with the log.
func saysRemoved(ctx context.Context, events admin.Store, stone retention.Tombstone) (bool, error) {
	f := admin.Filter{
		Kind: admin.ExecsRemoved, Subject: stone.Rule, Since: stone.RemovedAt.Add(-removalTakes),
		Until: stone.RemovedAt.Add(removalTakes),
	}
	const page = 100
	for after := (*admin.Cursor)(nil); ; {
		some, err := events.List(ctx, f, after, page)
		if err != nil {
			return false, err
		}
		for _, e := range some {
			var data struct {
				Part    retention.Part `json:"part"`
				Entries map[string]any `json:"entries"`
			}
			if json.Unmarshal([]byte(e.Data), &data) != nil { // verify names it
				continue
			}
			if _, named := data.Entries[stone.ExecID]; named && data.Part == stone.Part {
				return true, nil
			}
		}
		if len(some) < page {
			return false, nil
		}
		last := some[page-1]
		after = &admin.Cursor{At: last.At, Seq: last.Seq}
	}
}
