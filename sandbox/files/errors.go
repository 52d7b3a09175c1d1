package files

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/workspace/diskspace"
)

// errIrregular is the error for a file of the wrong kind.
var errIrregular = errors.New("wrong kind of file")

// escapeError returns the unexported error that os.Root wraps when a path leads out of it.
func escapeError(root *os.Root) error {
	_, err := root.Lstat("..")
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}

// failed converts an error of the file system to an error that package sandbox promises. The
// system's text is dropped: it names another path.
func (f *Files) failed(op, name string, err error) error {
	var known *fault.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case diskspace.IsFull(err):
		return fault.Wrap(fault.DiskFull, err, "no space left on the disk of %s", cut(name))
	case errors.Is(err, f.escapes):
		return sandbox.Refused(op, name)
	}
	for _, c := range []struct {
		is     bool
		become error
	}{
		{errors.Is(err, errIrregular) || isIrregular(err), fs.ErrInvalid},
		{errors.Is(err, fs.ErrNotExist) || isNotDir(err), fs.ErrNotExist},
		{errors.Is(err, fs.ErrPermission) || isReadOnly(err), fs.ErrPermission},
		{errors.Is(err, fs.ErrExist), fs.ErrExist},
		{errors.Is(err, fs.ErrInvalid) || isNoPath(err), fs.ErrInvalid},
	} {
		if c.is {
			return &fs.PathError{Op: op, Path: name, Err: c.become}
		}
	}
	return fault.Wrap(fault.Internal, err, "the file system refused %s", cut(name))
}

func tooLarge(name string) error {
	return fault.New(fault.FileTooLarge, "%s is larger than %d MiB, the most that can be read or written", cut(name),
		sandbox.MaxFileBytes>>20)
}

// ended returns the error of ctx together with its cause, nil if ctx has not ended.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); err != nil && !errors.Is(cause, err) {
		return errors.Join(err, cause)
	}
	return err
}

// cut shortens a path for a message.
func cut(name string) string {
	const most = 200
	if len(name) > most {
		return name[:most] + "…"
	}
	return name
}
