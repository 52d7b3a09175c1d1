// Package remotefiles lists, reads and edits plain files on a user's own machine, with the same
// limits as package library has for files on this side. It trusts nothing that the machine says
// about a file. It must not know HTTP or skills.
package remotefiles

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"secbox/api/problem"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/internal/names"
	"secbox/packages/library"
	"secbox/packages/lines"
	"secbox/sandbox"
)

// Files are the files of one user during one request.
type Files struct {
	Sandbox sandbox.Backend
	User    sandbox.User // located: all calls go to the same machine, even if another one is chosen or connects meanwhile
	Edits   *admission.Locks

	// Reserve counts bytes of memory before they are used.
	Reserve func(bytes int64) error
}

// Limits of a list, the same as tree.ListingBounds.
const (
	maxEntries = 10_000
	maxLevels  = 64
)

// sandboxPath turns a path of a request into the sandbox's. The sandbox checks it again, with less
// helpful messages.
func sandboxPath(name string) (string, error) {
	bad := func(reason string) (string, error) {
		e := fault.BadField("path", "%s", reason)
		e.Code = fault.PathRefused
		return "", e
	}
	switch {
	case name == "":
		return bad("is empty; give a path relative to the workspace, such as notes.txt")
	case strings.HasPrefix(name, "/"):
		return bad("must be relative to the workspace, such as notes.txt")
	case strings.ContainsAny(name, "\x00\\"):
		return bad("contains a backslash or NUL; write / between folders")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return bad("has a .. component; leave it out")
		}
	}
	full := path.Join(sandbox.Root, name)
	if full == sandbox.Root || strings.HasSuffix(name, "/") {
		return bad("names a directory; give a file in it")
	}
	return full, nil
}

// SandboxFiles walks the workspace. It ignores a directory that is removed meanwhile.
func (f Files) SandboxFiles(ctx context.Context, _ library.Owner) ([]string, error) {
	list := []string{}
	tooMany := fault.New(fault.TreeTooLarge,
		"the workspace has more than %d entries or %d levels of directories; list one directory with a command", maxEntries, maxLevels)
	type dir struct {
		path  string // relative; "" is the workspace
		level int
	}
	seen := 0
	for open := []dir{{}}; len(open) > 0; {
		d := open[len(open)-1]
		open = open[:len(open)-1]
		entries, err := f.Sandbox.ReadDir(ctx, path.Join(sandbox.Root, d.path), f.User)
		if d.path != "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)) {
			continue
		}
		if err != nil {
			return nil, Fault(err)
		}
		if seen += len(entries); seen > maxEntries {
			return nil, tooMany
		}
		for _, e := range entries {
			name := path.Join(d.path, e.Name)
			switch {
			case !plainName(e.Name): // the machine may send anything
			case e.Mode.IsDir() && d.level+1 > maxLevels:
				return nil, tooMany
			case e.Mode.IsDir():
				open = append(open, dir{name, d.level + 1})
			case e.Mode.IsRegular():
				list = append(list, names.Shown(name))
			}
		}
	}
	slices.Sort(list)
	return list, nil
}

// plainName reports whether name is a single path element.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.Contains(name, "/") && len(name) <= sandbox.MaxNameBytes
}

// SandboxRead reads a file of at most library.MaxFileBytes. It asks for the size first, to save
// sending a large file, but does not rely on the answer.
func (f Files) SandboxRead(ctx context.Context, _ library.Owner, name string) ([]byte, error) {
	full, err := sandboxPath(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Sandbox.Stat(ctx, full, f.User)
	if err != nil {
		return nil, Fault(err)
	}
	if info.Size > library.MaxFileBytes && !info.IsDir {
		return nil, tooLargeToShow(name, info.Size)
	}
	if err := f.Reserve(2 * min(max(0, info.Size), library.MaxFileBytes)); err != nil {
		return nil, err
	}
	content := limitedBuffer{limit: library.MaxFileBytes}
	_, err = f.Sandbox.ReadFileTo(ctx, full, &content, f.User)
	if content.full {
		return nil, tooLargeToShow(name, max(info.Size, library.MaxFileBytes+1))
	}
	if err != nil {
		return nil, Fault(err)
	}
	return content.data, nil
}

// SandboxReadLines reads the whole file: a sandbox has no call for less.
func (f Files) SandboxReadLines(ctx context.Context, o library.Owner, name string, some library.LineRange) ([]string, error) {
	content, err := f.SandboxRead(ctx, o, name)
	if err != nil {
		return nil, err
	}
	return lines.Slice(content, some.Start, some.End)
}

// limitedBuffer refuses every write that would exceed limit.
type limitedBuffer struct {
	limit int
	data  []byte
	full  bool // a write was refused
}

var errFull = errors.New("the buffer is full")

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.full = b.full || len(p) > b.limit-len(b.data); b.full {
		return 0, errFull
	}
	b.data = append(b.data, p...)
	return len(p), nil
}

func tooLargeToShow(name string, size int64) error {
	return fault.New(fault.FileTooLarge, "%q has %d bytes, more than the %d that one request may read; use a command", problem.Clip(name),
		size, library.MaxFileBytes)
}

// editTries is how often SandboxEdit tries again if programs on the machine change the file
// meanwhile.
const editTries = 8

// SandboxEdit writes a whole file or replaces some of its lines. Edits of one file run one after
// the other. Lines are replaced only if the file still has the content that they were read from,
// provided that the machine can compare.
func (f Files) SandboxEdit(ctx context.Context, o library.Owner, name string, content []byte, some *library.LineRange) (d library.Digests,
	err error,
) {
	full, err := sandboxPath(name)
	if err != nil {
		return d, err
	}
	release, err := f.Edits.Take(ctx, f.User.ID+"\x00"+f.User.Runner+"\x00"+full)
	if err != nil {
		return d, err
	}
	defer release()
	if some == nil {
		d.Before, d.After, d.Size = f.digestNow(ctx, full), digestOf(content), int64(len(content))
		return d, Fault(f.write(ctx, full, content))
	}
	for range editTries {
		if d, err = f.editLines(ctx, o, name, full, content, *some); !fault.Is(err, fault.FileChanged) {
			break
		}
	}
	return d, Fault(err)
}

// maxDigestBytes is the size of the largest file that digestNow reads. The machine sends it for
// that.
const maxDigestBytes = 4 << 20

// digestNow returns the digest of a file, library.Absent if there is none, and an empty string if
// it is larger than maxDigestBytes or cannot be read.
func (f Files) digestNow(ctx context.Context, full string) string {
	info, err := f.Sandbox.Stat(ctx, full, f.User)
	if errors.Is(err, fs.ErrNotExist) {
		return library.Absent
	}
	if err != nil || info.Size > maxDigestBytes {
		return ""
	}
	sum := sha256.New()
	if _, err := f.Sandbox.ReadFileTo(ctx, full, &sandbox.BoundedWriter{W: admission.InTurns(ctx, sum), Left: maxDigestBytes},
		f.User); err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// write writes a whole file and creates its parent directories.
func (f Files) write(ctx context.Context, full string, content []byte) error {
	if err := checkSize(content); err != nil {
		return err
	}
	err := f.Sandbox.WriteFile(ctx, full, content, 0o644, f.User)
	if errors.Is(err, fs.ErrNotExist) {
		if err = f.Sandbox.MkdirAll(ctx, path.Dir(full), 0o755, f.User); err == nil {
			err = f.Sandbox.WriteFile(ctx, full, content, 0o644, f.User)
		}
	}
	return err
}

// editLines tries once to replace lines. fault.FileChanged if the file changed meanwhile.
func (f Files) editLines(ctx context.Context, o library.Owner, name, full string, with []byte, some library.LineRange) (d library.Digests,
	err error,
) {
	old, err := f.SandboxRead(ctx, o, name)
	if err != nil {
		return d, err
	}
	content, err := lines.Replace(old, some.Start, some.End, string(with))
	if err != nil {
		return d, err
	}
	if err := checkSize(content); err != nil {
		return d, err
	}
	d.Before, d.After, d.Size = digestOf(old), digestOf(content), int64(len(content))
	_, err = f.Sandbox.ReplaceFile(ctx, full, bytes.NewReader(content), d.Before, f.User)
	if fault.Is(err, fault.Unsupported) {
		err = f.Sandbox.WriteFile(ctx, full, content, 0o644, f.User)
	}
	return d, err
}

func checkSize(content []byte) error {
	if len(content) > library.MaxFileBytes {
		return fault.New(fault.FileTooLarge, "the file would have %d bytes, more than the %d that one request may write", len(content),
			library.MaxFileBytes)
	}
	return nil
}

// Fault turns a sandbox's error about a file into a fault with the path as the client gave it. It
// returns other errors unchanged.
func Fault(err error) error {
	var known *fault.Error
	var path *fs.PathError
	if errors.As(err, &known) || !errors.As(err, &path) {
		return err
	}
	name := strings.TrimPrefix(strings.TrimPrefix(path.Path, sandbox.Root), "/")
	if name == "" {
		name = "."
	}
	bad := func(code fault.Code, reason string) error {
		e := fault.BadField("path", "%s", reason)
		e.Code = code
		return e
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.UnknownFile, "there is no file %q; list the files to see which exist", problem.Clip(name))
	case errors.Is(err, fs.ErrPermission):
		return bad(fault.PathRefused, "leads out of the workspace, or permission is denied")
	case errors.Is(err, fs.ErrExist):
		return fault.New(fault.InputConflict, "a parent of %q is not a directory; remove it, or use another path", problem.Clip(name))
	case errors.Is(err, fs.ErrInvalid):
		return bad(fault.InvalidRequest, "does not name a regular file, or is not a valid path on the user's machine")
	}
	return err
}
