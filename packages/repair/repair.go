// Package repair makes the registry of skills and the versions on disk agree again after one of the
// two was restored to an earlier state, lost, or damaged. It must not know HTTP, containers or SQL.
package repair

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"secbox/fault"
	"secbox/packages/archive"
	"secbox/packages/content"
	"secbox/packages/versions"
	"secbox/skills"
	"secbox/workspace"
	"secbox/workspace/tree"
)

// Config is the system to repair.
type Config struct {
	Workspace *workspace.Workspace
	Versions  *versions.Store
	Registry  skills.Registry
	MaxBytes  int64 // of one version

	// Copy opens a user's copy of a skill; nil when there is none.
	Copy func(agentID, userID, skillID string) (*tree.Tree, error)
}

// Options control a run.
type Options struct {
	DryRun   bool                                // find everything, change nothing
	AllLost  bool                                // go on although the disk has no versions at all
	Now      time.Time                           // names the quarantine
	Progress func(versions, of int, bytes int64) // called after each version was read, never concurrently; nil: not called
}

// Kind is the kind of a finding.
type Kind string

// The kinds. All but Failed and Noticed are changes, made or, in a dry run, needed.
const (
	Restored    Kind = "restored"    // a retired version that a pointer names is back in its place
	Quarantined Kind = "quarantined" // something that is not a valid version was moved away
	Adopted     Kind = "adopted"     // a version on disk became the baseline
	Pointed     Kind = "pointed"     // a pointer has changed
	Unpointed   Kind = "unpointed"   // a pointer was removed
	Swept       Kind = "swept"       // leftovers of interrupted work were removed
	Failed      Kind = "failed"      // nothing could be done
	Noticed     Kind = "noticed"     // nothing has to be done
)

// Line is one finding.
type Line struct {
	Kind    Kind   `json:"kind"`
	AgentID string `json:"agent_id"`
	SkillID string `json:"skill_id,omitempty"`
	UserID  string `json:"user_id,omitempty"`
	What    string `json:"what"` // a sentence
}

// Report is the result of a run.
type Report struct {
	DryRun   bool   `json:"dry_run"`
	Agents   int    `json:"agents"`
	Pointers int    `json:"pointers"` // rows that were read
	Versions int    `json:"versions"` // that were read and compared with their digests
	Bytes    int64  `json:"bytes"`    // of those
	Unused   int    `json:"unused"`   // versions that no pointer names, left to garbage collection
	Lines    []Line `json:"lines"`
}

// Count returns the number of lines of these kinds.
func (r Report) Count(kinds ...Kind) (n int) {
	for _, line := range r.Lines {
		if slices.Contains(kinds, line.Kind) {
			n++
		}
	}
	return n
}

// Changes returns the number of changes, made or, in a dry run, needed.
func (r Report) Changes() int { return len(r.Lines) - r.Count(Failed, Noticed) }

// Run reads every version and compares it with its digest. Other entries in the place of versions
// go into quarantine. A pointer to a version that is missing or damaged changes: a baseline to the
// version that was a baseline before, else to the newest that is not some user's own; a user's to
// the baseline. A skill with versions but no pointers at all gets the newest as its baseline: the
// table was lost. Copies in workspaces are never changed; if the version that a copy derives from
// is unknown, its base is cleared, so that the next sync reports conflicts instead of losing
// changes.
//
// No node may run meanwhile: an upload before its pointer is set looks like a lost table. Still,
// every change is a rename or a compare-and-swap, in an order that an interruption leaves findable
// for the next run. A run that finds nothing changes nothing. If pointers name versions and the
// disk has none at all, the wrong disk is probably mounted: Run fails unless AllLost is set.
// Workspaces are only opened where a pointer is in doubt, and unpacked for that.
func Run(ctx context.Context, cfg Config, opts Options) (Report, error) {
	r := repair{Config: cfg, opts: opts, report: Report{DryRun: opts.DryRun, Lines: []Line{}}}
	ids, err := r.agents(ctx)
	if err != nil {
		return r.report, err
	}
	if r.total == 0 && r.pointed && !opts.AllLost {
		return r.report, fault.New(fault.InvalidSettings,
			"the registry names versions of skills, but %s/agents has none: is the right workspace root mounted? If all versions are "+
				"lost, say so with --all-lost",
			r.Workspace.Root())
	}
	for _, id := range ids {
		if err := r.agent(ctx, id); err != nil {
			return r.report, err
		}
	}
	return r.report, nil
}

type repair struct {
	Config
	opts    Options
	report  Report
	users   map[string][]string // with a workspace, by agent
	total   int                 // versions on disk
	pointed bool                // the registry has a pointer
}

func (r *repair) say(kind Kind, key skills.PointerKey, format string, args ...any) {
	r.report.Lines = append(r.report.Lines, Line{
		Kind: kind, AgentID: key.AgentID, SkillID: key.SkillID, UserID: key.UserID, What: fmt.Sprintf(format, args...),
	})
}

// page is the number of rows read at once.
const page = 500

// agents returns the ids of agents that have a directory or a pointer.
func (r *repair) agents(ctx context.Context) ([]string, error) {
	ids, err := r.Versions.AgentIDs()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		agent, err := r.Versions.ExistingAgent(id)
		if err != nil {
			continue
		}
		names, _ := agent.SkillNames()
		for _, name := range names {
			versions, _, _ := agent.Versions(name)
			r.total += len(versions)
		}
	}
	for after := ""; ; {
		more, err := r.Registry.Agents(ctx, after, page)
		if err != nil {
			return nil, err
		}
		ids = append(ids, more...)
		r.pointed = r.pointed || len(more) > 0
		if len(more) < page {
			break
		}
		after = more[page-1]
	}
	slices.Sort(ids)
	if r.users, err = r.Workspace.WorkspaceUsers(); err != nil {
		return nil, err
	}
	return slices.Compact(ids), nil
}

// rows calls f with every row of an agent. f may remove the row.
func (r *repair) rows(ctx context.Context, agentID string, f func(skills.Pointer) error) error {
	for after := (skills.PointerKey{}); ; {
		rows, err := r.Registry.Rows(ctx, agentID, after, page)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := f(row); err != nil {
				return err
			}
			after = row.PointerKey
		}
		if len(rows) < page {
			return nil
		}
	}
}

func (r *repair) agent(ctx context.Context, id string) error {
	r.report.Agents++
	if workspace.CheckPart("agent_id", id) != nil {
		if ids, err := r.Versions.AgentIDs(); err == nil && slices.Contains(ids, id) {
			r.say(Noticed, skills.PointerKey{AgentID: content.Legible(id)}, "agents/%s is ignored: no agent can have this id",
				content.Legible(id))
		}
		return r.rows(ctx, id, func(row skills.Pointer) error {
			r.report.Pointers++
			return r.unpoint(ctx, row, "an agent cannot have this id")
		})
	}
	agent, err := r.Versions.ExistingAgent(id)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.say(Failed, skills.PointerKey{AgentID: id}, "%s", message(err))
		return nil
	}
	if err != nil {
		agent = nil
	}
	a := agentRepair{
		repair: r, id: id, dir: agent, stored: map[skills.Version]found{}, baselines: map[string]skills.PointerState{},
		named: map[string]bool{}, asBase: map[skills.Version]bool{}, asOwn: map[skills.Version]bool{},
	}
	for _, step := range []func(context.Context) error{
		a.readDisk, a.readRows, a.repairBaselines, a.adopt, a.repairUsers, a.repairCopies,
		a.finish,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// point changes a pointer and reports the reason.
func (r *repair) point(ctx context.Context, kind Kind, key skills.PointerKey, saw *skills.PointerState, want skills.PointerState,
	why string,
) error {
	if !r.opts.DryRun {
		if _, err := r.Registry.Set(ctx, key, saw, want); err != nil {
			return r.pointerMoved(key, err)
		}
	}
	r.say(kind, key, "%s", why)
	return nil
}

// unpoint removes a pointer and reports its state, so that it can be restored by hand.
func (r *repair) unpoint(ctx context.Context, row skills.Pointer, why string) error {
	if !r.opts.DryRun {
		if err := r.Registry.Remove(ctx, row.PointerKey, row.PointerState); err != nil {
			return r.pointerMoved(row.PointerKey, err)
		}
	}
	orNone := func(digest string) string {
		if digest == "" {
			return "none"
		}
		return digest
	}
	r.say(Unpointed, row.PointerKey, "%s: the pointer is removed; it named %s, based on %s, since %s",
		why, orNone(row.Digest), orNone(row.BaseDigest), row.UpdatedAt.Format(time.RFC3339))
	return nil
}

// pointerMoved reports a lost compare-and-swap, and returns any other error.
func (r *repair) pointerMoved(key skills.PointerKey, err error) error {
	if !fault.Is(err, fault.SkillMoved) {
		return err
	}
	r.say(Failed, key, "the pointer was changed meanwhile and stays: stop the servers and run this again")
	return nil
}

func short(digest string) string { return digest[:min(12, len(digest))] }

// message returns the text of an error for users.
func message(err error) string {
	var known *fault.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return err.Error()
}

// invalid says why no pointer can have these ids; empty if one can.
func invalid(key skills.PointerKey) string {
	if err := archive.CheckID(key.SkillID); err != nil && !fault.Is(err, fault.ReservedSkill) {
		return "a skill cannot have this id"
	}
	if key.UserID != "" && workspace.CheckPart("user_id", key.UserID) != nil {
		return "a user cannot have this id"
	}
	return ""
}
