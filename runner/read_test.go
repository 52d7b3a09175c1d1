package runner

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"secbox/audit"
	"secbox/fault"
	"secbox/runner/lifecycle"
)

// TestRefusalOf: the replay of a refused request must be an error, not an exec with a result.
func TestRefusalOf(t *testing.T) {
	t.Parallel()
	for want, records := range map[fault.Code][]audit.Record{
		fault.PolicyDenied:  {{Status: audit.Rejected, ErrorReason: audit.PolicyDenied}},
		fault.InputConflict: {{Status: audit.Rejected, ErrorReason: audit.InputRefused}},
		fault.ImageMissing:  {{Status: audit.Errored, ErrorReason: audit.ImageMissing}},
		fault.Internal:      {{Status: audit.Errored, ErrorReason: audit.StartFailed}},
		"": {
			{Status: audit.Succeeded},
			{Status: audit.Failed, ErrorReason: audit.NonzeroExit},
			{Status: audit.Canceled, ErrorReason: audit.ReasonCanceled},
			{Status: audit.Errored, ErrorReason: audit.ContainerLost},
			{Status: audit.Lost, ErrorReason: audit.NodeLost},
		},
	} {
		for _, record := range records {
			record.ExecID, record.Detail = "id", "the first answer's words: 100%"
			err := refusalOf(record)
			if fault.CodeOf(err) != want {
				t.Errorf("%s, %s: %v, want %q", record.Status, record.ErrorReason, err, want)
			}
			if err != nil && (fault.From(err).ExecID != "id" || fault.From(err).Message != record.Detail) {
				t.Errorf("%s: %+v", record.Status, err)
			}
		}
	}
}

// oneOutput is artifacts with nothing but a skill's output.
type oneOutput struct{ Artifacts }

func (oneOutput) Open(context.Context, string) (io.ReadSeekCloser, Artifact, error) {
	return inMemory{bytes.NewReader([]byte("{}"))}, Artifact{Size: 2}, nil
}

// TestReplayEndsWithItsClient: it neither waits for the first exec nor validates its output for a
// client that has left.
func TestReplayEndsWithItsClient(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r := &Runner{commands: lifecycle.New(lifecycle.Config{})}
	if _, _, err := r.commands.Begin(t.Context(), lifecycle.Command{ExecID: "id"}, nil); err != nil {
		t.Fatal(err)
	}
	skill := &Skill{MaxOutput: 2, Accept: func(ctx context.Context, _ []byte) ([]byte, error) {
		cancel()
		return nil, ctx.Err()
	}}
	if _, err := r.outputOf(ctx, skill, oneOutput{}); !errors.Is(err, context.Canceled) {
		t.Errorf("its validation: %v", err)
	}
	if _, err := r.awaitEnd(ctx, audit.Record{ExecID: "id", Status: audit.Running}); !errors.Is(err, context.Canceled) {
		t.Errorf("its wait: %v", err)
	}
	for want, refusal := range map[fault.Code]error{fault.ServerBusy: fault.New(fault.ServerBusy, "busy"), "": errors.New("is no number")} {
		skill.Accept = func(context.Context, []byte) ([]byte, error) { return nil, refusal }
		if output, err := r.outputOf(t.Context(), skill, oneOutput{}); output != nil || fault.CodeOf(err) != want {
			t.Errorf("%v: %q, %v", refusal, output, err)
		}
	}
}
