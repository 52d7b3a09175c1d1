package bench

import (
	"fmt"
	"io"
	"strings"
)

// The targets of sandboxes.
const (
	dockerExecPart   = 10   // of docker exec's time
	minDockerRate    = 10.0 // times docker exec's
	maxRunnerMore    = 3.0  // ms
	minFileRate      = 5000.0
	minStreamRatio   = 0.6
	maxTransferBytes = 64 << 20 // memory of either side
)

func (s *Sandboxed) targets() []Target {
	if s == nil {
		return nil
	}
	return append(s.Docker.targets(), s.Runner.targets()...)
}

func (c *Contained) targets() []Target {
	if c == nil {
		return nil
	}
	return []Target{{
		What: "`true` in the docker sandbox, p50", CoreAPI: fmt.Sprintf("%.1f ms", c.Exec.P50), Against: fmt.Sprintf("%.1f ms (docker exec)", c.PlainExec.P50),
		Measured: part1(c.Ratio), Wanted: fmt.Sprintf("≤ 1/%d", dockerExecPart), Reached: c.Ratio*dockerExecPart <= 1,
	}, {
		What:    fmt.Sprintf("the same, %d at once, by neighbouring rounds", c.AtOnce),
		CoreAPI: fmt.Sprintf("%.0f/s", median(c.Rates)), Against: fmt.Sprintf("%.1f/s (docker exec)", median(c.PlainRates)),
		Measured: fmt.Sprintf("%.1f×", c.PairedRatio), Wanted: fmt.Sprintf("≥ %.0f×", minDockerRate), Reached: c.PairedRatio >= minDockerRate,
	}, {
		What: fmt.Sprintf("processes that %d operations on files of the docker sandbox start", c.Operations), CoreAPI: fmt.Sprint(c.Processes),
		Measured: fmt.Sprint(c.Processes), Wanted: "0", Reached: c.Processes == 0,
	}}
}

func (l *Linked) targets() []Target {
	if l == nil {
		return nil
	}
	s := l.Large
	rate := median(l.FileRates)
	stream := func(what string, ours, theirs []float64, name string, ratio float64) Target {
		return Target{
			What: fmt.Sprintf("a file of %s %s, by neighbouring rounds", binarySize(s.Bytes), what), CoreAPI: binarySize(int64(median(ours))) + "/s",
			Against:  fmt.Sprintf("%s/s (plain HTTP %s)", binarySize(int64(median(theirs))), name),
			Measured: fmt.Sprintf("%.2f×", ratio), Wanted: fmt.Sprintf("≥ %.1f×", minStreamRatio), Reached: ratio >= minStreamRatio,
		}
	}
	out := []Target{{
		What: "`true` on a loopback runner, p50", CoreAPI: fmt.Sprintf("%.1f ms", l.Exec.P50), Against: fmt.Sprintf("%.1f ms (os/exec)", l.Start.P50),
		Measured: fmt.Sprintf("%+.1f ms", l.Overhead), Wanted: fmt.Sprintf("≤ +%.0f ms", maxRunnerMore), Reached: l.Overhead <= maxRunnerMore,
	}, {
		What:    fmt.Sprintf("%d files of %s read from a runner, %d in flight", l.Files, binarySize(int64(l.FileBytes)), l.InFlight),
		CoreAPI: fmt.Sprintf("%.0f/s", rate), Measured: fmt.Sprintf("%.0f/s", rate), Wanted: fmt.Sprintf("≥ %.0f/s", minFileRate), Reached: rate >= minFileRate,
	}, stream("from a runner", s.Read, s.Put, "PUT", s.ReadRatio), stream("to a runner", s.Write, s.Get, "GET", s.WriteRatio)}
	for _, side := range []struct {
		what string
		peak int64
	}{{"the Hub", s.HubPeak}, {"the runner", s.RunnerPeak}} {
		if side.peak > 0 {
			out = append(out, Target{
				What: "memory of " + side.what + " during these, at most", CoreAPI: binarySize(side.peak), Measured: binarySize(side.peak),
				Wanted: "< " + binarySize(maxTransferBytes), Reached: side.peak < maxTransferBytes,
			})
		}
	}
	return out
}

func (s *Sandboxed) write(w io.Writer) {
	if s == nil {
		return
	}
	if c := s.Docker; c != nil {
		fmt.Fprintf(w, "\nThe docker sandbox beside docker exec into a container with the same flags\n\n")
		fmt.Fprintf(w, "ms\tn\tp50\tp95\tmin\tmax\n")
		c.Exec.row(w, "true in the sandbox")
		c.PlainExec.row(w, "docker exec true")
		fmt.Fprintf(w, "per second, %d at once\tmedian\tby round\n", c.AtOnce)
		ratesRow(w, "in the sandbox", c.Rates, 1)
		ratesRow(w, "docker exec", c.PlainRates, 1)
		fmt.Fprintf(w, "ratio of the medians %.3f; at once, by neighbouring rounds %.2f; processes started by %d operations on files: %d\n",
			c.Ratio, c.PairedRatio, c.Operations, c.Processes)
	}
	if l := s.Runner; l != nil {
		fmt.Fprintf(w, "\nA runner on loopback; its process, and that of core-api's side, do nothing else\n\n")
		fmt.Fprintf(w, "ms\tn\tp50\tp95\tmin\tmax\n")
		l.Exec.row(w, "true on the runner")
		l.Start.row(w, "os/exec true")
		fmt.Fprintf(w, "per second\tmedian\tby round\n")
		ratesRow(w, fmt.Sprintf("files of %s, %d in flight", binarySize(int64(l.FileBytes)), l.InFlight), l.FileRates, 1)
		s := l.Large
		ratesRow(w, fmt.Sprintf("MiB of one file of %s from the runner", binarySize(s.Bytes)), s.Read, 1<<20)
		ratesRow(w, "the same by plain PUT", s.Put, 1<<20)
		ratesRow(w, "to the runner", s.Write, 1<<20)
		ratesRow(w, "the same by plain GET", s.Get, 1<<20)
		fmt.Fprintf(w, "by neighbouring rounds %.2f and %.2f of plain HTTP; memory at most %s of core-api's side, %s of the runner\n",
			s.ReadRatio, s.WriteRatio, binarySize(s.HubPeak), binarySize(s.RunnerPeak))
	}
}

func ratesRow(w io.Writer, name string, rates []float64, unit float64) {
	all := make([]string, len(rates))
	for i, r := range rates {
		all[i] = fmt.Sprintf("%.0f", r/unit)
	}
	fmt.Fprintf(w, "%s\t%.0f\t%s\n", name, median(rates)/unit, strings.Join(all, " "))
}
