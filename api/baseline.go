package api

import (
	"context"
	"fmt"

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
	if _, err := s.cfg.Library.Promote(ctx, o, in.SkillID, force); err != nil {
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
	diff, err := s.cfg.Library.Diff(ctx, o, in.SkillID)
	if err != nil {
		return nil, err
	}
	return DiffSkill200JSONResponse(said(text([]byte(diff)))), nil
}
