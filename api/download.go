package api

import (
	"context"
	"net/http"

	"secbox/skills/library"
)

// DownloadSkill sends a skill as a ZIP.
func (s *Server) DownloadSkill(ctx context.Context, in DownloadSkillRequestObject) (DownloadSkillResponseObject, error) {
	o, err := owner(in.UserID, in.AgentID, callFrom(ctx).caller)
	if err != nil {
		return nil, err
	}
	request := callFrom(ctx).request
	if request.Method == http.MethodHead {
		if _, err := s.cfg.Library.Files(ctx, o, in.SkillID); err != nil {
			return nil, err
		}
	}
	return packed{request, s.cfg.Library, o, in.SkillID}, nil
}

// packed is a skill as an archive, made while it is sent.
type packed struct {
	request *http.Request
	library Library
	owner   library.Owner
	skillID string
}

// VisitDownloadSkillResponse writes the archive. An error after the first byte cuts the connection, so that half an archive is not taken
// for a whole one.
func (p packed) VisitDownloadSkillResponse(w http.ResponseWriter) error {
	h := w.Header()
	h.Set("Content-Type", "application/zip")
	h.Set("Content-Security-Policy", "sandbox; "+basicCSP)
	h.Set("Content-Disposition", attachment(p.skillID+".zip"))
	if p.request.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	return p.library.Download(p.request.Context(), p.owner, p.skillID, w)
}
