package runner

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/policy"
)

// Origin is what the record of a command says of where it was begun.
type Origin struct {
	ExecID  string
	NodeID  string
	Backend string
	At      time.Time // UTC, in microseconds
}

// Begin is the record of a command before anything has happened, whatever it is going to run in: its status is for the caller to say, and
// so is what only some have, an image for one. A snapshot without fields stands for no policy.
func Begin(req Request, snapshot policy.Snapshot, from Origin) (audit.Record, error) {
	var stored []byte
	if snapshot.Fields != nil {
		var err error
		if stored, err = json.Marshal(snapshot); err != nil {
			return audit.Record{}, fault.Wrap(fault.Internal, err, "the policy snapshot cannot be stored")
		}
	}
	skillDigest := req.SkillDigest
	if req.Skill != nil {
		skillDigest = req.Skill.Folder.Digest
	}
	return audit.Record{
		ExecID: from.ExecID, ProjectID: req.ProjectID, TaskID: req.TaskID, ConversationID: req.ConversationID,
		AgentID: req.AgentID, UserID: req.UserID, SkillID: req.SkillID, SkillDigest: skillDigest,
		Cmd: req.Command.Name, Args: append([]string{}, req.Command.Args...), Cwd: req.Command.Cwd,
		EnvKeys: append([]string{}, slices.Sorted(maps.Keys(req.Command.Env))...), Inputs: digests(allInputs(req)), PolicySnapshot: stored,
		CreatedAt: from.At, NodeID: from.NodeID, Backend: from.Backend,
		RequestedBy: req.RequestedBy, RequestDigest: req.Digest, IdempotencyKey: req.IdempotencyKey,
		SettingsDigest: snapshot.SettingsDigest,
	}, nil
}
