package runner

import (
	"testing"

	"secbox/audit"
	"secbox/fault"
)

// TestARefusalIsReplayedAsOne: a second request under the key of one that was refused must not read as an exec with a result.
func TestARefusalIsReplayedAsOne(t *testing.T) {
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
