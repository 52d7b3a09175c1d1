package api

import (
	"context"
	"slices"
	"sync"

	"secbox/api/content"
	"secbox/api/problem"
	"secbox/api/wire"
	"secbox/skills"
)

// ListSkills sends the catalog, with the packages of a user if the request names one.
func (s *Server) ListSkills(ctx context.Context, in wire.ListSkillsRequestObject) (wire.ListSkillsResponseObject, error) {
	broken, err := boolean("broken", in.Params.Broken)
	if err != nil {
		return nil, err
	}
	if in.Params.AgentID != nil || in.Params.UserID != nil {
		now, err := s.skills.Of(ctx, callFrom(ctx).caller, in.Params.AgentID, in.Params.UserID)
		if err != nil {
			return nil, err
		}
		p, err := jsonPage(skillList(now, broken))
		return nil, callFrom(ctx).answerPage(p, err)
	}
	encoded := s.catalog.of(s.cfg.Skills.Now())
	answer := encoded.list
	if broken {
		answer = encoded.withBroken
	}
	p, err := answer()
	return nil, callFrom(ctx).answerPage(p, err)
}

// GetSkill sends one skill.
func (s *Server) GetSkill(ctx context.Context, in wire.GetSkillRequestObject) (wire.GetSkillResponseObject, error) {
	now, err := s.skills.Of(ctx, callFrom(ctx).caller, in.Params.AgentID, in.Params.UserID)
	if err != nil {
		return nil, err
	}
	found, err := now.Get(problem.Clip(in.ID))
	if err != nil {
		return nil, err
	}
	out := skillItem(found)
	files := make([]wire.SkillFile, len(found.Files))
	for i, f := range found.Files {
		files[i] = wire.SkillFile{Path: f.Path, Size: f.Size, Sha256: f.SHA256}
	}
	out.Readme, out.Files = new(text([]byte(found.Readme))), &files
	p, err := jsonPage(out)
	return nil, callFrom(ctx).answerPage(p, err)
}

// catalogPages keeps the newest catalog encoded: agents request it often, it changes rarely and may
// have a thousand skills.
type catalogPages struct {
	mu   sync.Mutex
	last *encodedCatalog
}

// encodedCatalog encodes one snapshot on the first request for it.
type encodedCatalog struct {
	snapshot         *skills.Snapshot
	list, withBroken func() (content.Page, error)
}

func (c *catalogPages) of(now *skills.Snapshot) *encodedCatalog {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil || c.last.snapshot != now {
		c.last = &encodedCatalog{
			snapshot:   now,
			list:       sync.OnceValues(func() (content.Page, error) { return jsonPage(skillList(now, false)) }),
			withBroken: sync.OnceValues(func() (content.Page, error) { return jsonPage(skillList(now, true)) }),
		}
	}
	return c.last
}

func skillList(now *skills.Snapshot, broken bool) wire.SkillList {
	list := wire.SkillList{Items: make([]wire.Skill, 0, len(now.Skills()))}
	for _, s := range now.Skills() {
		list.Items = append(list.Items, skillItem(s))
	}
	if !broken {
		return list
	}
	folders := notNil(slices.Clone(now.Broken()))
	for i := range folders {
		folders[i].Folder = text([]byte(folders[i].Folder))
	}
	list.Broken = &folders
	return list
}

func skillItem(s *skills.Skill) wire.Skill {
	m := s.Manifest
	return wire.Skill{
		SchemaVersion: m.SchemaVersion, ID: m.ID, Name: m.Name, Description: m.Description, Tool: skills.ToolName(m.ID), Source: s.Source,
		Digest: s.Digest, ReadOnly: m.ReadOnly(), Interface: wire.SkillInterface{Inputs: m.Interface.Inputs, Outputs: m.Interface.Outputs},
		Runtime: wire.SkillRuntime{
			Kind: m.Runtime.Kind, Image: m.Runtime.Image, Entrypoint: notNil(m.Runtime.Entrypoint), Session: m.Runtime.Session,
		},
		Permissions: wire.SkillPermissions{
			FS:  wire.SkillPermissionsFS{Read: notNil(m.Permissions.FS.Read), Write: notNil(m.Permissions.FS.Write)},
			Net: wire.SkillPermissionsNet{Mode: m.Permissions.Net.Mode},
		},
		Limits: m.Limits.ByName(),
	}
}
