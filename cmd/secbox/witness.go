package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"

	"secbox/audit/translog/proof"
	"secbox/audit/translog/witness"
	"secbox/fault"
)

const (
	fetchTimeout = 30 * time.Second // of one resource of the log, which has at most 64 KiB

	// maxWitnessClients bounds the connections of --listen. A core-api needs one.
	maxWitnessClients = 64
)

type witnessOptions struct {
	registryOptions // server, token-file, insecure
	key, dir        string
	name, listen    string
	every           time.Duration
	once            bool
}

func witnessCommand(getenv func(string) string) *cobra.Command {
	var o witnessOptions
	cmd := &cobra.Command{
		Use:   "witness --server URL --key KEY --dir DIR",
		Short: "Follow the log of a core-api, and find out when it is cut, rolled back, rebuilt or shown differently",
		Long: `Looks at the transparency log of a core-api again and again, checks that each checkpoint extends the one before, and keeps all of them in DIR, each with
its own signature and the time. Run it on the auditor's machine, not on the server's. With --listen it also answers core-api's requests for
cosignatures (audit.witnesses; C2SP tlog-witness).

It ends with exit code 1 when the log is not what it was, and prints and stores both checkpoints as evidence; a later start ends with 1, too, as long as the evidence is in DIR. It ends with 2 when it cannot check, which without
--once is only wrong usage: it goes on when the server does not answer. DIR grows by some 450 bytes for each checkpoint.

The token (core-api token create --role auditor) comes from the environment variable ` + envToken + ` or a file.`,
		Example: `  secbox audit witness --server https://core-api.example.com --key log.pub --dir ~/secbox-witness --token-file auditor.token`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return verdict(o.run(cmd, getenv)) },
	}
	compare := &cobra.Command{
		Use:   "compare DIR DIR --key KEY",
		Short: "Compare what two witnesses have seen of a log",
		Long: `Compares the checkpoints that two witnesses have kept; a FILE with checkpoints, such as one of evidence, will do in place of a DIR. Without --server, only checkpoints of the same size can
be compared; with it, both are also compared with the log's present tree. The exit codes are those of the witness.`,
		Example: "  secbox audit witness compare ~/secbox-witness evidence.txt --key log.pub",
		Args:    cobra.ExactArgs(2),
		RunE:    func(cmd *cobra.Command, args []string) error { return verdict(o.compare(cmd, getenv, args)) },
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&o.key, "key", "", "the log's public key, or a file with it")
	_ = cmd.MarkPersistentFlagRequired("key") // the flag exists
	flags.StringVar(&o.tokenFile, "token-file", "", "file that holds the token (default: the environment variable "+envToken+")")
	flags.BoolVar(&o.insecure, "insecure", false, "send the token over plain http to another machine")
	flags = cmd.Flags()
	flags.StringVar(&o.server, "server", defaultServer, "address of core-api")
	flags.StringVar(&o.dir, "dir", "", "directory for the witness's key, the checkpoints and the evidence")
	_ = cmd.MarkFlagRequired("dir") // the flag exists
	flags.DurationVar(&o.every, "every", 10*time.Second, "pause between two looks, at least a second")
	flags.BoolVar(&o.once, "once", false, "look once, for cron")
	flags.StringVar(&o.listen, "listen", "", "address on which to answer requests for cosignatures, such as :8010")
	flags.StringVar(&o.name, "name", "", "name of the witness, chosen at its first start (default: the host's name and /secbox-witness)")
	compare.Flags().StringVar(&o.server, "server", "", "address of core-api, to compare checkpoints of different sizes")
	cmd.AddCommand(compare)
	return cmd
}

// exit is an error with an exit code of its own.
type exit struct {
	code    int
	message string
}

func (e exit) Error() string { return e.message }

// verdict makes the exit code of a check: 1 for a finding, and 2 if the check could not be made.
func verdict(err error) error {
	finding := (*witness.Finding)(nil)
	known := (*fault.Error)(nil)
	switch {
	case errors.As(err, &finding):
		return exit{1, finding.Reason}
	case errors.As(err, &known):
		return exit{2, known.Message}
	}
	return err
}

func (o *witnessOptions) run(cmd *cobra.Command, getenv func(string) string) error {
	get, err := o.log(getenv)
	if err != nil {
		return err
	}
	key, err := proof.ReadKey(o.key)
	if err != nil {
		return err
	}
	switch {
	case o.every < time.Second:
		return fault.New(fault.InvalidRequest, "--every %s is too short; use at least 1s", o.every)
	case o.once && o.listen != "":
		return fault.New(fault.InvalidRequest, "--once and --listen exclude each other; use one of them")
	}
	name := o.name
	if host, err := os.Hostname(); name == "" && err == nil {
		name = host + "/secbox-witness"
	}
	w, err := witness.Open(witness.Config{
		Dir: o.dir, Key: key, Name: name, Get: get, Logger: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)),
	})
	if err != nil {
		return err
	}
	defer w.Close()
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "witness %s\n", w.Verifier())
	if o.once {
		err = w.Check(cmd.Context())
		if known := w.Found(); known != nil && !errors.As(err, new(*witness.Finding)) {
			fmt.Fprintln(cmd.ErrOrStderr(), "secbox:", fault.From(err).Message) // the finding decides the exit code
			err = known
		}
	} else {
		err = o.follow(cmd.Context(), w, out)
	}
	if finding := (*witness.Finding)(nil); errors.As(err, &finding) {
		fmt.Fprintf(out, "\n%s\nThe evidence is in %s\n", finding.Printable(), finding.File)
	}
	if err == nil && o.once {
		fmt.Fprintf(out, "the log %s extends all that was seen before: %s\n", w.Latest().Origin, w.Latest())
	}
	return err
}

// follow follows the log, and serves with --listen, until ctx ends.
func (o *witnessOptions) follow(ctx context.Context, w *witness.Witness, out io.Writer) error {
	if o.listen == "" {
		return w.Follow(ctx, o.every)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fault.Wrap(fault.InvalidRequest, err, "cannot listen on %s: %s; choose another address with --listen", o.listen,
			fault.Reason(err))
	}
	server := &http.Server{
		Handler: w.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout:    time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(netutil.LimitListener(listener, maxWitnessClients))
	}()
	defer func() {
		_ = server.Close()
		<-served
	}()
	fmt.Fprintf(out, "listening on http://%s\n", listener.Addr())
	return w.Follow(ctx, o.every)
}

func (o *witnessOptions) compare(cmd *cobra.Command, getenv func(string) string, paths []string) error {
	key, err := proof.ReadKey(o.key)
	if err != nil {
		return err
	}
	var get witness.Get
	if o.server != "" {
		if get, err = o.log(getenv); err != nil {
			return err
		}
	}
	var files [2]*os.File
	for i, path := range paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			path = filepath.Join(path, witness.CheckpointsFile)
		}
		if files[i], err = os.Open(path); err != nil {
			return fault.Wrap(fault.InvalidRequest, err, "cannot open %s: %s", path, fault.Reason(err))
		}
		defer files[i].Close()
	}
	out := cmd.OutOrStdout()
	result, err := witness.Compare(cmd.Context(), key, files[0], files[1], get)
	if finding := (*witness.Finding)(nil); errors.As(err, &finding) {
		fmt.Fprintln(out, finding.Printable())
	}
	if err != nil {
		return err
	}
	if result.Common == 0 && get == nil {
		return fault.New(fault.InvalidRequest,
			"the two have no checkpoint of the same size; give --server, to compare them with the log's tree")
	}
	fmt.Fprintf(out, "both have seen the same log; checkpoints of the same size: %d; the last of %s and of %s\n", result.Common,
		result.Newest[0], result.Newest[1])
	return nil
}

// log returns how the log is read.
func (o *witnessOptions) log(getenv func(string) string) (witness.Get, error) {
	e, err := o.endpoint(getenv)
	if err != nil {
		return nil, err
	}
	return e.log, nil
}

// log implements witness.Get.
func (e *endpoint) log(ctx context.Context, path string, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := e.request(ctx, http.MethodGet, "/audit/log/"+path)
	if err != nil {
		return nil, err
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, fault.Wrap(fault.UpstreamFailed, err,
			"core-api does not answer at %s; start it with `core-api serve`, or give its address with --server", e.address())
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		why, _ := errors.AsType[refused](e.refusal(resp))
		if why.code == "" {
			why.code = fault.UpstreamFailed
		}
		return nil, fault.New(why.code, "%s", why.text)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil || int64(len(body)) > limit {
		return nil, fault.Wrap(fault.UpstreamFailed, err, "the answer of %s broke off, or has more than %d bytes", e.address(), limit)
	}
	return body, nil
}
