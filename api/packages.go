package api

import (
	"context"
	"fmt"

	"secbox/fault"
	"secbox/skills/library"
)

// UploadSkill takes a skill as a ZIP.
func (s *Server) UploadSkill(ctx context.Context, in UploadSkillRequestObject) (UploadSkillResponseObject, error) {
	caller := callFrom(ctx).caller
	o, err := owner(in.UserID, in.AgentID, caller)
	if err != nil {
		return nil, err
	}
	scope, err := scopeOf(in.Params.Scope, caller)
	if err != nil {
		return nil, err
	}
	archive, err := s.uploads.take(in.Body, caller.ID, callFrom(ctx).request.ContentLength)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	if archive.scope != nil {
		formScope, err := scopeOf(archive.scope, caller)
		if err != nil {
			return nil, err
		}
		if in.Params.Scope != nil && formScope != scope {
			return nil, fault.BadField("scope", "is %q in the form and %q in the query; give one of them", formScope, scope)
		}
		scope = formScope
	}
	done, err := s.cfg.Library.Upload(ctx, o, scope, archive.name, archive, archive.size)
	if err != nil {
		return nil, err
	}
	return UploadSkill200JSONResponse(said(fmt.Sprintf("Upload successful: skill '%s' to '%s'", done.SkillID, place(scope, o, done.SkillID)))), nil
}

// ListPackages lists the skills of a user, with what they say of themselves.
func (s *Server) ListPackages(ctx context.Context, in ListPackagesRequestObject) (ListPackagesResponseObject, error) {
	found, err := s.packages(ctx, in.UserID, in.AgentID)
	if err != nil {
		return nil, err
	}
	out := ListPackages200JSONResponse{Status: saysSuccess, Data: make([]V1Skill, len(found))}
	for i, skill := range found {
		out.Data[i] = V1Skill{Name: skill.Name, Description: skill.Description}
	}
	return out, nil
}

// ListStatus lists the skills of a user, and how they stand to the baseline.
func (s *Server) ListStatus(ctx context.Context, in ListStatusRequestObject) (ListStatusResponseObject, error) {
	found, err := s.packages(ctx, in.UserID, in.AgentID)
	if err != nil {
		return nil, err
	}
	out := ListStatus200JSONResponse{Status: saysSuccess, Data: make([]V1Status, len(found))}
	for i, skill := range found {
		out.Data[i] = V1Status{
			SkillID: skill.SkillID, Name: skill.Name, Description: skill.Description, Status: skill.Status,
			BaselineChanged: skill.BaselineChanged, Digest: skill.Digest,
		}
	}
	return out, nil
}

func (s *Server) packages(ctx context.Context, userID, agentID string) ([]library.Listed, error) {
	o, err := owner(userID, agentID, callFrom(ctx).caller)
	if err != nil {
		return nil, err
	}
	return s.cfg.Library.List(ctx, o)
}

// ListSkillFiles lists the files of a skill.
func (s *Server) ListSkillFiles(ctx context.Context, in ListSkillFilesRequestObject) (ListSkillFilesResponseObject, error) {
	o, err := owner(in.UserID, in.AgentID, callFrom(ctx).caller)
	if err != nil {
		return nil, err
	}
	files, err := s.cfg.Library.Files(ctx, o, in.SkillID)
	if err != nil {
		return nil, err
	}
	return ListSkillFiles200JSONResponse{Status: saysSuccess, Data: notNil(files)}, nil
}

// ReadSkillFile shows a file of a skill, or some of its lines.
func (s *Server) ReadSkillFile(ctx context.Context, in ReadSkillFileRequestObject) (ReadSkillFileResponseObject, error) {
	o, err := owner(in.UserID, in.AgentID, callFrom(ctx).caller)
	if err != nil {
		return nil, err
	}
	lines, err := lineRange(in.Params.Start, in.Params.End)
	if err != nil {
		return nil, err
	}
	answer, err := callFrom(ctx).shown(lines, func() ([]byte, error) {
		return s.cfg.Library.Read(ctx, o, in.SkillID, in.Params.Path)
	}, func(r library.LineRange) ([]string, error) {
		return s.cfg.Library.ReadLines(ctx, o, in.SkillID, in.Params.Path, r)
	})
	return ReadSkillFile200JSONResponse(answer), err
}

// EditSkillFile writes a file of a skill, or some of its lines.
func (s *Server) EditSkillFile(ctx context.Context, in EditSkillFileRequestObject) (EditSkillFileResponseObject, error) {
	o, err := owner(in.UserID, in.AgentID, callFrom(ctx).caller)
	if err != nil {
		return nil, err
	}
	lines, err := replaced(in.Params.Start, in.Params.End)
	if err != nil {
		return nil, err
	}
	content, err := s.plainText(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Library.Edit(ctx, o, in.SkillID, in.Params.Path, content, lines); err != nil {
		return nil, err
	}
	return EditSkillFile200JSONResponse(said("Skill file updated successfully.")), nil
}

// DeletePackage deletes a skill for one user, or an agent's baseline of it.
func (s *Server) DeletePackage(ctx context.Context, in DeletePackageRequestObject) (DeletePackageResponseObject, error) {
	caller := callFrom(ctx).caller
	o, err := owner(in.UserID, in.AgentID, caller)
	if err != nil {
		return nil, err
	}
	scope, err := scopeOf(in.Params.Scope, caller)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Library.Delete(ctx, o, in.SkillID, scope); err != nil {
		return nil, err
	}
	return DeletePackage200JSONResponse(said(fmt.Sprintf("Skill '%s' deleted from '%s'", in.SkillID, place(scope, o, in.SkillID)))), nil
}
