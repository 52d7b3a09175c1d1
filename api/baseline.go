package api

import (
	"context"
	"fmt"
	"strings"

	"secbox/fault"
	"secbox/skills/library"
)

// PromoteSkill makes a user's version the agent's baseline.
func (s *Server) PromoteSkill(ctx context.Context, in PromoteSkillRequestObject) (PromoteSkillResponseObject, error) {
	o, err := owner(in.UserID, in.AgentID, callFrom(ctx).caller)
	if err != nil {
		return nil, err
	}
	force, err := yes("force", in.Params.Force)
	if err != nil {
		return nil, err
	}
	reviewed, err := digestsOf(in.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	if _, err := s.cfg.Library.Promote(ctx, o, in.SkillID, force, reviewed...); err != nil {
		return nil, err
	}
	return PromoteSkill200JSONResponse(said(fmt.Sprintf("Skill '%s' is now '%s'", in.SkillID, place(library.Baseline, o, in.SkillID)))), nil
}

// SyncSkill brings a user's version up to the baseline.
func (s *Server) SyncSkill(ctx context.Context, in SyncSkillRequestObject) (SyncSkillResponseObject, error) {
	o, err := owner(in.UserID, in.AgentID, callFrom(ctx).caller)
	if err != nil {
		return nil, err
	}
	force, err := yes("force", in.Params.Force)
	if err != nil {
		return nil, err
	}
	done, err := s.cfg.Library.Sync(ctx, o, in.SkillID, force)
	if err != nil {
		return nil, err
	}
	return SyncSkill200JSONResponse{Status: saysSuccess, Data: V1Synced{
		Baseline: done.Baseline, Updated: notNil(done.Updated), Removed: notNil(done.Removed), Conflicts: notNil(done.Conflicts),
	}}, nil
}

// DiffSkill says what a user has changed.
func (s *Server) DiffSkill(ctx context.Context, in DiffSkillRequestObject) (DiffSkillResponseObject, error) {
	o, err := owner(in.UserID, in.AgentID, callFrom(ctx).caller)
	if err != nil {
		return nil, err
	}
	diff, digest, err := s.cfg.Library.Diff(ctx, o, in.SkillID)
	if err == nil {
		err = callFrom(ctx).shows(len(diff))
	}
	if err != nil {
		return nil, err
	}
	out := DiffSkill200JSONResponse{Body: said(text([]byte(diff)))}
	if digest != "" {
		out.Headers.ETag = new(`"` + digest + `"`)
	}
	return out, nil
}

// digestsOf are the versions that If-Match names; none when it is missing or "*".
func digestsOf(ifMatch *string) ([]string, error) {
	if ifMatch == nil || strings.TrimSpace(*ifMatch) == "*" {
		return nil, nil
	}
	var digests []string
	for tag := range strings.SplitSeq(*ifMatch, ",") {
		digest, opened := strings.CutPrefix(strings.TrimSpace(tag), `"`)
		digest, closed := strings.CutSuffix(digest, `"`)
		if !opened || !closed || digest == "" || strings.Contains(digest, `"`) {
			return nil, fault.BadField("If-Match", `must be the ETag of a diff, or a digest in double quotes: "98ea…"`)
		}
		digests = append(digests, digest)
	}
	return digests, nil
}
