package console

import (
	"fmt"
	"slices"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/policy"
)

// limit is a resource that an exec used, and what it could use.
type limit struct {
	name, used, most string
	share            float64 // of the limit, from 0 to 1; negative: not known
}

// limitsOf returns the resources whose limits were enforced; nil without a policy, and for an exec that never ran.
func limitsOf(rec audit.Record) []limit {
	snapshot, err := policy.ParseSnapshot(rec.PolicySnapshot)
	if err != nil || neverRan(rec) {
		return nil
	}
	values := snapshot.Values
	var out []limit
	add := func(field, name string, used, most int64, text func(int64) string) {
		if slices.Contains(snapshot.NotEnforced, field) {
			return
		}
		l := limit{name, text(used), text(most), -1}
		switch {
		case !rec.Status.Final():
			l.used = ""
		case unknownEnd(rec):
			l.used = "not known"
		case most > 0:
			l.share = min(float64(used)/float64(most), 1)
		}
		out = append(out, l)
	}
	add(policy.FieldTimeoutMS, "Time", rec.DurationMS, values.TimeoutMS, ui.Duration)
	add(policy.FieldMaxStdoutBytes, "Standard output", rec.StdoutBytes, values.MaxStdoutBytes, ui.Bytes)
	add(policy.FieldMaxStderrBytes, "Standard error", rec.StderrBytes, values.MaxStderrBytes, ui.Bytes)
	add(policy.FieldMaxArtifacts, "Artifacts", rec.ArtifactsBytes, values.MaxArtifactsBytesTotal, ui.Bytes)
	add("memory_mb", "Memory", rec.OOMEvents, values.MemoryMB<<20, ui.Bytes)
	if memory := len(out) - 1; memory >= 0 && out[memory].name == "Memory" && out[memory].share >= 0 { // no record has how much was used
		out[memory].used, out[memory].share = "within the limit", -1
		if n := rec.OOMEvents; n > 0 {
			out[memory].used, out[memory].share = "exceeded "+times(n), 1
		}
	}
	return out
}

// times is how often something happened.
func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%s times", ui.Count(n))
}

// unknownEnd reports whether the end of an exec was never reported, so that its record does not say what it used.
func unknownEnd(rec audit.Record) bool {
	return rec.Status == audit.Lost || rec.ErrorReason == audit.ContainerLost
}
