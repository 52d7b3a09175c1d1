package server

import (
	"context"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/skills"
)

const (
	measureInterval = time.Hour // between two measurements of the kept inputs
	sweepInputsEach = 24        // measurements between two sweeps; the first one has a sweep too
	inputsPage      = 500       // records read at once
)

// sweepInputs measures the kept inputs, and removes those that no exec needs any more, until ctx
// ends.
func (s *Server) sweepInputs(ctx context.Context) {
	if err := s.inputs.Measure(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn("the kept inputs could not be measured; trying again", "error", err)
	}
	for n := 0; wait(ctx, measureInterval); n++ {
		var removed int
		var err error
		if n%sweepInputsEach == 0 {
			removed, err = s.inputs.Sweep(ctx, s.namedInputs)
		} else {
			err = s.inputs.Measure(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("the search for inputs that no exec needs is incomplete; trying again", "error", err)
		}
		if removed > 0 {
			s.log.Info("inputs that no exec needs were removed", "inputs", removed)
		}
	}
}

// namedInputs names the inputs of the execs whose artifacts are kept: without them there is nothing
// to compare a replay with.
func (s *Server) namedInputs(ctx context.Context, each func(token, digest string)) error {
	var after *audit.Cursor
	for {
		records, next, err := s.audit.List(ctx, audit.Filter{InputsKept: true}, after, inputsPage)
		if err != nil {
			return err
		}
		for _, r := range records {
			kept, err := s.hasArtifacts(r)
			if err == nil && kept {
				err = s.replayer.Named(ctx, r, each)
			}
			if err != nil {
				return err
			}
		}
		if next == nil {
			return nil
		}
		after = next
	}
}

func (s *Server) hasArtifacts(r audit.Record) (bool, error) {
	project, err := s.workspace.Existing(r.ProjectID)
	if fault.Is(err, fault.UnknownArtifact) { // the project is gone
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return project.HasArtifacts(r.ExecID)
}

// skillVersions finds versions of skills in the catalog and in users' packages.
type skillVersions struct{ userPackages }

// Version implements replay.Skills.
func (v skillVersions) Version(ctx context.Context, projectID, skillID, digest string) (*skills.Skill, error) {
	if skill, err := v.catalog.Now().Get(skillID); err == nil && skill.Digest == digest {
		return skill, nil
	}
	return v.ToolVersion(ctx, projectID, skillID, digest)
}

// GlobalDigest implements replay.Skills.
func (v skillVersions) GlobalDigest() (string, error) { return v.library.GlobalDigest() }
