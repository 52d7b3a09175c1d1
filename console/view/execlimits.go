package view

import (
	"fmt"
	"slices"
	"strconv"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/policy"
)

// Limit is a resource that an exec used, and what it could use.
type Limit struct {
	Name, Used, Most string
	Share            float64 // of the limit, from 0 to 1; negative: not known
	Unmeasured       bool    // no record has what was used
}

// Limits returns the resources whose limits were enforced; nil without a policy, and for an exec that never ran.
func Limits(rec audit.Record) []Limit {
	snapshot, err := policy.ParseSnapshot(rec.PolicySnapshot)
	if err != nil || neverRan(rec) {
		return nil
	}
	values := snapshot.Values
	var out []Limit
	add := func(field, name string, used, most int64, text func(int64) string) {
		if slices.Contains(snapshot.NotEnforced, field) {
			return
		}
		l := Limit{Name: name, Used: text(used), Most: text(most), Share: -1}
		switch {
		case !rec.Status.Final():
			l.Used = ""
		case EndUnknown(rec):
			l.Used = "not known"
		case most > 0:
			l.Share = min(float64(used)/float64(most), 1)
		}
		out = append(out, l)
	}
	add(policy.FieldTimeoutMS, "Time", rec.DurationMS, values.TimeoutMS, ui.Duration)
	add(policy.FieldMaxStdoutBytes, "Standard output", rec.StdoutBytes, values.MaxStdoutBytes, ui.Bytes)
	add(policy.FieldMaxStderrBytes, "Standard error", rec.StderrBytes, values.MaxStderrBytes, ui.Bytes)
	add(policy.FieldMaxArtifacts, "Artifacts", rec.ArtifactsBytes, values.MaxArtifactsBytesTotal, ui.Bytes)
	// measured adds a resource that older records, and those of other sandboxes, have no measurement of.
	measured := func(field, name string, used *int64, most string, full float64, text func(int64) string) *Limit {
		if slices.Contains(snapshot.NotEnforced, field) {
			return nil
		}
		l := Limit{Name: name, Most: most, Share: -1}
		switch {
		case !rec.Status.Final():
		case EndUnknown(rec):
			l.Used = "not known"
		case used == nil:
			l.Unmeasured = true
		default:
			l.Used = text(*used)
			if full > 0 {
				l.Share = min(float64(*used)/full, 1)
			}
		}
		out = append(out, l)
		return &out[len(out)-1]
	}
	memory := measured("memory_mb", "Memory", rec.MaxRSSBytes, ui.Bytes(values.MemoryMB<<20), float64(values.MemoryMB<<20), func(n int64) string {
		return ui.Bytes(n) + " in its largest process"
	})
	if memory != nil && rec.OOMEvents > 0 {
		memory.Used, memory.Share, memory.Unmeasured = "exceeded "+times(rec.OOMEvents), 1, false
	}
	measured("cpu_cores", "CPU", rec.CPUUS, cores(values.CPUCores), float64(rec.DurationMS)*1000*values.CPUCores, func(us int64) string {
		return ui.Duration((us+500)/1000) + " of CPU time"
	})
	unmeasured := func(field, name, most string) {
		if !slices.Contains(snapshot.NotEnforced, field) {
			out = append(out, Limit{Name: name, Most: most, Share: -1, Unmeasured: true})
		}
	}
	unmeasured("pids", "Processes", ui.Count(values.PIDs))
	if last := len(out) - 1; last >= 0 && out[last].Name == "Processes" && rec.ErrorReason == audit.PIDsLimit {
		out[last].Unmeasured, out[last].Used, out[last].Share = false, "at the limit", 1
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

// EndUnknown reports whether the end of an exec was never reported, so that its record does not say what it used.
func EndUnknown(rec audit.Record) bool {
	return rec.Status == audit.Lost || rec.ErrorReason == audit.ContainerLost
}
