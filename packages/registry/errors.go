package registry

import (
	"context"
	"errors"
	"io/fs"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/workspace/tree"
)

// step names the step in which an error happened, such as "read cache", and gives it a code. It
// shows paths of sandboxes, and hides paths of this machine. It returns nil for nil.
func step(doing string, err error) error {
	var known *fault.Error
	var copied *sandbox.CopyError
	var at *fs.PathError
	if errors.As(err, &copied) {
		doing, err = copied.Step, copied.Err
	}
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		named := *known
		named.Message, named.Err = doing+": "+known.Message, err
		return &named
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case doing == "read cache", doing == "write cache":
		if errors.Is(err, tree.ErrTooLarge) {
			return fault.Wrap(fault.TreeTooLarge, err, "%s: there are too many files or bytes: remove unneeded ones", doing)
		}
		return tree.Failed(err, "%s: the published files cannot be used; the server's log has the reason", doing)
	case errors.As(err, &at):
		code := fault.PathRefused
		if errors.Is(err, fs.ErrNotExist) {
			code = fault.UnknownFile
		}
		return fault.Wrap(code, err, "%s: %.300q: %s; put plain files there, and links to such files only", doing, at.Path, reason(err))
	}
	return fault.Wrap(fault.Internal, err, "%s: the files cannot be used; the server's log has the reason", doing)
}

// reason is the part of an error about a file of a sandbox that does not depend on the backend.
func reason(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "no such file"
	case errors.Is(err, fs.ErrPermission):
		return "leads out of the workspace, or permission is denied"
	case errors.Is(err, fs.ErrExist):
		return "is in the way"
	case errors.Is(err, fs.ErrInvalid):
		return "is no regular file, or no valid name"
	}
	return "cannot be used"
}
