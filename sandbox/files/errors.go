package files

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"secbox/fault"
	"secbox/sandbox"
)

// errIrregular is something that is no regular file where one is needed, or no directory where one is.
var errIrregular = errors.New("is not of the kind that this is done to")

// escapeError is the error that os.Root wraps in its own when a path leads out of it. It has no exported name, so it is asked for.
func escapeError(root *os.Root) error {
	_, err := root.Lstat("..")
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// failed makes of the file system's error the one that is promised. What the system says besides is left out: it tells of another path.
func (f *Files) failed(op, name string, err error) error {
	var known *fault.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case isNoSpace(err):
		return fault.Wrap(fault.DiskFull, err, "there is no room left where %s lies", cut(name))
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
	return fault.New(fault.FileTooLarge, "%s is larger than %d MiB, the most that is read or written", cut(name), sandbox.MaxFileBytes>>20)
}

// ended is the error of a call whose context ended, nil as long as it has not.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); err != nil && !errors.Is(cause, err) {
		return errors.Join(err, cause)
	}
	return err
}

// cut shortens a path for a sentence.
func cut(name string) string {
	const most = 200
	if len(name) > most {
		return name[:most] + "…"
	}
	return name
}
