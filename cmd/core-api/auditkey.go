package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"secbox/audit/admin"
	"secbox/audit/translog"
	"secbox/audit/translog/checkpoint"
	"secbox/fault"
	"secbox/server"
	"secbox/settings"
	"secbox/store"
)

func (c *command) auditKey() *cobra.Command {
	var replaces, reason string
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Print the public key of the transparency log, for auditors; run it on the node that has the log's key",
		Long: `Prints the public key of the transparency log, for auditors. Run it on the node that has the log's key.

A server does not extend the log when audit.anchor_dir or a witness has a checkpoint of it under another key: the log was rebuilt. If you know why, because the key and the log are lost,
tell the auditors and give the last checkpoint under the former key with --replaces. That is an administrative event in the log, log_key_replaced. Servers then go on after a restart, with
the present key. Witnesses of the former log still report it. In a new installation, which has another log, the event names the log that it follows.`,
		Example: `  core-api audit key > log.pub
  core-api audit key --replaces checkpoints.txt --reason "disk lost on 2026-11-20"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withDatabase(cmd.Context(), func(s settings.Settings, db store.Database) error {
				origin, key, err := logKey(cmd.Context(), s, db)
				if err == nil && replaces != "" {
					err = c.replaceKey(cmd.Context(), db, origin, key, replaces, reason)
				}
				if err == nil {
					fmt.Fprintln(c.stdout, key.Verifier)
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&replaces, "replaces", "",
		"file with the last checkpoint under the former key: that of audit.anchor_dir, or a witness's")
	cmd.Flags().StringVar(&reason, "reason", "", "why the former key is not used any more; it becomes part of the log")
	cmd.MarkFlagsRequiredTogether("replaces", "reason")
	return cmd
}

// logKey returns the name of the transparency log and its key.
func logKey(ctx context.Context, s settings.Settings, db store.Database) (origin string, key translog.Key, err error) {
	installation, err := db.Audit().InstallationID(ctx)
	if err != nil {
		return "", key, err
	}
	state, err := db.TransparencyLog().State(ctx)
	if err != nil {
		return "", key, err
	}
	origin = translog.Origin(installation)
	key, err = server.LogKey(s, origin, state.VerifierKey != "")
	if err == nil && state.VerifierKey != "" && state.VerifierKey != key.Verifier {
		err = fault.New(fault.InvalidSettings,
			"the database says that the transparency log was begun with another key than this node's: %s", state.VerifierKey)
	}
	return origin, key, err
}

// replaceKey records that the log goes on although the checkpoint in the file is under another key.
func (c *command) replaceKey(ctx context.Context, db store.Database, origin string, key translog.Key, path, reason string) (err error) {
	if len(reason) > admin.MaxText {
		return fault.New(fault.InvalidRequest, "--reason has more than %d bytes; make it shorter", admin.MaxText)
	}
	f, err := os.Open(path)
	if err != nil {
		return fault.Wrap(fault.InvalidRequest, err, "cannot open %s: %s", path, fault.Reason(err))
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	claim, found, err := checkpoint.LastOfOther(f, info.Size(), origin, checkpoint.KeyID(key.Verifier))
	if err == nil && !found { // of a log before this installation, which this one continues
		claim, found, err = checkpoint.LastOfOther(f, info.Size(), "", checkpoint.KeyID(key.Verifier))
	}
	if err != nil || !found {
		return fault.Wrap(fault.InvalidRequest, err, "%s has no checkpoint of a log under another key than %s", path,
			checkpoint.KeyID(key.Verifier))
	}
	before, err := recorded(ctx, db, claim, key)
	if err != nil {
		return err
	}
	if before.Seq != 0 {
		fmt.Fprintf(c.stderr, "Recorded before, as administrative event %d of %s, and not again. This is the present key:\n", before.Seq,
			before.At.Format(time.RFC3339))
		return nil
	}
	err = admin.Record(ctx, db.AdminEvents(), admin.LogKeyReplaced, claim.KeyID, translog.Replacement{
		Key: key.Verifier, Entries: claim.Tree.N, Root: claim.Tree.Hash.String(), Checkpoint: claim.Signed, Reason: reason,
	})
	if err == nil {
		fmt.Fprintf(c.stderr, "Recorded: this log follows that of the key %s, whose last checkpoint has %s. Restart core-api, and give "+
			"the auditors this key:\n", claim.KeyID, claim.Checkpoint)
	}
	return err
}

// recorded returns the event that says that this key replaced the key of the checkpoint. Its Seq is
// 0 if there is no such event.
func recorded(ctx context.Context, db store.Database, former checkpoint.Claim, key translog.Key) (admin.Event, error) {
	const most = 100 // a key is replaced by few
	events, err := db.AdminEvents().List(ctx, admin.Filter{Kind: admin.LogKeyReplaced, Subject: former.KeyID}, nil, most)
	for _, e := range events {
		var r translog.Replacement
		if json.Unmarshal([]byte(e.Data), &r) == nil && r.Key == key.Verifier && r.Checkpoint == former.Signed {
			return e, err
		}
	}
	return admin.Event{}, err
}
