package view

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/policy"
	"secbox/runner/output"
)

// Limit is a resource that an exec used, and what it could use.
type Limit struct {
	Field            string // of the policy
	Name, Used, Most string
	Share            float64 // of the limit, from 0 to 1; negative: not known
	Unmeasured       bool    // no record has what was used
	Live             bool    // what is used comes with the events of the page
}

// LiveUsage is the data of an event with what a running exec uses: by field of the policy, a text
// for readers and the share of the limit.
func LiveUsage(rec audit.Record, u output.Usage) []byte {
	type used struct {
		Text  string  `json:"text"`
		Share float64 `json:"share"`
	}
	out := map[string]used{}
	if snapshot, err := policy.ParseSnapshot(rec.PolicySnapshot); err == nil {
		v := snapshot.Values
		out[policy.FieldMemoryMB] = used{ui.Bytes(u.MemoryBytes) + " now", min(1, float64(u.MemoryBytes)/float64(max(1, v.MemoryMB<<20)))}
		out[policy.FieldCPUCores] = used{
			fmt.Sprintf("%.2f now, %s in all", u.Cores, ui.Duration(u.CPU.Milliseconds())), min(1, u.Cores/max(0.01, v.CPUCores)),
		}
	}
	data, err := json.Marshal(out)
	if err != nil {
		panic(err) // it is made of texts and numbers
	}
	return data
}

// resource is how the page shows a limit of the policy.
type resource struct {
	name string
	most func(limit float64) string
	used func(rec audit.Record, limit float64) (used *int64, full float64) // in one unit; used is nil where nothing was measured
	text func(used int64) string
	hit  func(rec audit.Record) string // says that the limit was reached; empty: it was not, or that is not known
}

// limited is the limits that have more to show than a name and a number.
var limited = map[string]resource{
	policy.FieldTimeoutMS:      measured("Time", ui.Duration, func(r audit.Record) int64 { return r.DurationMS }),
	policy.FieldMaxStdoutBytes: measured("Standard output", ui.Bytes, func(r audit.Record) int64 { return r.StdoutBytes }),
	policy.FieldMaxStderrBytes: measured("Standard error", ui.Bytes, func(r audit.Record) int64 { return r.StderrBytes }),
	policy.FieldMaxArtifacts:   measured("Artifacts", ui.Bytes, func(r audit.Record) int64 { return r.ArtifactsBytes }),
	policy.FieldMemoryMB: {
		name: "Memory", most: mib,
		used: func(r audit.Record, limit float64) (*int64, float64) { return r.MaxRSSBytes, limit * (1 << 20) },
		text: func(n int64) string { return ui.Bytes(n) + " in its largest process" },
		hit: func(r audit.Record) string {
			if r.OOMEvents == 0 {
				return ""
			}
			return "exceeded " + times(r.OOMEvents)
		},
	},
	policy.FieldCPUCores: {
		name: "CPU", most: cores,
		used: func(r audit.Record, limit float64) (*int64, float64) {
			return r.CPUUS, limit * 1000 * float64(r.DurationMS)
		},
		text: func(us int64) string { return ui.Duration((us+500)/1000) + " of CPU time" },
	},
	policy.FieldPIDs: {
		name: "Processes", most: whole(ui.Count),
		hit: func(r audit.Record) string {
			if r.ErrorReason != audit.PIDsLimit {
				return ""
			}
			return "at the limit"
		},
	},
	policy.FieldTmpMB: {name: "/tmp", most: mib},
	policy.FieldShmMB: {name: "/dev/shm", most: mib},
	policy.FieldNetMaxBytes: measured("Bytes over the network, each way", ui.Bytes, func(r audit.Record) int64 {
		return max(r.NetBytesOut, r.NetBytesIn)
	}),
	policy.FieldNetMaxConnections: measured("Connections", ui.Count, func(r audit.Record) int64 { return r.NetConnections }),
}

func whole(text func(int64) string) func(float64) string {
	return func(n float64) string { return text(int64(n)) }
}

func mib(n float64) string { return ui.Bytes(int64(n) << 20) }

// measured makes a resource that has a measurement in every record.
func measured(name string, text func(int64) string, used func(audit.Record) int64) resource {
	return resource{name: name, most: whole(text), text: text, used: func(rec audit.Record, limit float64) (*int64, float64) {
		return new(used(rec)), limit
	}}
}

// Limits returns the numbers of the policy that were enforced; nil without a policy, and for an
// exec that never ran.
func Limits(rec audit.Record) []Limit {
	snapshot, err := policy.ParseSnapshot(rec.PolicySnapshot)
	if err != nil || neverRan(rec) {
		return nil
	}
	var out []Limit
	for _, field := range policy.Describe() {
		switch {
		case field.Name == policy.FieldKillGraceMS, field.Name == policy.FieldNetIdleMS, field.Name == policy.FieldNetConnections,
			field.Name == policy.FieldTimeoutMS && rec.IsSession(), // no resource, or an exec's
			strings.HasPrefix(field.Name, "net.") && snapshot.Values.NetMode == policy.NetNone:
			continue
		}
		r, ok := limited[field.Name]
		if !ok {
			r = resource{name: field.Name, most: decimal}
		}
		switch n := snapshot.Fields[field.Name].Value.(type) { // nil: not enforced
		case int64:
			out = append(out, r.limit(rec, field.Name, float64(n)))
		case float64:
			out = append(out, r.limit(rec, field.Name, n))
		}
	}
	return out
}

func (r resource) limit(rec audit.Record, field string, most float64) Limit {
	l := Limit{Field: field, Name: r.name, Most: r.most(most), Share: -1}
	switch {
	case r.used == nil:
		l.Unmeasured = true
	case !rec.Status.Final():
		l.Live = field == policy.FieldMemoryMB || field == policy.FieldCPUCores
	case EndUnknown(rec):
		l.Used = "not known"
	default:
		used, full := r.used(rec, most)
		if l.Unmeasured = used == nil; !l.Unmeasured {
			l.Used = r.text(*used)
			if full > 0 {
				l.Share = min(float64(*used)/full, 1)
			}
		}
	}
	if r.hit != nil && r.hit(rec) != "" {
		l.Used, l.Share, l.Unmeasured = r.hit(rec), 1, false
	}
	return l
}

// cores is a number of processors.
func cores(n float64) string {
	if n == 1 {
		return "1 core"
	}
	return decimal(n) + " cores"
}

func decimal(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// times is how often something happened.
func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%s times", ui.Count(n))
}

// EndUnknown reports whether the end of an exec was never reported, so that its record does not say
// what it used.
func EndUnknown(rec audit.Record) bool {
	return rec.Status == audit.Lost || rec.ErrorReason == audit.ContainerLost
}
