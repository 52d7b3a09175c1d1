package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"secbox/fault"
	"secbox/workspace/tree"
)

// The container of a session has artifacts/<session_id>/, in which each exec of the session has a
// directory of its own. When the exec has ended, its directory moves to artifacts/<exec_id>/, which
// the container does not have.

// NewSessionArtifacts makes artifacts/<session_id>/<exec_id>/, owned by the container's user, and
// opens it: while it is open, no other file gets its identity. The caller gives it to
// TakeSessionArtifacts or DropSessionArtifacts, which close it.
func (p *Project) NewSessionArtifacts(sessionID, execID string) (made *os.Root, err error) {
	all, session, err := p.openSession(sessionID, execID)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	defer session.Close()
	err = p.w.owner().MakeDir(all, execID) // where no process of the session can exchange it
	if err == nil {
		made, _, err = tree.OpenDir(all, execID)
	}
	if err == nil {
		if err = tree.RenameNew(all, execID, session, execID); err != nil {
			made.Close()
		}
	}
	return made, wrapFailed(err, "the artifacts directory of exec %s cannot be made", execID)
}

// DropSessionArtifacts removes artifacts/<session_id>/<exec_id>/ of an exec that never ran.
func (p *Project) DropSessionArtifacts(sessionID, execID string, made *os.Root) error {
	made.Close()
	all, session, err := p.openSession(sessionID, execID)
	if err != nil {
		return err
	}
	defer all.Close()
	defer session.Close()
	if _, err := tree.RemoveTree(context.Background(), session, execID); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return tree.Failed(err, "the artifacts directory of exec %s cannot be removed", execID)
	}
	return nil
}

// TakeSessionArtifacts moves artifacts/<session_id>/<exec_id>/ to artifacts/<exec_id>/, for
// CollectBeside. If the directory is no longer the made one, which any exec of the session can
// remove or replace, the exec gets an empty one, and kept is false.
func (p *Project) TakeSessionArtifacts(sessionID, execID string, made *os.Root) (kept bool, err error) {
	defer made.Close()
	is, err := made.Stat(".")
	if err != nil {
		return false, wrapFailed(err, "the artifacts of exec %s cannot be taken from its session", execID)
	}
	all, session, err := p.openSession(sessionID, execID)
	if err != nil {
		return false, err
	}
	defer all.Close()
	defer session.Close()
	fi, err := session.Lstat(execID)
	if err == nil && fi.IsDir() && os.SameFile(fi, is) {
		err = tree.RenameNew(session, execID, all, execID)
		if err == nil {
			fi, err = all.Lstat(execID)
		}
		if err == nil && fi.IsDir() && os.SameFile(fi, is) {
			p.takeOverIn(all, execID)
			return true, nil
		}
		if err == nil { // exchanged at that moment: what it is now is the session's
			err = tree.RenameNew(all, execID, session, "exchanged-"+execID)
		}
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = p.w.owner().MakeDir(all, execID)
	}
	return false, wrapFailed(err, "the artifacts of exec %s cannot be taken from its session", execID)
}

// takeOverIn is takeOver for a directory in another one.
func (p *Project) takeOverIn(parent *os.Root, name string) {
	if dir, _, err := tree.OpenDir(parent, name); err == nil {
		p.takeOver(dir)
		dir.Close()
	}
}

// openSession opens artifacts/ and artifacts/<session_id>/.
func (p *Project) openSession(sessionID, execID string) (all, session *os.Root, err error) {
	if err := checkExecID(execID); err != nil {
		return nil, nil, err
	}
	if all, err = p.openArtifacts(sessionID); err != nil {
		return nil, nil, err
	}
	if session, _, err = tree.OpenDir(all, sessionID); err != nil {
		all.Close()
		return nil, nil, fault.Wrap(fault.ProjectDamaged, err, "the artifacts directory of session %s is gone or no directory", sessionID)
	}
	return all, session, nil
}

// CollectBeside is Collect for an exec whose container goes on with others, after
// TakeSessionArtifacts. They may still have its files open, so each file is replaced by a copy of
// what it is now. If this process is root, the copies cannot be changed by them; else only the
// digests show a change.
func (p *Project) CollectBeside(ctx context.Context, execID string, maxBytes int64, access Access) (Manifest, error) {
	return p.collect(ctx, execID, maxBytes, access, true)
}
