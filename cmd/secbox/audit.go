package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"secbox/audit"
	"secbox/audit/report"
	"secbox/audit/translog/proof"
	"secbox/fault"
)

func auditCommand(getenv func(string) string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "Verify what a core-api says that it ran",
		Example: "  secbox audit check exec.proof.json --key log.pub && echo verified",
	}
	var key string
	var witnesses []string
	check := &cobra.Command{
		Use:   "check FILE --key KEY",
		Short: "Verify a proof, an attestation or a report, without a network",
		Long: `Verifies a file of GET /sandbox/execs/{id}/proof with the public key of the log, which
the operator of core-api prints with ` + "`core-api audit key`" + `: that each event of the
exec is in the log, and that the record is what the events say. A file of
GET /audit/events/{id}/proof is verified alike. Of GET /sandbox/execs/{id}/attestation it
verifies the signature. Of GET /audit/report/bundle it verifies that the log has each event
of the file and no others in between, and that the report is what they say. FILE - is the
standard input. Get the key on another way than the file.`,
		Example: `  secbox audit check exec.proof.json --key log.pub
  curl -s https://core-api.example.com/sandbox/execs/ID/proof | secbox audit check - --key log.pub`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return checkProof(args[0], key, witnesses, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	check.Flags().StringVar(&key, "key", "", "the log's public key, or a file with it")
	check.Flags().StringArrayVar(&witnesses, "witness-key", nil,
		"public key of a witness that must have cosigned the checkpoint, or a file with it; may be given several times")
	_ = check.MarkFlagRequired("key") // the flag exists
	cmd.AddCommand(check, witnessCommand(getenv), verifyCommand(getenv))
	return cmd
}

func checkProof(path, key string, witnesses []string, stdin io.Reader, stdout, stderr io.Writer) error {
	in := stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return fault.Wrap(fault.InvalidRequest, err, "cannot open the proof %s: %s", path, fault.Reason(err))
		}
		defer file.Close()
		in = file
	}
	var err error
	if key, err = proof.ReadKey(key); err != nil {
		return err
	}
	for i, witness := range witnesses {
		if witnesses[i], err = proof.ReadKey(witness); err != nil {
			return err
		}
	}
	file := bufio.NewReader(in)
	if begin, _ := file.Peek(report.BeginBytes); report.IsBundle(begin) { // an error comes again
		return checkReport(file, key, witnesses, stdout)
	}
	data, err := io.ReadAll(io.LimitReader(file, proof.MaxBytes+1))
	if err != nil {
		return fault.Wrap(fault.InvalidRequest, err, "cannot read the proof %s: %s", path, fault.Reason(err))
	}
	if proof.IsAdmin(data) {
		return checkAdminProof(data, key, witnesses, stdout)
	}
	if proof.IsAttestation(data) {
		if len(witnesses) > 0 {
			return fault.New(fault.InvalidRequest,
				"an attestation has no checkpoint that a witness could have cosigned; give the file of …/proof")
		}
		return checkAttestation(data, key, stdout)
	}
	result, err := proof.Check(data, key, witnesses...)
	if err != nil {
		for _, f := range fault.From(err).Fields {
			fmt.Fprintln(stderr, f.Reason)
		}
		return err
	}
	fmt.Fprintf(stdout, "The log %s has all %d events of the file, and the record is what they say.\n", result.Origin, len(result.Events))
	out := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	printRecord(out, result.Record)
	for _, e := range result.Events {
		fmt.Fprintf(out, "%s\t%s\tin the log since %s\tentry %d\n", e.Kind, e.At.Format(time.RFC3339Nano),
			e.LoggedAt.Format(time.RFC3339Nano), e.Index)
	}
	fmt.Fprintf(out, "checkpoint\t%d entries, root %s\n", result.Size, result.Root)
	printCosigned(out, result.Cosignatures)
	if len(result.Unproven) > 0 {
		fmt.Fprintf(out, "not proven\t%s\tcolumns that are newer than the last event\n", strings.Join(result.Unproven, ", "))
	}
	return out.Flush()
}

func printCosigned(out io.Writer, all proof.Cosignatures) {
	for _, c := range all.Cosigned {
		fmt.Fprintf(out, "cosigned\t%s\tby %s\n", c.At.Format(time.RFC3339), c.Witness)
	}
	if len(all.Unchecked) > 0 {
		fmt.Fprintf(out, "not checked\tcosignatures that claim to be by %q: --witness-key KEY checks one\n", all.Unchecked)
	}
}

func checkAdminProof(data []byte, key string, witnesses []string, stdout io.Writer) error {
	result, err := proof.CheckAdmin(data, key, witnesses...)
	if err != nil {
		return err
	}
	e := result.Event
	fmt.Fprintf(stdout, "The log %s has the event.\n", result.Origin)
	out := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "event\t%d\t%q\n", e.Seq, e.Kind)
	fmt.Fprintf(out, "at\t%s\tin the log since %s\tentry %d\n", e.At.Format(time.RFC3339Nano), e.LoggedAt.Format(time.RFC3339Nano),
		result.Index)
	fmt.Fprintf(out, "by\t%q\t%q\t%q\n", e.Actor.Type, e.Actor.ID, e.Actor.Name)
	fmt.Fprintf(out, "node\t%q\n", e.NodeID)
	fmt.Fprintf(out, "subject\t%q\n", e.Subject)
	fmt.Fprintf(out, "data\t%q\n", e.Data)
	fmt.Fprintf(out, "checkpoint\t%d entries, root %s\n", result.Size, result.Root)
	printCosigned(out, result.Cosignatures)
	return out.Flush()
}

// checkAttestation verifies an attestation, and prints what it says.
func checkAttestation(data []byte, key string, stdout io.Writer) error {
	a, err := proof.CheckAttestation(data, key)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "The key of the log %s has signed this record and the digests of %d files.\n", a.Origin, len(a.Subjects))
	out := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	printRecord(out, a.Record)
	for _, s := range a.Subjects {
		fmt.Fprintf(out, "sha256\t%q\t%q\n", s.Digest.SHA256, s.Name)
	}
	return out.Flush()
}

// printRecord prints the main columns. Strings are quoted, since a job or a client chose them.
func printRecord(out io.Writer, r audit.Record) {
	fmt.Fprintf(out, "exec\t%q\n", r.ExecID)
	fmt.Fprintf(out, "command\t%q\n", append([]string{r.Cmd}, r.Args...))
	fmt.Fprintf(out, "status\t%q\n", r.Status)
	if r.ExitCode != nil {
		fmt.Fprintf(out, "exit code\t%d\n", *r.ExitCode)
	}
}
