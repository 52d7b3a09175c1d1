package tools

import (
	"context"
	"errors"
	"io/fs"

	"secbox/fault"
)

// explain turns a sandbox's error about a file into a fault that tells the agent what to do. It
// returns other errors unchanged.
func (s *Session) explain(ctx context.Context, full string, err error) error {
	var known *fault.Error
	var at *fs.PathError
	if err == nil || errors.As(err, &known) || !errors.As(err, &at) {
		return err
	}
	name := quote(full)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.Wrap(fault.UnknownFile, err, "there is no %s; the current directory is %s, files_glob finds files", name,
			quote(s.Dir()))
	case errors.Is(err, fs.ErrPermission):
		return fault.Wrap(fault.PathRefused, err, "%s leads out of the workspace, or permission is denied; use a path below /workspace",
			name)
	case errors.Is(err, fs.ErrExist):
		return fault.Wrap(fault.InputConflict, err, "a parent of %s is not a directory; use another path", name)
	case errors.Is(err, fs.ErrInvalid):
		if info, e := s.sandbox.Stat(ctx, full, s.user); e == nil {
			switch {
			case info.IsDir:
				return fault.Wrap(fault.InvalidInputs, err, "%s is a directory; look into it with files_cd or files_glob", name)
			case !info.Mode.IsRegular():
				return fault.Wrap(fault.InvalidInputs, err, "%s is not a regular file but %s, which this tool does not open", name,
					kindOf(info.Mode))
			}
		}
		return fault.Wrap(fault.InvalidInputs, err, "%s is no valid path, or does not name a regular file", name)
	}
	return err
}

// kindOf names what is not a regular file.
func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode.IsDir():
		return "a directory"
	}
	return "something else"
}
