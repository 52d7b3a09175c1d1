package library

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"secbox/packages/content"
	"secbox/packages/versions"
	"secbox/skills"
	"secbox/workspace/tree"
)

// name is the digest that names a tree.
type name struct {
	digest string
	older  fs.FileInfo // of the older version that gave its digest to a tree with other modes than it says; nil: none
}

// known returns the name of a tree that named has found, if it still holds; empty if not.
func (l *Library) known(agentID, skillID, digest string) string {
	n, ok := l.names.get(agentID+"/"+skillID, digest)
	if !ok || n.older == nil {
		return n.digest
	}
	agent, err := l.Versions.Agent(agentID)
	if err != nil {
		return ""
	}
	t, err := agent.Version(skillID, n.digest)
	if err != nil {
		return ""
	}
	defer t.Close()
	now, err := fs.Stat(t.FS(), ".")
	if err != nil || !os.SameFile(now, n.older) || !now.ModTime().Equal(n.older.ModTime()) {
		return "" // collected, and perhaps stored again with its own modes
	}
	return n.digest
}

// named returns the digest that names a tree among the versions of an agent's skill; empty if the
// tree cannot be a version. It is the digest of the tree, except beside versions that were stored
// before modes counted, under a skills.DigestOfContents: a tree that is equal to one of them, modes
// included, has its name, and a tree with other modes must not have it.
func (l *Library) named(ctx context.Context, agentID, skillID string, c content.Content) (string, error) {
	if c.Invalid != "" {
		return "", nil
	}
	if digest := l.known(agentID, skillID, c.Digest); digest != "" {
		return digest, nil
	}
	agent, err := l.Versions.Agent(agentID)
	if err != nil {
		return "", err
	}
	n, err := nameOf(ctx, agent, skillID, c)
	if err != nil {
		return "", failed(err, "the versions of skill "+skillID)
	}
	l.names.put(agentID+"/"+skillID, c.Digest, n)
	return n.digest, nil
}

func nameOf(ctx context.Context, agent *versions.Agent, skillID string, c content.Content) (name, error) {
	older, own := skills.DigestOfContents(c.Files), skills.DigestWithModes(c.Files)
	if t, err := agent.Version(skillID, own); err == nil {
		return name{digest: own}, t.Close()
	}
	t, err := agent.Version(skillID, older)
	if errors.Is(err, fs.ErrNotExist) {
		return name{digest: c.Digest}, nil
	}
	if err != nil {
		return name{}, err
	}
	defer t.Close()
	version, err := fs.Stat(t.FS(), ".")
	if err != nil {
		return name{}, err
	}
	has := map[string]fs.FileInfo{}
	err = t.Walk(ctx, content.Bounds, func(e tree.Entry) error {
		if e.Info.Mode().IsRegular() {
			has[e.Path] = e.Info
		}
		return nil
	})
	if err != nil {
		return name{}, err
	}
	for _, f := range c.Files {
		info, ok := has[f.Path]
		if !ok { // it is damaged, and stored again
			return name{digest: c.Digest}, nil
		}
		if tree.IsExecutable(info, f.Program) != f.Executable {
			return name{digest: own}, nil
		}
	}
	if older == c.Digest {
		return name{digest: older}, nil
	}
	return name{older, version}, nil
}
