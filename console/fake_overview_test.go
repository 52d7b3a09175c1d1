package console_test

import (
	"context"
	"time"

	"secbox/access/tokens"
	"secbox/audit"
)

// Recent returns what the test says; nothing, but completely, unless it says anything.
func (f *fakeApp) Recent(_ context.Context, _ tokens.Token, hours int) (audit.Recent, error) {
	if f.recent == nil {
		return audit.Recent{Complete: true}, nil
	}
	return f.recent(hours), nil
}

// busyMonth has execs in each third of the hours of 30 days before a time.
func busyMonth(now time.Time) audit.Recent {
	out := audit.Recent{Complete: true}
	for i := 0; i < 720; i += 3 {
		hour := now.UTC().Truncate(time.Hour).Add(-time.Duration(i) * time.Hour)
		for _, h := range []audit.HourCount{
			{Status: audit.Succeeded, Execs: 1000 + int64(i)},
			{Status: audit.Failed, ErrorReason: audit.NonzeroExit, Execs: 7},
			{Status: audit.Timeout, ErrorReason: audit.ReasonTimeout, Execs: 2},
			{Status: audit.Rejected, ErrorReason: audit.PolicyDenied, Execs: 3},
		} {
			h.Hour = hour
			out.Hours = append(out.Hours, h)
		}
	}
	for i, status := range []audit.Status{audit.Succeeded, audit.Failed, audit.Canceled} {
		out.Slowest = append(out.Slowest, audit.SlowExec{
			ExecID: execID(10 + i), CreatedAt: now.Add(-time.Hour), Status: status, SkillID: "shell.run",
			DurationMS: int64(100_000 - i),
		})
	}
	out.Slowest[2].SkillID, out.Slowest[2].Cmd, out.Slowest[2].Args = "", "bash", []string{"-lc", "sleep 99"}
	return out
}

// hostileMonth is busyMonth with a text for each status, reason and skill.
func hostileMonth(now time.Time, s string) audit.Recent {
	out := busyMonth(now)
	for i := range out.Hours {
		out.Hours[i].ErrorReason = audit.Reason(s)
		if i%8 == 0 {
			out.Hours[i].Status = audit.Status(s)
		}
	}
	for i := range out.Slowest {
		out.Slowest[i].Status, out.Slowest[i].SkillID = audit.Status(s), s
	}
	out.Slowest[2].SkillID, out.Slowest[2].Cmd, out.Slowest[2].Args = "", s, []string{s}
	return out
}
