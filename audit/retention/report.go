package retention

import (
	"context"
	"slices"
	"time"

	"secbox/fault"
)

// Plan is what a run would remove by one rule.
type Plan struct {
	Rule    string    `json:"rule"`
	Days    int64     `json:"days"`
	Hours   int64     `json:"hours,omitempty"` // of a rule in hours
	Before  time.Time `json:"before"`
	Due     int64     `json:"due"`   // execs; of the rule's projects: projects
	Bytes   int64     `json:"bytes"` // of their artifacts, or of their events and the artifacts that are left
	Kept    int64     `json:"kept"`  // of older execs: open, lost and not settled, or not in the transparency log
	Held    int64     `json:"held"`
	Altered int64     `json:"altered"` // not as the transparency log says
}

// DryRun tells what runs would remove, and removes nothing.
func (r *Runner) DryRun(ctx context.Context) ([]Plan, error) {
	state, err := r.cfg.Store.State(ctx)
	if err != nil {
		return nil, err
	}
	plans := []Plan{}
	rules := r.rules(state.Now)
	for i, q := range rules {
		q.Sizes = true
		if i > 0 { // each exec counts once
			q.RecordsBefore, q.RecordsLostBefore = rules[0].Before, rules[0].LostBefore
		}
		p := Plan{Rule: q.Rule, Days: q.Days, Before: q.Before}
		for after := (Cursor{}); ; {
			found, err := r.cfg.Store.Scan(ctx, q, after, page)
			if err != nil {
				return nil, err
			}
			if err := r.judge(ctx, q, found, &p); err != nil {
				return nil, err
			}
			for _, f := range found {
				switch f.Verdict {
				case Held:
					p.Held++
				case Open, Unsettled, Unlogged:
					p.Kept++
				}
			}
			if len(found) < page {
				break
			}
			after = found[len(found)-1].Cursor
		}
		plans = append(plans, p)
	}
	files, first := r.fileRules(state.Now), len(plans)
	for _, rule := range files {
		plans = append(plans, Plan{Rule: rule.name, Days: rule.days, Hours: rule.hours, Before: rule.before})
	}
	err = r.due(ctx, files, 0, func(i int, project, user string) error {
		bytes, found, err := files[i].remove(ctx, project, user, files[i].before, true)
		if found {
			plans[first+i].Due++
			plans[first+i].Bytes += bytes
		}
		return err
	})
	return plans, err
}

// judge counts what is due of a page.
func (r *Runner) judge(ctx context.Context, q Query, found []Found, p *Plan) error {
	bytes := map[string]int64{}
	var due []string
	for _, f := range found {
		if f.Verdict == Due {
			due, bytes[f.ExecID] = append(due, f.ExecID), f.Bytes
		}
	}
	for some := range slices.Chunk(due, batch) {
		judged, err := r.cfg.Store.Judge(ctx, q, some)
		if err != nil {
			return err
		}
		p.Altered += int64(len(judged.Altered))
		for _, id := range judged.Due {
			p.Due++
			p.Bytes += bytes[id]
		}
	}
	return nil
}

// The rules about files of projects.
const (
	UnusedInputs     = "unused inputs" // they go with the artifacts
	UnusedWorkspaces = "sandbox.workspace_ttl_hours"
)

// Report is the state of retention for health and metrics.
type Report struct {
	State
	Enabled bool

	// The settings, in days; 0 keeps records for ever, and artifacts as long as their record.
	RecordDays, ArtifactDays int64

	WorkspaceHours int64 // without use, after which a user's workspace is removed; 0: never

	Problem string    // empty: none
	Next    time.Time // when the next look is due
	Totals  Done      // of all runs of this process
}

// Report returns the state of retention.
func (r *Runner) Report(ctx context.Context) (Report, error) {
	state, err := r.cfg.Store.State(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Report{
		State: state, Enabled: r.enabled(), RecordDays: r.cfg.RecordDays, ArtifactDays: r.cfg.ArtifactDays,
		WorkspaceHours: r.cfg.WorkspaceHours, Totals: r.totals,
	}
	if out.Enabled {
		out.Next = r.next
		if earliest := state.BeganAt.Add(interval); !state.BeganAt.IsZero() && earliest.After(out.Next) {
			out.Next = earliest
		}
	}
	problem := r.problem
	if problem == nil && !state.Running {
		problem = state.Done.altered() // perhaps of a run on another node
	}
	if problem != nil {
		out.Problem = fault.From(problem).Message
	}
	return out, err
}

// Removed is the error for a part of an exec that a rule removed.
func (t Tombstone) Removed() error {
	what := "exec " + t.ExecID + " was"
	if t.Part == Artifacts {
		what = "the artifacts of exec " + t.ExecID + " were"
	}
	e := fault.New(fault.RemovedByRetention, "%s removed at %s by the rule %s = %d", what, clock(t.RemovedAt), t.Rule, t.Days)
	e.Removed = &fault.Removal{Part: string(t.Part), At: t.RemovedAt.UTC(), Rule: t.Rule, Days: t.Days, Events: t.Events}
	return e
}

// altered is the error of a run that kept altered execs.
func (d Done) altered() error {
	if d.Altered == 0 {
		return nil
	}
	return fault.New(fault.InvalidProof,
		"retention keeps %d execs because they are not as the transparency log says; `core-api audit verify` names what differs", d.Altered)
}
