package health

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"secbox/engine"
)

// WriteJSON writes the diagnosis as JSON; its member "ok" sums it up.
func (d Diagnosis) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(struct {
		OK bool `json:"ok"`
		Diagnosis
	}{d.OK(), d})
}

// WriteText writes the diagnosis as text in columns, with a remedy for each problem.
func (d Diagnosis) WriteText(w io.Writer) error {
	var b strings.Builder
	d.writeHealth(&b)
	d.writeProbes(&b)
	failed := 0
	for _, p := range d.Probes {
		if !p.OK {
			failed++
		}
	}
	switch {
	case d.OK():
		fmt.Fprintf(&b, "\nAn exec could run, and all %d limits hold.\n", len(d.Probes))
	case d.Health.Status == Unavailable:
		b.WriteString("\nAn exec could not run.\n")
	case len(d.Probes) > 0 && !d.Probes[0].OK:
		b.WriteString("\nNot even a harmless job could run, so nothing could be measured.\n")
	default:
		fmt.Fprintf(&b, "\n%d of %d probes failed: do not run untrusted jobs on this engine.\n", failed, len(d.Probes))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (d Diagnosis) writeHealth(b *strings.Builder) {
	r := d.Health
	yes := map[bool]string{true: "yes", false: "no"}
	rows := [][2]string{
		{"core-api", join(r.Version, "node "+r.NodeID, "mode "+r.RuntimeMode)},
		{"docker", join(r.DockerCLIPath, word("context", r.DockerContext))},
		{"engine", join(r.Engine, r.DockerVersion, word("runtime", r.EngineRuntime), word("cgroup v", r.CgroupVersion))},
		{"workspace", join(r.WorkspaceRootNative, "writable: "+yes[r.WorkspaceWritable])},
		{"database", r.Database},
		{"jobs", join("user "+r.ContainerUser, "image present: "+yes[r.ImagePresent])},
		{"pool", poolText(r)},
		{"skills", fmt.Sprintf("%d loaded, %d broken", r.Skills.Loaded, r.Skills.Broken)},
		{"health", string(r.Status)},
	}
	for _, row := range rows {
		fmt.Fprintf(b, "%-10s %s\n", row[0], row[1])
	}
	if len(r.Problems) == 0 {
		return
	}
	b.WriteString("\nProblems\n")
	width := 0
	for _, p := range r.Problems {
		width = max(width, len(p.Check))
	}
	for _, p := range r.Problems {
		fmt.Fprintf(b, "  %-*s  %s\n", width, p.Check, p.Reason)
		fmt.Fprintf(b, "  %-*s  remedy: %s\n", width, "", p.Remedy)
	}
}

func poolText(r Report) string {
	switch {
	case r.PoolNotSharedBecause == notTried:
		return notTried
	case r.PoolShared:
		return "a container that waits serves any project"
	case strings.HasPrefix(r.PoolNotSharedBecause, engine.NotKnownYet):
		return "whether a container that waits serves any project is " + r.PoolNotSharedBecause
	}
	return "a container that waits serves one project only: " + r.PoolNotSharedBecause
}

func (d Diagnosis) writeProbes(b *strings.Builder) {
	b.WriteString("\nProbes\n")
	width := 0
	for _, p := range d.Probes {
		width = max(width, len(p.Name))
	}
	for _, p := range d.Probes {
		switch {
		case p.OK:
			fmt.Fprintf(b, "  ok    %-*s  %s\n", width, p.Name, p.Seen)
		case p.Seen == notTried:
			fmt.Fprintf(b, "  -     %-*s  %s\n", width, p.Name, p.Seen)
		default:
			fmt.Fprintf(b, "  FAIL  %-*s  %s\n", width, p.Name, p.Seen)
			fmt.Fprintf(b, "        %-*s  expected: %s\n", width, "", p.Expected)
			fmt.Fprintf(b, "        %-*s  remedy: %s\n", width, "", p.Remedy)
		}
	}
	switch reported := func(p Problem) bool { return strings.Contains(p.Reason, d.NotTried) }; {
	case d.NotTried == "":
	case slices.ContainsFunc(d.Health.Problems, reported):
		b.WriteString("  Not tried, for the reason above.\n")
	default:
		fmt.Fprintf(b, "  Not tried, because: %s\n", d.NotTried)
	}
}

// word is "name value", and nothing without a value.
func word(name, value string) string {
	switch {
	case value == "":
		return ""
	case strings.HasSuffix(name, " v"):
		return name + value
	}
	return name + " " + value
}

// join leaves out empty parts.
func join(parts ...string) string {
	var present []string
	for _, p := range parts {
		if p != "" {
			present = append(present, p)
		}
	}
	if len(present) == 0 {
		return "-"
	}
	return strings.Join(present, ", ")
}
