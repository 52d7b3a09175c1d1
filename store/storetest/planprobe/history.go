package planprobe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	"secbox/audit"
)

// historySpan is the time that the execs of Histories cover.
const historySpan = 60 * 24 * time.Hour

// The tokens of Histories: of ten thousand execs MostBy has nine thousand, FewBy has one, and four
// others share the rest.
const (
	MostBy = "token-most"
	FewBy  = "token-few"
)

// Histories generates n execs of the 60 days before a time, as they were opened and as they ended:
// of 1,000 projects, 200 users, 30 skills and all statuses, with commands of 20 to 400 bytes. The
// same arguments give the same execs.
func Histories(n int, until time.Time) iter.Seq2[audit.Record, audit.Record] {
	return func(yield func(opened, ended audit.Record) bool) {
		for i := range n {
			if !yield(history(i, n, until)) {
				return
			}
		}
	}
}

// endings are what the execs of Histories come to, with the share of each in a thousand. Those
// without an exit code have nil.
var endings = []struct {
	share    int
	status   audit.Status
	reason   audit.Reason
	exitCode *int
}{
	{60, audit.Failed, audit.NonzeroExit, new(1)},
	{20, audit.Failed, audit.NonzeroExit, new(127)},
	{15, audit.Rejected, audit.PolicyDenied, nil},
	{8, audit.Rejected, audit.Forbidden, nil},
	{12, audit.Timeout, audit.ReasonTimeout, nil},
	{6, audit.OOMKilled, audit.OOM, new(137)},
	{4, audit.Failed, audit.PIDsLimit, new(1)},
	{3, audit.Failed, audit.DiskLimit, new(1)},
	{9, audit.Canceled, audit.ReasonCanceled, nil},
	{2, audit.Errored, audit.StartFailed, nil},
	{2, audit.Lost, audit.NodeLost, nil},
	{7, audit.Failed, audit.InvalidOutput, new(0)},
}

var compactSnapshot = func() json.RawMessage {
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(snapshot)); err != nil {
		panic(err)
	}
	return b.Bytes()
}()

// history is the i-th of Histories.
func history(i, n int, until time.Time) (opened, ended audit.Record) {
	mixed := int(uint64(i) * 0x9e3779b97f4a7c15 >> 40) // so that neighbours differ
	opened = Exec(i, max(n, ExecsPerTask))
	opened.CreatedAt = until.UTC().Truncate(time.Second).Add(-historySpan +
		historySpan/time.Duration(n)*time.Duration(i)).Truncate(time.Microsecond)
	opened.ExecID, opened.Kind = execID(opened.CreatedAt, i), ""
	opened.ProjectID, opened.UserID = fmt.Sprintf("project-%03d", mixed%1000), fmt.Sprintf("user-%03d", mixed%200)
	opened.SkillID, opened.SkillDigest = "", ""
	if mixed%3 == 0 {
		opened.SkillID, opened.SkillDigest = fmt.Sprintf("skill.number%d", mixed%30), fmt.Sprintf("%064x", mixed%30)
	}
	opened.PolicySnapshot = compactSnapshot        // as core-api writes it
	script := fmt.Sprintf("python3 main.py %d", i) // with bash and -lc some 20 bytes
	opened.Args = []string{"-lc", script + strings.Repeat(" && ls -l /workspace/artifacts", mixed%13)}
	opened.ReplayOf, opened.InputsKept, opened.TraceID, opened.SpanID = "", "", "", ""
	switch share := i % 10_000; {
	case share == 0:
		opened.RequestedBy = FewBy
	case share%10 == 1:
		opened.RequestedBy = fmt.Sprintf("token-%d", i/10%4)
	default:
		opened.RequestedBy = MostBy
	}
	switch mixed % 20 {
	case 0:
		opened.Backend, opened.Runner = audit.BackendRemote, "laptop"
	case 1:
		opened.Backend, opened.Runner = audit.BackendNone, ""
	default:
		opened.Backend, opened.Runner = audit.BackendDocker, ""
	}

	opened.Status, opened.ErrorReason, opened.ExitCode, opened.EndedAt, opened.DurationMS = audit.Running, "", nil, time.Time{}, 0
	opened.StartedAt = opened.CreatedAt.Add(2 * time.Millisecond)
	opened.ArtifactsPath, opened.ManifestDigest, opened.StdoutBytes, opened.ArtifactsBytes = "", "", 0, 0
	took := time.Duration(5+mixed%60_000) * time.Millisecond

	ended = opened
	ended.Status, ended.ExitCode = audit.Succeeded, new(0)
	at := mixed % 1000
	for _, e := range endings {
		if at < e.share {
			ended.Status, ended.ErrorReason, ended.ExitCode = e.status, e.reason, e.exitCode
			break
		}
		at -= e.share
	}
	ended.EndedAt, ended.DurationMS = ended.StartedAt.Add(took), took.Milliseconds()
	switch {
	case ended.Status == audit.Rejected: // refused before it could start
		ended.StartedAt, ended.EndedAt, ended.DurationMS = time.Time{}, ended.CreatedAt, 0
		opened = ended
	case ended.Backend == audit.BackendDocker && ended.Status != audit.Lost:
		ended.ArtifactsPath = "projects/" + ended.ProjectID + "/artifacts/" + ended.ExecID
		ended.ManifestDigest = "sha256:" + strings.Repeat("fedcba9876543210", 4)
		ended.StdoutBytes, ended.ArtifactsBytes = int64(mixed%5000), int64(mixed%100_000)
	}
	return opened, ended
}

// FillHistories loads Histories(n, until) into an empty database. The newest logged of them get
// their events.
func FillHistories(ctx context.Context, db Database, n, logged int, until time.Time) error {
	return db.LoadHistories(ctx, n-logged, Histories(n, until))
}
