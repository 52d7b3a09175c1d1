package bench

import (
	"fmt"
	"io"
)

func (l Latency) write(w io.Writer) {
	fmt.Fprintf(w, "ms\tn\tp50\tp95\tmin\tmax\n")
	l.CoreAPI.row(w, "core-api")
	l.DockerRun.row(w, "docker run")
	if l.GoJudge != nil {
		l.GoJudge.row(w, "go-judge")
	}
	fmt.Fprintf(w, "p50 %s of docker run's, p95 %s\n", part1(l.Ratio), part1(l.RatioP95))
	fmt.Fprintf(w, "%s\n", ofPool(l.Hits, l.Misses))
	writePhases(w, l.Phases)
	if l.ServerCPU > 0 {
		fmt.Fprintf(w, "\nCPU of core-api itself per exec\t%.1f ms\n", l.ServerCPU)
	}
}

// part1 writes a small ratio as one part of many.
func part1(ratio float64) string { return fmt.Sprintf("1/%.1f", 1/ratio) }

func ofPool(hits, misses int) string { return fmt.Sprintf("pool: %d hits, %d misses", hits, misses) }

func (r Report) writeWarm(w io.Writer) {
	for _, p := range r.Warm {
		fmt.Fprintf(w, "\nWarm: POST /sandbox/execs of %s to its answer, plain docker run with the same flags to its end\n", p.Job)
		fmt.Fprintf(w, "a turn every %.0f ms; %d of %d turns started late, since the one before took longer\n\n", p.Pace, p.Late, p.Turns)
		p.write(w)
	}
}

func (r Report) writeUneven(w io.Writer) {
	for _, s := range r.Uneven {
		fmt.Fprintf(w, "\nUneven: %s, arrivals at random, %.0f ms apart on average, of %d projects (seed %d); %d blocks in turn with docker run, which runs one at a time\n\n",
			s.Job, s.Mean, s.Projects, s.Seed, s.Blocks)
		s.write(w)
	}
}

func (r Report) writeClosed(w io.Writer) {
	for _, t := range r.Closed {
		fmt.Fprintf(w, "\nClosed loop%s: rounds of %d, %d at a time, until the last container is gone and the pool is as full as before; core-api may run as many at once\n\n",
			with(t.Runtime), t.RoundExecs, t.Concurrency)
		t.write(w)
		fmt.Fprintf(w, "%s\n", ofPool(t.Hits, t.Misses))
	}
	if r.NoCrun != "" {
		fmt.Fprintf(w, "\nClosed loop: %s\n", r.NoCrun)
	}
}

func (b *Bursts) write(w io.Writer) {
	if b == nil {
		return
	}
	fmt.Fprintf(w, "\nBurst: %d execs at once to the last answer, with %d slots idle; %d docker runs at once to the last end\n\n", b.Execs, b.Idle, b.Execs)
	fmt.Fprintf(w, "ms\tn\tp50\tp95\tmin\tmax\n")
	b.CoreAPI.row(w, "core-api")
	b.DockerRun.row(w, "docker run")
	fmt.Fprintf(w, "ratio of the medians %.3f; %s\n", b.Ratio, ofPool(b.Hits, b.Misses))
}

func (i *Idling) write(w io.Writer) {
	if i == nil {
		return
	}
	fmt.Fprintf(w, "\nMemory of %d idle slots; PSS counts pages that processes share in parts, RSS in full\n\n", i.Slots)
	fmt.Fprintf(w, "MB (10^6 bytes)\tPSS\tRSS\n")
	for _, part := range []struct {
		name string
		Held
	}{{"docker CLI", i.CLI}, {"shim", i.Shim}, {"sandbox-init", i.Init}, {"its part of core-api's other children", i.Others}, {"a slot", i.Slot}, {"core-api itself", i.CoreAPI}} {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\n", part.name, megabytes(part.PSS), megabytes(part.RSS))
	}
	fmt.Fprintf(w, "core-api held at most %s\n", binarySize(i.CoreAPIPeak))
}

func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }
