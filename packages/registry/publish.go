package registry

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/packages/content"
	"secbox/packages/metadata"
	"secbox/packages/versions"
	"secbox/sandbox"
	"secbox/workspace/tree"
)

// Publish publishes a skill or an agent of the user under its name. A name belongs to the author
// who published it first; for others it, and what looks like it, is fault.NameTaken. Names like the
// names of the service's own skills and agents are fault.ReservedSkill. Publishing other content
// makes the next version, the same content changes nothing. Installations keep the version that
// they have. fault.UnknownEntry when there is no such skill or agent.
func (r *Registry) Publish(ctx context.Context, req Request) (Entry, error) {
	if err := CheckName(req.Kind, req.Name); err != nil {
		return Entry{}, err
	}
	if own := r.ofService(req.Kind, req.Name); own != "" {
		return Entry{}, fault.New(fault.ReservedSkill, "%q is or looks like the name of the service's own %s %s: use another name",
			req.Name, req.Kind, own)
	}
	leave, err := r.enter(ctx, req.RequestedBy)
	if err != nil {
		return Entry{}, err
	}
	defer leave()
	defer r.Changed(req.user()) // a user who publishes sees what was read
	cur, found, err := r.mayPublish(ctx, req)
	if err != nil {
		return Entry{}, err
	}
	if err := r.Room(); err != nil {
		return Entry{}, err
	}
	place, err := r.Versions.Registry(string(req.Kind))
	if err != nil {
		return Entry{}, err
	}
	staged, err := place.Stage()
	if err != nil {
		return Entry{}, step("write cache", err)
	}
	defer staged.Discard()
	var kept map[string]bool
	if found {
		kept = r.executablesOf(ctx, place, cur)
	}
	if err := r.copyOut(ctx, req, staged.Root, kept); err != nil {
		return Entry{}, err
	}
	e, err := r.describe(ctx, req, staged)
	if err != nil {
		return Entry{}, err
	}
	if err := place.Commit(staged, req.Name, e.Digest, intact(ctx, e.Digest)); err != nil {
		return Entry{}, step("write cache", err)
	}
	for {
		if found && cur.Digest == e.Digest {
			return cur, r.keep(place, cur)
		}
		e.Version, e.PublishedAt, e.FirstPublishedAt = cur.Version+1, r.Now(), cur.FirstPublishedAt
		if !found {
			e.FirstPublishedAt = e.PublishedAt
		}
		done, err := r.Store.Publish(ctx, cur.Version, e, r.event(req, e.Version, e.Digest, Published))
		if err != nil {
			return Entry{}, err
		}
		if done {
			return e, r.keep(place, e)
		}
		if cur, found, err = r.mayPublish(ctx, req); err != nil { // another request was faster
			return Entry{}, err
		}
	}
}

// mayPublish returns the entry that a publication would replace.
func (r *Registry) mayPublish(ctx context.Context, req Request) (cur Entry, found bool, err error) {
	cur, found, err = r.Store.Entry(ctx, req.Kind, req.Name)
	switch {
	case err != nil:
		return Entry{}, false, err
	case found && cur.Name != req.Name:
		return Entry{}, false, looksLike(cur, req.Name)
	case found && cur.Author != req.Owner:
		return Entry{}, false, taken(cur)
	case found:
		return cur, true, nil
	}
	if err := r.checkNew(ctx, req.Kind, req.Name); err != nil {
		return Entry{}, false, err
	}
	n, err := r.Store.Count(ctx, req.Owner)
	if err == nil && n >= MaxPerAuthor {
		err = fault.New(fault.NameTaken, "user limit reached: %d published skills and agents; withdraw one first", MaxPerAuthor)
	}
	return Entry{}, false, err
}

// copyOut copies the skill or agent to publish into a directory. kept has the executable files of
// the version before.
func (r *Registry) copyOut(ctx context.Context, req Request, to *os.Root, kept map[string]bool) error {
	_, err := r.Sandboxes.Stat(ctx, req.file(), req.user())
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(fault.UnknownEntry, err, "%s %q not found: there is no %s", req.Kind, req.Name, req.file())
	}
	if err == nil && req.Kind == catalog.Agent {
		var text []byte
		if text, err = catalog.Read(ctx, r.Sandboxes, req.file(), req.user(), MaxAgent); err == nil {
			return step("write cache", to.WriteFile(req.Name+catalog.AgentExt, text, 0o644))
		}
		if errors.Is(err, sandbox.ErrFull) {
			err = fault.New(fault.FileTooLarge, "%s has more than %d bytes: shorten it", req.file(), MaxAgent)
		}
	} else if err == nil {
		bounds := sandbox.CopyBounds{WalkBounds: sandbox.WalkBounds{Entries: MaxFiles, Depth: maxDepth, Time: copyTime}, Bytes: MaxBytes}
		_, err = sandbox.CopyFrom(ctx, r.Sandboxes, req.path(), req.user(), to, bounds, kept)
	}
	return step("read "+string(req.Kind), err)
}

// executablesOf returns the executable files of an entry's version; none if it cannot be read,
// which does not hinder the next one.
func (r *Registry) executablesOf(ctx context.Context, place *versions.Agent, e Entry) map[string]bool {
	t, err := r.open(place, e)
	if err != nil {
		return nil
	}
	defer t.Close()
	is := map[string]bool{}
	_ = t.Walk(ctx, content.Bounds, func(e tree.Entry) error {
		is[e.Path] = tree.IsExecutable(e.Info, false)
		return nil
	})
	return is
}

// describe returns the entry of a staged tree.
func (r *Registry) describe(ctx context.Context, req Request, staged *tree.Staged) (Entry, error) {
	t, err := staged.Tree()
	if err != nil {
		return Entry{}, step("read cache", err)
	}
	defer t.Close()
	c, err := content.Read(ctx, t, MaxBytes)
	if err != nil {
		return Entry{}, step("read cache", err)
	}
	if c.Invalid != "" {
		return Entry{}, fault.New(fault.SkillConflict, "%s %q cannot be published: %s", req.Kind, req.Name, c.Invalid)
	}
	e := Entry{
		Kind: req.Kind, Name: req.Name, Digest: c.Digest, Files: len(c.Files), Bytes: c.Bytes(), Author: req.Owner,
		RequestedBy: req.RequestedBy,
	}
	if req.Kind == catalog.Skill {
		e.Description = metadata.Describe(t.FS(), req.Name).Description
		return e, nil
	}
	text, err := fs.ReadFile(t.FS(), req.Name+catalog.AgentExt)
	e.Description = metadata.DescribeFile(text, "agents/"+req.Name+catalog.AgentExt, req.Name).Description
	return e, step("read cache", err)
}

func intact(ctx context.Context, digest string) func(*tree.Tree) bool {
	return func(t *tree.Tree) bool {
		c, err := content.Read(ctx, t, MaxBytes)
		return err == nil && c.Digest == digest
	}
}

// keep puts the version of an entry back in its place, if a collection has retired it before the
// entry named it; see Collect.
func (r *Registry) keep(place *versions.Agent, e Entry) error {
	t, err := r.open(place, e)
	if err == nil {
		err = t.Close()
	}
	return err
}

// open opens the version of an entry.
func (r *Registry) open(place *versions.Agent, e Entry) (*tree.Tree, error) {
	for range 8 {
		t, err := place.Version(e.Name, e.Digest)
		if !errors.Is(err, fs.ErrNotExist) {
			return t, step("read cache", err)
		}
		if ok, err := place.Restore(e.Name, e.Digest); err != nil || !ok {
			return nil, fault.Wrap(fault.Internal, errors.Join(fs.ErrNotExist, err),
				"read cache: the files of %s %q, version %d, are gone from the server: publish it again", e.Kind, e.Name, e.Version)
		}
	}
	return nil, fault.New(fault.Internal, "read cache: the files of %s %q cannot be opened; try again", e.Kind, e.Name)
}
