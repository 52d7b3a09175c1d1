package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"secbox/admission"
	"secbox/fault"
	"secbox/sandbox"
	"secbox/skills/library"
	"secbox/skills/lines"
)

// remoteFiles are the files on a user's own machine, with the bounds that the library has for those on this side. Only the workspace's plain
// files are there, no skills of ours.
type remoteFiles struct {
	sandbox sandbox.Backend
	user    sandbox.User // located: of one request, all calls go to one machine, whatever is chosen or dials in meanwhile
	edits   *admission.Locks
}

// Bounds of a list, as workspace.ListingBounds has them.
const (
	maxRemoteEntries = 10_000
	maxRemoteLevels  = 64
)

// inSandbox turns a path of a request into the sandbox's. What it lets pass the sandbox judges again; here the sentence is better.
func inSandbox(name string) (string, error) {
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
			return bad("has a .. component; write it without going up")
		}
	}
	full := path.Join(sandbox.Root, name)
	if full == sandbox.Root || strings.HasSuffix(name, "/") {
		return bad("names a directory; give a file in it")
	}
	return full, nil
}

// SandboxFiles walks the workspace. A directory that goes while it is walked holds nothing.
func (r remoteFiles) SandboxFiles(ctx context.Context, _ library.Owner) ([]string, error) {
	list := []string{}
	tooMany := fault.New(fault.TreeTooLarge, "the workspace holds more than %d entries, or more than %d levels of directories; list one directory with a command", maxRemoteEntries, maxRemoteLevels)
	type dir struct {
		path  string // relative; "" is the workspace
		level int
	}
	seen := 0
	for open := []dir{{}}; len(open) > 0; {
		d := open[len(open)-1]
		open = open[:len(open)-1]
		entries, err := r.sandbox.ReadDir(ctx, path.Join(sandbox.Root, d.path), r.user)
		if d.path != "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)) {
			continue
		}
		if err != nil {
			return nil, sandboxFault(err)
		}
		if seen += len(entries); seen > maxRemoteEntries {
			return nil, tooMany
		}
		for _, e := range entries {
			name := path.Join(d.path, e.Name)
			switch {
			case !plainName(e.Name): // a machine may say anything
			case e.Mode.IsDir() && d.level+1 > maxRemoteLevels:
				return nil, tooMany
			case e.Mode.IsDir():
				open = append(open, dir{name, d.level + 1})
			case e.Mode.IsRegular():
				list = append(list, text([]byte(name)))
			}
		}
	}
	slices.Sort(list)
	return list, nil
}

// plainName reports whether a name is one: without a slash, and none of those that mean a directory.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.Contains(name, "/") && len(name) <= sandbox.MaxNameBytes
}

// SandboxRead reads a file of at most library.MaxFileBytes. Its size is asked for first, so that a large one is not sent for nothing; what
// the machine says of it is not counted on.
func (r remoteFiles) SandboxRead(ctx context.Context, _ library.Owner, name string) ([]byte, error) {
	full, err := inSandbox(name)
	if err != nil {
		return nil, err
	}
	info, err := r.sandbox.Stat(ctx, full, r.user)
	if err != nil {
		return nil, sandboxFault(err)
	}
	if info.Size > library.MaxFileBytes && !info.IsDir {
		return nil, tooLargeToShow(name, info.Size)
	}
	if err := callFrom(ctx).takes(2 * min(max(0, info.Size), library.MaxFileBytes)); err != nil {
		return nil, err
	}
	content := atMost{limit: library.MaxFileBytes}
	_, err = r.sandbox.ReadFileTo(ctx, full, &content, r.user)
	if content.full {
		return nil, tooLargeToShow(name, max(info.Size, library.MaxFileBytes+1))
	}
	if err != nil {
		return nil, sandboxFault(err)
	}
	return content.data, nil
}

// SandboxReadLines reads the whole file: a machine gives nothing less.
func (r remoteFiles) SandboxReadLines(ctx context.Context, o library.Owner, name string, some library.LineRange) ([]string, error) {
	content, err := r.SandboxRead(ctx, o, name)
	if err != nil {
		return nil, err
	}
	return lines.Slice(content, some.Start, some.End)
}

// atMost keeps what is written to it, up to a limit, and takes nothing beyond.
type atMost struct {
	limit int
	data  []byte
	full  bool // more than that came
}

var errFull = errors.New("that is more than is kept")

// Write implements io.Writer.
func (a *atMost) Write(p []byte) (int, error) {
	if a.full = a.full || len(p) > a.limit-len(a.data); a.full {
		return 0, errFull
	}
	a.data = append(a.data, p...)
	return len(p), nil
}

func tooLargeToShow(name string, size int64) error {
	return fault.New(fault.FileTooLarge, "%q has %d bytes, more than the %d that are read at once; use a command", clip(name), size, library.MaxFileBytes)
}

// editTries is how often lines are replaced in a file that programs of the machine change meanwhile.
const editTries = 8

// SandboxEdit writes a file, whole or some lines of it. Edits of one file follow each other. Lines are written only over the content in
// which they were replaced, as far as the machine can compare.
func (r remoteFiles) SandboxEdit(ctx context.Context, o library.Owner, name string, content []byte, some *library.LineRange) error {
	full, err := inSandbox(name)
	if err != nil {
		return err
	}
	release, err := r.edits.Take(ctx, r.user.ID+"\x00"+r.user.Runner+"\x00"+full)
	if err != nil {
		return err
	}
	defer release()
	if some == nil {
		return sandboxFault(r.write(ctx, full, content))
	}
	for range editTries {
		if err = r.editLines(ctx, o, name, full, content, *some); !fault.Is(err, fault.FileChanged) {
			break
		}
	}
	return sandboxFault(err)
}

// write writes a whole file and makes the directories above it.
func (r remoteFiles) write(ctx context.Context, full string, content []byte) error {
	if err := checkEdited(content); err != nil {
		return err
	}
	err := r.sandbox.WriteFile(ctx, full, content, 0o644, r.user)
	if errors.Is(err, fs.ErrNotExist) {
		if err = r.sandbox.MkdirAll(ctx, path.Dir(full), 0o755, r.user); err == nil {
			err = r.sandbox.WriteFile(ctx, full, content, 0o644, r.user)
		}
	}
	return err
}

// editLines replaces lines of a file once. fault.FileChanged when it was changed meanwhile.
func (r remoteFiles) editLines(ctx context.Context, o library.Owner, name, full string, with []byte, some library.LineRange) error {
	old, err := r.SandboxRead(ctx, o, name)
	if err != nil {
		return err
	}
	content, err := lines.Replace(old, some.Start, some.End, string(with))
	if err != nil {
		return err
	}
	if err := checkEdited(content); err != nil {
		return err
	}
	was := sha256.Sum256(old)
	err = r.sandbox.ReplaceFile(ctx, full, content, hex.EncodeToString(was[:]), r.user)
	if fault.Is(err, fault.Unsupported) {
		return r.sandbox.WriteFile(ctx, full, content, 0o644, r.user)
	}
	return err
}

func checkEdited(content []byte) error {
	if len(content) > library.MaxFileBytes {
		return fault.New(fault.FileTooLarge, "the file would have %d bytes, more than the %d that are written at once", len(content), library.MaxFileBytes)
	}
	return nil
}
