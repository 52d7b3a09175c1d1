package library

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"secbox/fault"
	"secbox/skills"
	"secbox/skills/archive"
	"secbox/workspace"
)

// RepairOptions say how Repair works.
type RepairOptions struct {
	DryRun   bool                                // find everything, change nothing
	AllLost  bool                                // go on although the disk has no version at all
	Now      time.Time                           // names the quarantine
	Progress func(versions, of int, bytes int64) // called after every version that was read, from one goroutine; nil: nobody asks
}

// RepairKind is what was done about something.
type RepairKind string

// The kinds. All but the last two are changes, done or, in a dry run, to be done.
const (
	RepairRestored    RepairKind = "restored"    // a version that a pointer names was out of reach, and is in its place
	RepairQuarantined RepairKind = "quarantined" // what cannot be a version lies where nobody reads it
	RepairAdopted     RepairKind = "adopted"     // a version on the disk became the baseline
	RepairPointed     RepairKind = "pointed"     // a pointer says something else
	RepairUnpointed   RepairKind = "unpointed"   // a pointer is gone
	RepairSwept       RepairKind = "swept"       // leftovers of what was begun and never finished are gone
	RepairFailed      RepairKind = "failed"      // nothing could be done
	RepairNoticed     RepairKind = "noticed"     // nothing has to be done
)

// RepairLine is one thing that Repair has found.
type RepairLine struct {
	Kind    RepairKind `json:"kind"`
	AgentID string     `json:"agent_id"`
	SkillID string     `json:"skill_id,omitempty"`
	UserID  string     `json:"user_id,omitempty"`
	What    string     `json:"what"` // a sentence
}

// RepairReport is what Repair has looked at, found and done.
type RepairReport struct {
	DryRun   bool         `json:"dry_run"`
	Agents   int          `json:"agents"`
	Pointers int          `json:"pointers"` // rows that were looked at
	Versions int          `json:"versions"` // that were read and held against their names
	Bytes    int64        `json:"bytes"`    // of those
	Unused   int          `json:"unused"`   // versions that no pointer names: garbage collection takes them
	Lines    []RepairLine `json:"lines"`
}

// Count tells how many lines are of these kinds.
func (r RepairReport) Count(kinds ...RepairKind) (n int) {
	for _, line := range r.Lines {
		if slices.Contains(kinds, line.Kind) {
			n++
		}
	}
	return n
}

// Changes tells how many things were changed or, in a dry run, have to be.
func (r RepairReport) Changes() int { return len(r.Lines) - r.Count(RepairFailed, RepairNoticed) }

// Repair makes the registry and the disk agree after one of the two was restored to an earlier state, lost, or damaged. It reads every
// version and holds it against the digest that is its name. What lies where a version should and is none goes into quarantine. A pointer
// that names a version which is not there, or not any more what its name says, is set to something that is: a baseline to the version that
// was a baseline before, else the newest that is not some user's own; a user's to the baseline. A skill of which there are versions and no
// pointer at all gets the newest as its baseline: the table was lost. A user's copy in the workspace is never touched; when it is not known
// any more what it is based on, its base is forgotten, which makes the next sync report conflicts instead of losing changes.
//
// No node may work meanwhile: an upload whose pointer is just about to be set looks like a lost table. All that is done is nevertheless a
// rename or a compare-and-swap, in an order in which being killed leaves something that the next run finds. A run that finds nothing
// changes nothing. Where pointers name versions and the disk has none at all, it is likelier that the wrong disk is looked at: then nothing
// is done unless AllLost says so. What the workspaces of users have is looked at only where a pointer is in doubt; packed ones come back for that.
func (l *Library) Repair(ctx context.Context, opts RepairOptions) (RepairReport, error) {
	r := repair{l: l, opts: opts, report: RepairReport{DryRun: opts.DryRun, Lines: []RepairLine{}}}
	ids, err := r.agents(ctx)
	if err != nil {
		return r.report, err
	}
	if r.total == 0 && r.pointed && !opts.AllLost {
		return r.report, fault.New(fault.InvalidSettings,
			"the registry names versions of skills, and %s/agents has not a single one: is the right workspace root mounted there? If all versions are lost, say so with --all-lost",
			l.Workspace.Root())
	}
	for _, id := range ids {
		if err := r.agent(ctx, id); err != nil {
			return r.report, err
		}
	}
	return r.report, nil
}

type repair struct {
	l      *Library
	opts   RepairOptions
	report RepairReport
	users  map[string][]string // with a workspace, by agent
	total  int                 // versions on the disk
	// pointed says that there is a pointer at all.
	pointed bool
}

func (r *repair) say(kind RepairKind, key skills.PointerKey, format string, args ...any) {
	r.report.Lines = append(r.report.Lines, RepairLine{
		Kind: kind, AgentID: key.AgentID, SkillID: key.SkillID, UserID: key.UserID, What: fmt.Sprintf(format, args...),
	})
}

// agents are those that have a directory or a pointer.
func (r *repair) agents(ctx context.Context) ([]string, error) {
	ids, err := r.l.Versions.AgentIDs()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		agent, err := r.l.Versions.ExistingAgent(id)
		if err != nil {
			continue
		}
		names, _ := agent.SkillNames()
		for _, name := range names {
			versions, _, _ := agent.Versions(name)
			r.total += len(versions)
		}
	}
	const page = 500
	for after := ""; ; {
		more, err := r.l.Registry.Agents(ctx, after, page)
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
	if r.users, err = r.l.Workspace.WorkspaceUsers(); err != nil {
		return nil, err
	}
	return slices.Compact(ids), nil
}

// rows calls f with every row of an agent. f may remove the row.
func (r *repair) rows(ctx context.Context, agentID string, f func(skills.Pointer) error) error {
	const page = 500
	for after := (skills.PointerKey{}); ; {
		rows, err := r.l.Registry.Rows(ctx, agentID, after, page)
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

// agent repairs one agent.
func (r *repair) agent(ctx context.Context, id string) error {
	r.report.Agents++
	if workspace.CheckPart("agent_id", id) != nil {
		if r.onDisk(id) {
			r.say(RepairNoticed, skills.PointerKey{AgentID: legible(id)}, "agents/%s lies there and cannot be an agent's: nobody reads it", legible(id))
		}
		return r.dropAll(ctx, id)
	}
	agent, err := r.l.Versions.ExistingAgent(id)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.say(RepairFailed, skills.PointerKey{AgentID: id}, "%s", message(err))
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		agent = nil
	}
	a := agentRepair{
		repair: r, id: id, dir: agent, stored: map[skills.Version]found{}, baselines: map[string]skills.PointerState{},
		named: map[string]bool{}, asBase: map[skills.Version]bool{}, asOwn: map[skills.Version]bool{},
	}
	for _, step := range []func(context.Context) error{a.readDisk, a.readRows, a.repairBaselines, a.adopt, a.repairUsers, a.repairCopies, a.finish} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *repair) onDisk(id string) bool {
	ids, err := r.l.Versions.AgentIDs()
	return err == nil && slices.Contains(ids, id)
}

// dropAll removes the rows of an agent that cannot be one.
func (r *repair) dropAll(ctx context.Context, agentID string) error {
	return r.rows(ctx, agentID, func(row skills.Pointer) error {
		r.report.Pointers++
		return r.unpoint(ctx, row, "an agent cannot have this id")
	})
}

// point moves a pointer and says why, as what follows the reason.
func (r *repair) point(ctx context.Context, kind RepairKind, key skills.PointerKey, saw *skills.PointerState, want skills.PointerState, why string) error {
	if !r.opts.DryRun {
		if _, err := r.l.Registry.Set(ctx, key, saw, want); err != nil {
			return r.refused(key, err)
		}
	}
	r.say(kind, key, "%s", why)
	return nil
}

// unpoint removes a pointer; all that it said is in the report, so that it can be set again by hand.
func (r *repair) unpoint(ctx context.Context, row skills.Pointer, why string) error {
	if !r.opts.DryRun {
		if err := r.l.Registry.Remove(ctx, row.PointerKey, row.PointerState); err != nil {
			return r.refused(row.PointerKey, err)
		}
	}
	r.say(RepairUnpointed, row.PointerKey, "%s: the pointer is removed; it named %s, based on %s, since %s",
		why, orNone(row.Digest), orNone(row.BaseDigest), row.UpdatedAt.Format(time.RFC3339))
	return nil
}

func (r *repair) refused(key skills.PointerKey, err error) error {
	if !fault.Is(err, fault.SkillMoved) {
		return err
	}
	r.say(RepairFailed, key, "somebody has moved the pointer meanwhile, and it was left alone: stop the servers and run this again")
	return nil
}

func orNone(digest string) string {
	if digest == "" {
		return "none"
	}
	return digest
}

func short(digest string) string { return digest[:min(12, len(digest))] }

// message is what a person is told of an error.
func message(err error) string {
	var known *fault.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return err.Error()
}

// impossible says why nobody can have a pointer with these ids; "" when somebody can.
func impossible(key skills.PointerKey) string {
	if err := archive.CheckID(key.SkillID); err != nil && !fault.Is(err, fault.ReservedSkill) {
		return "a skill cannot have this id"
	}
	if key.UserID != "" && workspace.CheckPart("user_id", key.UserID) != nil {
		return "a user cannot have this id"
	}
	return ""
}

func joined(path ...string) string { return legible(strings.Join(path, "/")) }
