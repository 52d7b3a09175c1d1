package library

import (
	"context"
	"errors"
	"io/fs"

	"secbox/skills"
	"secbox/skills/content"
	"secbox/skills/versions"
	"secbox/tree"
)

// named returns the digest that names a tree among the versions of an agent's skill; empty if the tree cannot be a version. It is the digest
// of the tree, except beside versions that were stored before modes counted, under a skills.DigestOfContents: a tree that is equal to one of
// them, modes included, has its name, and a tree with other modes must not have it.
func (l *Library) named(ctx context.Context, agentID, skillID string, c content.Content) (string, error) {
	if c.Invalid != "" {
		return "", nil
	}
	key := agentID + "/" + skillID
	if name, ok := l.names.get(key, c.Digest); ok {
		return name, nil
	}
	agent, err := l.Versions.Agent(agentID)
	if err != nil {
		return "", err
	}
	name, err := nameOf(ctx, agent, skillID, c)
	if err != nil {
		return "", failed(err, "the versions of skill "+skillID)
	}
	l.names.put(key, c.Digest, name)
	return name, nil
}

func nameOf(ctx context.Context, agent *versions.Agent, skillID string, c content.Content) (string, error) {
	older, own := skills.DigestOfContents(c.Files), skills.DigestWithModes(c.Files)
	if t, err := agent.Version(skillID, own); err == nil {
		return own, t.Close()
	}
	t, err := agent.Version(skillID, older)
	if errors.Is(err, fs.ErrNotExist) {
		return c.Digest, nil
	}
	if err != nil {
		return "", err
	}
	defer t.Close()
	has := map[string]fs.FileInfo{}
	err = t.Walk(ctx, content.Bounds, func(e tree.Entry) error {
		if e.Info.Mode().IsRegular() {
			has[e.Path] = e.Info
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	for _, f := range c.Files {
		info, ok := has[f.Path]
		if !ok { // it is damaged, and stored again
			return c.Digest, nil
		}
		if tree.IsExecutable(info, f.Program) != f.Executable {
			return own, nil
		}
	}
	return older, nil
}
