package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/packages/content"
	"secbox/pathadapter"
	"secbox/sandbox"
	"secbox/workspace/tree"
)

// undoTime is how long an interrupted installation may take to remove its files.
const undoTime = time.Minute

// Install installs the current version of an entry into the user's sandbox. fault.AlreadyInstalled
// when the skill or agent is there, or is being installed by another request; fault.UnknownEntry.
//
// A reader who looks for SKILL.md first sees all files of a skill or none: it is written last.
// After an error the files are removed again. If that fails as well, or this process ends, the part
// without SKILL.md stays until the next installation, which replaces it: the store knows that it
// comes from here. Files that the user has put there are never replaced.
func (r *Registry) Install(ctx context.Context, req Request) (Entry, error) {
	e, err := r.Entry(ctx, req.Kind, req.Name)
	if err != nil {
		return Entry{}, err
	}
	leave, err := r.enter(ctx, req.RequestedBy)
	if err != nil {
		return Entry{}, err
	}
	defer leave()
	if slices.Contains(r.Global(req.Kind), req.Name) {
		return Entry{}, alreadyInstalled(req, "it is one of the service's own")
	}
	if err := r.Room(); err != nil {
		return Entry{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, copyTime)
	defer cancel()
	saw, leftover, err := r.lookBeforeInstall(ctx, req)
	if err != nil {
		return Entry{}, err
	}
	place, err := r.Versions.Registry(string(req.Kind))
	if err != nil {
		return Entry{}, err
	}
	from, err := r.open(place, e)
	if err != nil {
		return Entry{}, err
	}
	defer from.Close()
	executable, err := executables(ctx, from)
	if err != nil {
		return Entry{}, err
	}

	now := Install{
		Owner: req.Owner, Kind: req.Kind, Name: req.Name, ID: r.NewID(), State: Installing, Version: e.Version, Digest: e.Digest,
		ChangedAt: r.Now(),
	}
	if ok, err := r.Store.SetInstall(ctx, saw, now, r.event(req, e.Version, e.Digest, InstallBegun)); err != nil {
		return Entry{}, err
	} else if !ok {
		return Entry{}, alreadyInstalled(req, "another request installs or removes it at this moment")
	}
	err = r.copyIn(ctx, req, from.FS(), executable, leftover)
	if err != nil {
		return Entry{}, r.undo(ctx, req, now, err)
	}
	r.Changed(req.user())
	return e, r.finish(ctx, req, now, Installed, InstallDone)
}

// executables returns the executable files of a version, with all programs: older versions were
// stored without modes.
func executables(ctx context.Context, t *tree.Tree) (map[string]bool, error) {
	c, err := content.Read(ctx, t, MaxBytes)
	if err != nil {
		return nil, step("read cache", err)
	}
	is := map[string]bool{}
	for _, f := range c.Files {
		is[f.Path] = f.Executable || f.Program
	}
	return is, nil
}

// copyIn writes the files.
func (r *Registry) copyIn(ctx context.Context, req Request, from fs.FS, executable map[string]bool, leftover bool) error {
	if leftover {
		if err := r.Sandboxes.RemoveAll(ctx, req.path(), req.user()); err != nil {
			return step("clean", err)
		}
	}
	to, last := req.path(), catalog.SkillFile
	if req.Kind == catalog.Agent {
		to, last = catalog.AgentsDir, ""
	}
	_, err := sandbox.CopyTo(ctx, from, r.Sandboxes, to, req.user(), last, executable)
	return step("write", err)
}

// undo removes the files of an installation that failed, and returns the error.
func (r *Registry) undo(ctx context.Context, req Request, now Install, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	err := errors.Join(r.Sandboxes.RemoveAll(ctx, req.path(), req.user()), r.finish(ctx, req, now, Failed, InstallFailed))
	if err != nil {
		r.Log.WarnContext(ctx, "the files of a failed installation are left; the next installation removes them",
			"user", req.Owner.UserID, "agent", req.Owner.AgentID, "kind", req.Kind, "name", req.Name, "error", err)
	}
	return cause
}

// finish stores the end of an installation or a removal, also when the caller has given up.
func (r *Registry) finish(ctx context.Context, req Request, now Install, state State, action Action) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	end := now
	end.State, end.ChangedAt = state, r.Now()
	ok, err := r.Store.SetInstall(ctx, &now, end, r.event(req, now.Version, now.Digest, action))
	if err == nil && !ok {
		err = fault.New(fault.OutcomeUnknown, "another request has changed %s %q meanwhile; list the user's skills and agents", req.Kind,
			req.Name)
	}
	return err
}

// lookBeforeInstall returns the last installation, if any, and whether a part of it is left in the
// sandbox.
func (r *Registry) lookBeforeInstall(ctx context.Context, req Request) (saw *Install, leftover bool, err error) {
	last, ok, err := r.Store.Install(ctx, req.Owner, req.Kind, req.Name)
	if err != nil {
		return nil, false, err
	}
	if ok {
		saw = &last
		if r.busy(last) {
			return nil, false, alreadyInstalled(req, "another request installs or removes it at this moment")
		}
	}
	there, err := r.there(ctx, req.path(), req.user())
	if err == nil && !there {
		err = r.alike(ctx, req)
	}
	if err != nil || !there {
		return saw, false, err
	}
	whole, err := r.there(ctx, req.file(), req.user())
	if err != nil {
		return nil, false, err
	}
	if whole || !ok || last.State == Removed || last.State == Installed {
		return nil, false, alreadyInstalled(req, fmt.Sprintf("%s exists; uninstall it, or remove it, first", req.path()))
	}
	return saw, true, nil
}

// alike refuses a name that some systems do not distinguish from one beside it.
func (r *Registry) alike(ctx context.Context, req Request) error {
	beside, err := r.Sandboxes.ReadDir(ctx, path.Dir(req.path()), req.user())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	name := pathadapter.FoldName(path.Base(req.path()))
	for _, e := range beside {
		if pathadapter.FoldName(e.Name) == name {
			return alreadyInstalled(req, fmt.Sprintf("there is %q, and some systems do not distinguish the two names; remove it first",
				e.Name))
		}
	}
	return step("stat", err)
}

// busy reports whether a process may be working on an installation.
func (r *Registry) busy(i Install) bool {
	return (i.State == Installing || i.State == Removing) && r.Now().Sub(i.ChangedAt) < InstallTimeout
}

// there reports whether a sandbox has a file or directory.
func (r *Registry) there(ctx context.Context, path string, user sandbox.User) (bool, error) {
	_, err := r.Sandboxes.Stat(ctx, path, user)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrInvalid): // a link that leads out, for example
		return true, nil
	}
	return err == nil, step("stat", err)
}

func alreadyInstalled(req Request, why string) error {
	return fault.New(fault.AlreadyInstalled, "%s %q already installed: %s", req.Kind, req.Name, why)
}

// Uninstall removes an installed skill or agent, with all later changes to it. It removes no other
// files: fault.UnknownEntry when the registry has not installed it for this user, or it is not
// there. SKILL.md goes first. Uninstall may be repeated after an error; of two at once, the second
// one ends the removal, and the first one's outcome is fault.OutcomeUnknown.
func (r *Registry) Uninstall(ctx context.Context, req Request) error {
	if err := CheckName(req.Kind, req.Name); err != nil {
		return err
	}
	leave, err := r.enter(ctx, req.RequestedBy)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, copyTime)
	defer cancel()
	last, ok, err := r.Store.Install(ctx, req.Owner, req.Kind, req.Name)
	switch {
	case err != nil:
		return err
	case !ok || last.State == Removed:
		return notInstalled(req)
	case last.State == Installing && r.busy(last):
		return alreadyInstalled(req, "another request installs it at this moment; try again later")
	}
	there, err := r.there(ctx, req.path(), req.user())
	if err != nil {
		return err
	}
	if last.State == Failed { // it has removed its files, or left a part without SKILL.md
		whole, err := r.there(ctx, req.file(), req.user())
		if err != nil {
			return err
		}
		if whole {
			return notInstalled(req)
		}
	}
	now := last
	// a removal before it, which may still be at work, must not end this one
	now.ID, now.State, now.ChangedAt = r.NewID(), Removing, r.Now()
	if ok, err = r.Store.SetInstall(ctx, &last, now, r.event(req, last.Version, last.Digest, UninstallBegun)); err != nil {
		return err
	} else if !ok {
		return alreadyInstalled(req, "another request installs or removes it at this moment; try again later")
	}
	defer r.Changed(req.user())
	err = r.Sandboxes.Remove(ctx, req.file(), req.user())
	// not there, or the user has put a directory there
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrInvalid) {
		err = nil
	}
	if err == nil {
		err = r.Sandboxes.RemoveAll(ctx, req.path(), req.user())
	}
	if err != nil {
		return step("remove", err)
	}
	if err := r.finish(ctx, req, now, Removed, UninstallDone); err != nil {
		return err
	}
	if !there {
		return fault.New(fault.UnknownEntry, "%s %q not found: there is no %s", req.Kind, req.Name, req.path())
	}
	return nil
}

func notInstalled(req Request) error {
	return fault.New(fault.UnknownEntry,
		"%s %q not found among those that were installed from the registry; remove your own files yourself", req.Kind, req.Name)
}
