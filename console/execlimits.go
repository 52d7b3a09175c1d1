package console

import (
	"fmt"
	"slices"
	"strconv"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/policy"
)

// limit is a resource that an exec used, and what it could use.
type limit struct {
	name, used, most string
	share            float64 // of the limit, from 0 to 1; negative: not known
	unmeasured       bool    // no record has what was used
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
		l := limit{name: name, used: text(used), most: text(most), share: -1}
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
	// measured adds a resource that older records, and those of other sandboxes, have no measurement of.
	measured := func(field, name string, used *int64, most string, full float64, text func(int64) string) *limit {
		if slices.Contains(snapshot.NotEnforced, field) {
			return nil
		}
		l := limit{name: name, most: most, share: -1}
		switch {
		case !rec.Status.Final():
		case unknownEnd(rec):
			l.used = "not known"
		case used == nil:
			l.unmeasured = true
		default:
			l.used = text(*used)
			if full > 0 {
				l.share = min(float64(*used)/full, 1)
			}
		}
		out = append(out, l)
		return &out[len(out)-1]
	}
	memory := measured("memory_mb", "Memory", rec.MaxRSSBytes, ui.Bytes(values.MemoryMB<<20), float64(values.MemoryMB<<20), func(n int64) string {
		return ui.Bytes(n) + " in its largest process"
	})
	if memory != nil && rec.OOMEvents > 0 {
		memory.used, memory.share, memory.unmeasured = "exceeded "+times(rec.OOMEvents), 1, false
	}
	measured("cpu_cores", "CPU", rec.CPUUS, cores(values.CPUCores), float64(rec.DurationMS)*1000*values.CPUCores, func(us int64) string {
		return ui.Duration((us+500)/1000) + " of CPU time"
	})
	unmeasured := func(field, name, most string) {
		if !slices.Contains(snapshot.NotEnforced, field) {
			out = append(out, limit{name: name, most: most, share: -1, unmeasured: true})
		}
	}
	unmeasured("pids", "Processes", ui.Count(values.PIDs))
	if last := len(out) - 1; last >= 0 && out[last].name == "Processes" && rec.ErrorReason == audit.PIDsLimit {
		out[last].unmeasured, out[last].used, out[last].share = false, "at the limit", 1
	}
	unmeasured("tmp_mb", "/tmp", ui.Bytes(values.TmpMB<<20))
	unmeasured(policy.FieldShmMB, "/dev/shm", ui.Bytes(values.ShmMB<<20))
	return out
}

// cores is a number of processors.
func cores(n float64) string {
	if n == 1 {
		return "1 core"
	}
	return strconv.FormatFloat(n, 'f', -1, 64) + " cores"
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
