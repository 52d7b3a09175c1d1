package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"secbox/fault"
	"secbox/translog/verify"
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

With --dir, a run remembers what it has verified, unless there were differences. The next run proves that the log extends it, and compares only the execs that have new entries; --full compares
everything again.

The exit code is 0 without a difference, 1 with some, and 2 if it could not check. The token (core-api token create --role auditor) comes from the environment variable ` + envToken + ` or a file.`,
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
	flags.StringVar(&o.since, "since", "", "only execs created since this time (RFC 3339)")
	flags.StringVar(&o.Options.Project, "project", "", "only execs of this project")
	flags.BoolVar(&o.Full, "full", false, "compare everything again")
	flags.BoolVar(&o.json, "json", false, "print JSON Lines: the differences, and at last the summary")
	return cmd
}

func (o verifyOptions) run(cmd *cobra.Command, getenv func(string) string) error {
	e, err := o.endpoint(getenv)
	if err != nil {
		return err
	}
	if o.since != "" {
		if o.Since, err = time.Parse(time.RFC3339, o.since); err != nil {
			return fault.Wrap(fault.InvalidRequest, err, "--since %q is not a time; write it like 2026-03-04T05:06:07Z", o.since)
		}
	}
	key, err := publicKey(o.Key)
	if err != nil {
		return err
	}
	o.Key = strings.TrimSpace(key)
	kept := ""
	if o.dir != "" {
		if err := os.MkdirAll(o.dir, 0o700); err != nil {
			return fault.Wrap(fault.InvalidRequest, err, "cannot make the directory: %s", fault.Reason(err))
		}
		kept = filepath.Join(o.dir, "verified.json")
		if o.Kept, err = verify.ReadKept(kept, o.Key); err != nil {
			return err
		}
		o.TempDir = o.dir
	}
	printer := verify.Printer{Out: cmd.OutOrStdout(), JSON: o.json}
	o.Report, o.Progress = printer.Difference, verify.Progress(cmd.ErrOrStderr())
	sum, verified, err := verify.Run(cmd.Context(), evidence{e}, o.Options)
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

// evidence is a core-api whose evidence is verified. It implements verify.Source.
type evidence struct{ *endpoint }

func (e evidence) Checkpoint(ctx context.Context) (string, error) {
	text, err := e.get(ctx, "/audit/log/checkpoint", nil)
	return string(text), err
}

func (e evidence) Tile(ctx context.Context, path string) ([]byte, error) {
	return e.get(ctx, "/audit/log/tile/"+path, nil)
}

func (e evidence) Subjects(ctx context.Context, at string, each func(verify.Subject) error) (next string, err error) {
	page, err := e.get(ctx, "/audit/log/documents", url.Values{"at": {at}})
	if err != nil {
		return "", err
	}
	var refused error
	next, err = verify.ReadSubjects(bytes.NewReader(page), func(s verify.Subject) error {
		refused = each(s)
		return refused
	})
	if err != nil && refused == nil {
		err = fault.Wrap(fault.InvalidProof, err, "the evidence of core-api at %s cannot be read: %s", e.address(), err)
	}
	return next, err
}

// Bounds of evidence.
const (
	maxEvidence      = 256 << 20 // bytes of one answer; one of core-api has some 20 MiB at most
	evidenceTimeout  = 2 * time.Minute
	evidenceAttempts = 6
)

// get returns an answer. It tries again when the server is busy or the connection breaks.
func (e evidence) get(ctx context.Context, path string, query url.Values) (body []byte, err error) {
	pause := time.Second / 4
	for range evidenceAttempts {
		body, err = e.getOnce(ctx, path, query)
		if !fault.Is(err, fault.ServerBusy) && !fault.Is(err, fault.DatabaseUnavailable) && !fault.Is(err, fault.OutcomeUnknown) {
			return body, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
			pause *= 2
		}
	}
	return nil, err
}

func (e evidence) getOnce(ctx context.Context, path string, query url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, evidenceTimeout)
	defer cancel()
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	req, err := e.request(ctx, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, fault.Wrap(fault.OutcomeUnknown, err, "core-api does not answer at %s", e.address())
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxEvidence))
	if err != nil {
		return nil, fault.Wrap(fault.OutcomeUnknown, err, "the answer of core-api at %s broke off", e.address())
	}
	if resp.StatusCode == http.StatusOK {
		return body, nil
	}
	var problem struct {
		Code   fault.Code `json:"code"`
		Detail string     `json:"detail"`
	}
	if json.Unmarshal(body, &problem) != nil || problem.Code == "" {
		return nil, fault.New(fault.InvalidRequest, "%s is not a core-api: it answered %d %s; give the address of core-api with --server", e.address(), resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return nil, fault.New(problem.Code, "core-api at %s: %s", e.address(), verify.Printable(problem.Detail))
}
