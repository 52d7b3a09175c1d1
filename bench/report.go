package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what a run measured; a section that was not run or failed is nil.
type Report struct {
	Command        string     `json:"command"`
	Begun          time.Time  `json:"begun"`
	Seconds        float64    `json:"seconds"`
	Machine        Machine    `json:"machine"`
	Cold           *Answers   `json:"cold,omitempty"`
	ColdThroughput *Rates     `json:"cold_throughput,omitempty"`
	Output         *Flood     `json:"output,omitempty"`
	Warm           []Paced    `json:"warm,omitempty"`
	Uneven         []Spread   `json:"uneven,omitempty"`
	Closed         []*Rates   `json:"closed,omitempty"`
	NoCrun         string     `json:"no_crun,omitempty"` // why Closed was not measured with crun
	Burst          *Bursts    `json:"burst,omitempty"`
	Memory         *Idling    `json:"memory,omitempty"`
	Skills         *Invokes   `json:"skills,omitempty"`
	Catalog        *Catalogs  `json:"catalog,omitempty"`
	Packages       *Packaged  `json:"packages,omitempty"`
	Sandboxes      *Sandboxed `json:"sandboxes,omitempty"`
	Lists          []Listing  `json:"lists,omitempty"`
	Targets        []Target   `json:"targets"`
}

// WriteText writes the report for a person: where and how, a table per section, and at the end the targets as Markdown.
func (r Report) WriteText(w io.Writer) error {
	m := r.Machine
	fmt.Fprintf(w, "%s\n%s, %.0f s\n", r.Command, r.Begun.Format(time.RFC3339), r.Seconds)
	fmt.Fprintf(w, "%s; kernel %s; %d cores (%s), %s of memory; load at the beginning %s\n",
		m.OS, orUnknown(m.Kernel), m.Cores, orUnknown(m.CPU), binarySize(m.MemoryMB<<20), orUnknown(m.Load))
	fmt.Fprintf(w, "Docker engine %s, CLI %s, %s, cgroup v%s\n", m.EngineVersion, m.ClientVersion, m.Runtime, m.CgroupVersion)
	for _, section := range []func(io.Writer){
		r.Cold.write, r.writeColdThroughput, r.Output.write, r.writeWarm, r.writeUneven, r.writeClosed, r.Burst.write, r.Memory.write, r.Skills.write, r.Catalog.write, r.Packages.write, r.Sandboxes.write, r.writeLists, r.writeTargets,
	} {
		t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		section(t)
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// binarySize writes bytes with the largest binary unit that leaves a number of 1 or more.
func binarySize(n int64) string {
	value, unit := float64(n), 0
	for value >= 1024 && unit < 3 {
		value, unit = value/1024, unit+1
	}
	number := strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0")
	return number + " " + []string{"B", "KiB", "MiB", "GiB"}[unit]
}
