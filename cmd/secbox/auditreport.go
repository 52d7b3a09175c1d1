package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"secbox/audit/report"
)

// checkReport verifies the bundle of a report, and prints the report. Strings are quoted, since
// jobs and clients chose them.
func checkReport(file io.Reader, key string, witnesses []string, stdout io.Writer) error {
	r, err := report.CheckBundle(file, key, witnesses...)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "The log %s has all %d entries of the file, and the report is what they say.\n", r.Origin, r.Entries+r.Extras)
	out := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "span\t%s\tuntil %s\n", moment(r.Report.Since), moment(r.Report.Until))
	fmt.Fprintf(out, "complete\t%s\n", completeness(r))
	fmt.Fprintf(out, "made\t%s\tfor %q %s\n", moment(r.CreatedAt), r.By.Type, named(map[string]string{r.By.ID: r.By.Name}, r.By.ID))
	fmt.Fprintf(out, "checkpoint\t%d entries, root %s\n", r.Tree.N, r.Tree.Hash)
	printCosigned(out, r.Cosignatures)
	fmt.Fprintf(out, "ran\t%s, %s of files\t%s\n", many(r.Report.Execs, "exec"), many(r.Report.Changes, "change"),
		statuses(r.Report.ByStatus))
	for _, w := range r.Report.Who {
		fmt.Fprintf(out, "  by\t%s\tuser %q, agent %q, project %q, skill %q\t%d %q\t%s\n", named(r.Names, w.RequestedBy), w.UserID, w.AgentID,
			w.ProjectID, w.SkillID, w.Count, w.Kind, statuses(w.ByStatus))
		if w.Unrecorded > 0 {
			fmt.Fprintf(out, "  refused\t%s\n", requests(w.Refusals))
		}
	}
	if r.Report.WhoOmitted > 0 {
		fmt.Fprintf(out, "  by\tothers\t%d\n", r.Report.WhoOmitted)
	}
	if n := r.Report.Requests; n > 0 {
		fmt.Fprintf(out, "refused\t%s\n", requests(r.Report.Refusals))
	}
	for _, x := range r.Report.Refused {
		fmt.Fprintf(out, "  for\t%q\t%s\n", x.Reason, requests(x.Refusals))
		for _, e := range x.Examples {
			fmt.Fprintf(out, "  at\t%s\t%q\tby %s\t%q, in %s\n", moment(e.At), e.ExecID, named(r.Names, e.RequestedBy), e.Message,
				many(e.Records, "row"))
		}
		if n := x.Messages - int64(len(x.Examples)); n > 0 {
			fmt.Fprintf(out, "  older\t%s\n", many(n, "other message"))
		}
	}
	for _, x := range r.Report.Events {
		fmt.Fprintf(out, "%s\t%d\t%q\n", areaName(x.Area), x.Count, x.Kind)
		if x.Area.Changed() {
			for _, e := range x.Examples {
				fmt.Fprintf(out, "  at\t%s\t%s\tby %q %s\n", moment(e.At), named(r.Names, e.Subject), e.Actor.Type,
					named(map[string]string{e.Actor.ID: e.Actor.Name}, e.Actor.ID))
			}
		}
	}
	for _, x := range r.Report.Removed {
		fmt.Fprintf(out, "removed\t%d\t%q\tby the rule %q\n", x.Count, x.Part, x.Rule)
	}
	printUnproven(out, r)
	return out.Flush()
}

func printUnproven(out io.Writer, r report.Result) {
	if n := r.Report.Gaps.Removed; n > 0 {
		fmt.Fprintf(out, "not in the file\t%d entries\ttheir events were removed by retention, as an event of the log says\n", n)
	}
	if n := r.Report.Gaps.Unknown; n > 0 {
		fmt.Fprintf(out, "NOT PROVEN\t%d entries\ttheir events are missing, and no event of the file says why; the first: %v\n", n, r.Report.Gaps.First)
	}
	if n := r.Unproven.NotLogged; n > 0 {
		fmt.Fprintf(out, "NOT PROVEN\t%d\texecs or events that the log did not have yet, as core-api says: %q\n", n, r.Unproven.Waiting)
	}
	if n := r.Unproven.Altered; n > 0 {
		fmt.Fprintf(out, "ALTERED\t%d\tdifferences between the database and the log, as core-api says\n", n)
		for _, d := range r.Unproven.Differences {
			fmt.Fprintf(out, "  exec\t%q\t%q: expected %q, found %q\n", d.ExecID, d.What, d.Expected, d.Found)
		}
	}
}

// completeness says whether the log can have more of the span. A checkpoint from before its end, or
// an old one, cannot show what the log got afterwards.
func completeness(r report.Result) string {
	switch {
	case r.Begins && r.Ends && r.Last.IsZero():
		return "as far as the checkpoint goes, whose last entry has lost its event; compare with a newer checkpoint"
	case r.Begins && r.Ends && r.Last.Before(r.Report.Until):
		return "as far as the checkpoint goes, whose last entry is of " + moment(r.Last) + "; compare with a newer checkpoint"
	case r.Begins && r.Ends:
		return "yes: the log has nothing else of this time"
	case r.Begins:
		return "not shown at the end: the entry after it has lost its event"
	case r.Ends:
		return "not shown at the begin: the entry before it has lost its event"
	}
	return "not shown: the entries around it have lost their events"
}

func areaName(a report.Area) string {
	if a.Changed() {
		return "changed " + string(a)
	}
	return string(a)
}

func statuses(counts map[string]int64) string {
	var list []string
	for _, status := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%d %q", counts[status], status))
	}
	return strings.Join(list, ", ")
}

// named returns an id with its name, if there is another one.
func named(names map[string]string, id string) string {
	if name := names[id]; name != "" && name != id {
		return fmt.Sprintf("%q named %q", id, name)
	}
	return strconv.Quote(id)
}

// requests says how many requests were refused, and how many of these have no records.
func requests(r report.Refusals) string {
	return many(r.Requests, "request") + r.WithoutRows(func(n int64) string { return strconv.FormatInt(n, 10) })
}

func moment(t time.Time) string { return t.Format(time.RFC3339Nano) }

func many(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
