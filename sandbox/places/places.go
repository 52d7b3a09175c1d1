// Package places has the files of a project on this side's disk, and of a session in its container,
// by the same operations: any path that a job sees in a session, work/ and inputs/ in a project.
// It must not know HTTP or audit rows.
package places

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path"
	"time"

	"secbox/fault"
	"secbox/internal/admission"
	"secbox/internal/names"
)

// Files are the files of a place. Paths are absolute, as jobs see them, and unchecked; they may be
// as names.Shown shows them. Errors are as in package sandbox. Links are followed, except by
// Remove, Move and the entries of List.
type Files interface {
	// List describes a file and, if it is a directory, the first limit entries after the name
	// after.
	List(ctx context.Context, path, after string, limit int) (Listing, error)

	// Read reads a whole regular file. It calls reserve with the bytes of memory that it takes,
	// before it takes them. More than most: fault.FileTooLarge.
	Read(ctx context.Context, path string, most int64, reserve func(int64) error) ([]byte, error)

	// Open opens a regular file for reading piece by piece. The caller closes it.
	Open(ctx context.Context, path string) (Opened, error)

	// Write replaces a file with the content of r, and makes missing directories above it. Nothing
	// is changed if r fails. If was is not empty, the present content must have that SHA-256, in
	// hexadecimal, or be sandbox.Absent: fault.FileChanged. before is the digest of the former
	// content, sandbox.Absent if there was none, and empty if it is not known.
	Write(ctx context.Context, path string, r io.Reader, was string) (before string, err error)

	// MakeDir makes a directory and the missing ones above it. An existing one is not an error.
	MakeDir(ctx context.Context, path string) error

	// Move gives a file, a link or a directory another name. Without replace, a file of that name
	// is fs.ErrExist.
	Move(ctx context.Context, path, to string, replace bool) error

	// Remove removes a file, a link or an empty directory; with all, a directory with what is in
	// it.
	Remove(ctx context.Context, path string, all bool) error
}

// Entry describes a file.
type Entry struct {
	Name     string // any bytes
	Mode     fs.FileMode
	Size     int64     // bytes, of a regular file; else 0
	Modified time.Time // zero: not known
}

// Listing describes a file, and what is in it if it is a directory.
type Listing struct {
	Entry
	Entries []Entry // in the order of their names' bytes
	Next    string  // the name after which there are more entries; empty: there are none
}

// Opened is an open file.
type Opened struct {
	io.ReadSeekCloser
	Size     int64 // bytes
	Modified time.Time
}

// mostDigested is the size of the largest file whose digest before a change is taken without need.
const mostDigested = 4 << 20

// digestNow returns the digest of a small file for a record; empty if it is not known.
func digestNow(ctx context.Context, f Files, path string) string {
	content, err := f.Read(ctx, path, mostDigested, func(int64) error { return nil })
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// digestOf returns the digest of a file of any size.
func digestOf(ctx context.Context, r io.Reader) (string, error) {
	sum := sha256.New()
	if _, err := admission.Copy(ctx, sum, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// unmoved is the error of a move, which names the path that is the cause.
func unmoved(ctx context.Context, f Files, name, to string, err error) error {
	at, ok := errors.AsType[*fs.PathError](err)
	if !ok || !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	exists := func(path string) bool {
		_, err := f.List(ctx, path, "", 0)
		return err == nil
	}
	switch above := path.Dir(path.Clean(to)); {
	case errors.Is(err, fs.ErrExist):
		return &fs.PathError{Op: at.Op, Path: to, Err: fs.ErrExist}
	case !exists(name):
		return err
	case !exists(above):
		return &fs.PathError{Op: at.Op, Path: above, Err: fs.ErrNotExist}
	}
	return &fs.PathError{Op: at.Op, Path: to, Err: fs.ErrExist} // of another kind
}

func changed(path string) error {
	return fault.New(fault.FileChanged, "%s has other content than expected, and nothing was written; read it and try again", cut(path))
}

func tooLarge(path string, size, most int64) error {
	return fault.New(fault.FileTooLarge, "%s has %d bytes, more than the %d that can be sent; use a command", cut(path), size, most)
}

// cut shortens a path for a message.
func cut(path string) string {
	const most = 200
	if len(path) > most {
		return path[:most] + "…"
	}
	return path
}

// Before returns the digest of the content that a change is about to remove, for its record; empty
// if it is not known.
func Before(ctx context.Context, f Files, path string) string {
	l, err := f.List(ctx, path, "", 0)
	if err != nil || !l.Mode.IsRegular() || errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return digestNow(ctx, f, path)
}

// Fault returns the fault of an error of Files, with the path as the client gave it. Other errors
// are unchanged.
func Fault(err error) error {
	var known *fault.Error
	var at *fs.PathError
	if errors.As(err, &known) || !errors.As(err, &at) {
		return err
	}
	name := cut(names.Shown(at.Path))
	bad := func(code fault.Code, reason string) error {
		e := fault.BadField("path", "%s", reason)
		e.Code = code
		return e
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.Wrap(fault.UnknownFile, err, "there is no file %q; list its directory to see which exist", name)
	case errors.Is(err, fs.ErrPermission):
		return bad(fault.PathRefused, "may not be reached or changed: of a project, only work/ may be changed, and inputs/ read; links with "+
			"absolute targets are not followed there. In a session, the jobs' user has no permission")
	case errors.Is(err, fs.ErrExist):
		return fault.Wrap(fault.InputConflict, err, "there is another file at %q, or above it; remove it, or use another path", name)
	case errors.Is(err, fs.ErrInvalid):
		return bad(fault.InvalidRequest, "is no absolute path such as /workspace/work/a.txt, or names a file of the wrong kind: only regular "+
			"files have content, and only directories are watched")
	}
	return err
}
