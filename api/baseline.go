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
