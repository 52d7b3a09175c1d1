package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"secbox/api/content"
	"secbox/api/gate"
	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/fault"
	archives "secbox/packages/archive"
	"secbox/packages/library"
)

// reads returns what the caller of a request reads packages from.
func (s *Server) reads(ctx context.Context) visible.Packages {
	return s.skills.Packages(callFrom(ctx).caller)
}

// UploadSkill takes a skill as a ZIP.
func (s *Server) UploadSkill(ctx context.Context, in wire.UploadSkillRequestObject) (wire.UploadSkillResponseObject, error) {
	caller := callFrom(ctx).caller
	o, scope, err := ownerAndScope(ctx, in.UserID, in.AgentID, in.Params.Scope)
	if err != nil {
		return nil, err
	}
	all, err := boolean("all", in.Params.All)
	if err != nil {
		return nil, err
	}
	pick := archives.Pick{Path: value(in.Params.Path), All: all}
	archive, err := s.uploads.Receive(in.Body, caller.ID, callFrom(ctx).request.ContentLength)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	if archive.Scope != nil {
		formScope, err := gate.SkillScope(caller, archive.Scope)
		if err != nil {
			return nil, err
		}
		if in.Params.Scope != nil && formScope != scope {
			return nil, fault.BadField("scope", "is %q in the form and %q in the query; give one of them", formScope, scope)
		}
		scope = formScope
	}
	done, err := s.cfg.Library.UploadSome(ctx, o, scope, archive.ClientName, pick, archive, archive.Size)
	out := wire.V1Uploaded{Status: envelopeSuccess}
	var stored []string
	for _, one := range done {
		stored = append(stored, fmt.Sprintf("skill '%s' to '%s'", one.SkillID, scopePath(scope, o, one.SkillID)))
		if one.Warning != "" {
			out.Warnings = append(out.Warnings, fmt.Sprintf("skill '%s': %s", one.SkillID, one.Warning))
		}
	}
	out.Data = "Upload successful: " + strings.Join(stored, ", ")
	return wire.UploadSkill200JSONResponse(out), err
}

// DownloadSkill sends a skill as a ZIP, which the library makes while it is sent.
func (s *Server) DownloadSkill(ctx context.Context, in wire.DownloadSkillRequestObject) (wire.DownloadSkillResponseObject, error) {
	o, err := owner(ctx, in.UserID, in.AgentID)
	if err != nil {
		return nil, err
	}
	call := callFrom(ctx)
	r := call.request
	if r.Method == http.MethodHead {
		if _, err := s.reads(ctx).Files(ctx, o, in.SkillID); err != nil {
			return nil, err
		}
	}
	return nil, call.answer(func(w http.ResponseWriter) error {
		return content.ServeStream(w, r, "application/zip", in.SkillID+".zip",
			func() error { return s.reads(ctx).Download(r.Context(), o, in.SkillID, w) })
	})
}

// ListPackages lists the skills of a user with their names and descriptions.
func (s *Server) ListPackages(ctx context.Context, in wire.ListPackagesRequestObject) (wire.ListPackagesResponseObject, error) {
	found, err := s.packages(ctx, in.UserID, in.AgentID)
	out := wire.ListPackages200JSONResponse{Status: envelopeSuccess, Data: make([]wire.V1Skill, len(found))}
	for i, skill := range found {
		out.Data[i] = wire.V1Skill{Name: skill.Name, Description: skill.Description, Warning: skill.Warning}
	}
	return out, err
}

// ListStatus lists the skills of a user and how they differ from the baseline.
func (s *Server) ListStatus(ctx context.Context, in wire.ListStatusRequestObject) (wire.ListStatusResponseObject, error) {
	found, err := s.packages(ctx, in.UserID, in.AgentID)
	out := wire.ListStatus200JSONResponse{Status: envelopeSuccess, Data: make([]wire.V1Status, len(found))}
	for i, skill := range found {
		out.Data[i] = wire.V1Status(skill)
	}
	return out, err
}

func (s *Server) packages(ctx context.Context, userID, agentID string) ([]library.Listed, error) {
	o, err := owner(ctx, userID, agentID)
	if err != nil {
		return nil, err
	}
	return s.reads(ctx).List(ctx, o)
}

// ListSkillFiles lists the files of a skill.
func (s *Server) ListSkillFiles(ctx context.Context, in wire.ListSkillFilesRequestObject) (wire.ListSkillFilesResponseObject, error) {
	o, err := owner(ctx, in.UserID, in.AgentID)
	if err != nil {
		return nil, err
	}
	files, err := s.reads(ctx).Files(ctx, o, in.SkillID)
	return wire.ListSkillFiles200JSONResponse{Status: envelopeSuccess, Data: notNil(files)}, err
}

// ReadSkillFile sends a file of a skill, or some of its lines.
func (s *Server) ReadSkillFile(ctx context.Context, in wire.ReadSkillFileRequestObject) (wire.ReadSkillFileResponseObject, error) {
	o, err := owner(ctx, in.UserID, in.AgentID)
	if err != nil {
		return nil, err
	}
	lines, err := lineRange(in.Params.Start, in.Params.End)
	if err != nil {
		return nil, err
	}
	answer, err := callFrom(ctx).contentAnswer(lines, func() ([]byte, error) {
		return s.reads(ctx).Read(ctx, o, in.SkillID, in.Params.Path)
	}, func(r library.LineRange) ([]string, error) {
		return s.reads(ctx).ReadLines(ctx, o, in.SkillID, in.Params.Path, r)
	})
	return wire.ReadSkillFile200JSONResponse(answer), err
}

// EditSkillFile writes a file of a skill, or replaces some of its lines.
func (s *Server) EditSkillFile(ctx context.Context, in wire.EditSkillFileRequestObject) (wire.EditSkillFileResponseObject, error) {
	o, err := owner(ctx, in.UserID, in.AgentID)
	if err != nil {
		return nil, err
	}
	lines, content, err := s.edit(ctx, in.Params.Start, in.Params.End)
	if err != nil {
		return nil, err
	}
	err = s.cfg.Library.Edit(ctx, o, in.SkillID, in.Params.Path, content, lines)
	return wire.EditSkillFile200JSONResponse(message("Skill file updated successfully.")), err
}

// DeletePackage deletes a skill of one user, or an agent's baseline of it.
func (s *Server) DeletePackage(ctx context.Context, in wire.DeletePackageRequestObject) (wire.DeletePackageResponseObject, error) {
	o, scope, err := ownerAndScope(ctx, in.UserID, in.AgentID, in.Params.Scope)
	if err != nil {
		return nil, err
	}
	err = s.cfg.Library.Delete(ctx, o, in.SkillID, scope)
	return wire.DeletePackage200JSONResponse(message(fmt.Sprintf("Skill '%s' deleted from '%s'", in.SkillID,
		scopePath(scope, o, in.SkillID)))), err
}

// PromoteSkill makes a user's version the agent's baseline.
func (s *Server) PromoteSkill(ctx context.Context, in wire.PromoteSkillRequestObject) (wire.PromoteSkillResponseObject, error) {
	o, err := owner(ctx, in.UserID, in.AgentID)
	if err != nil {
		return nil, err
	}
	force, err := boolean("force", in.Params.Force)
	if err != nil {
		return nil, err
	}
	reviewed, err := digestsOf(in.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	_, err = s.cfg.Library.Promote(ctx, o, in.SkillID, force, reviewed...)
	return wire.PromoteSkill200JSONResponse(message(fmt.Sprintf("Skill '%s' is now '%s'", in.SkillID,
		scopePath(library.Baseline, o, in.SkillID)))), err
}

// SyncSkill updates a user's version to the baseline.
func (s *Server) SyncSkill(ctx context.Context, in wire.SyncSkillRequestObject) (wire.SyncSkillResponseObject, error) {
	o, err := owner(ctx, in.UserID, in.AgentID)
	if err != nil {
		return nil, err
	}
	force, err := boolean("force", in.Params.Force)
	if err != nil {
		return nil, err
	}
	done, err := s.cfg.Library.Sync(ctx, o, in.SkillID, force)
	return wire.SyncSkill200JSONResponse{Status: envelopeSuccess, Data: wire.V1Synced{
		Baseline: done.Baseline, Updated: notNil(done.Updated), Removed: notNil(done.Removed), Conflicts: notNil(done.Conflicts),
	}}, err
}

// DiffSkill sends the differences between a user's version and the baseline.
func (s *Server) DiffSkill(ctx context.Context, in wire.DiffSkillRequestObject) (wire.DiffSkillResponseObject, error) {
	o, err := owner(ctx, in.UserID, in.AgentID)
	if err != nil {
		return nil, err
	}
	diff, digest, err := s.reads(ctx).Diff(ctx, o, in.SkillID)
	if err == nil {
		err = callFrom(ctx).reserveContent(len(diff))
	}
	out := wire.DiffSkill200JSONResponse{Body: message(text([]byte(diff)))}
	if digest != "" {
		out.Headers.ETag = new(`"` + digest + `"`)
	}
	return out, err
}

// digestsOf parses If-Match: the digests of versions, or none if it is absent or "*".
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
