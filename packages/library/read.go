package library

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"secbox/fault"
	"secbox/internal/admission"
	"secbox/internal/names"
	"secbox/packages/content"
	"secbox/packages/lines"
	"secbox/workspace/tree"
)

// MaxFileBytes bounds files that are read or written as a whole.
const MaxFileBytes = 10 << 20

// MaxLinesBytes bounds files whose lines are read or replaced.
const MaxLinesBytes = 500 << 20

// Files lists the regular files of the user's version of a skill, in byte order of their paths,
// which are relative and have slashes. Links and special files, which commands may have made, are
// left out: they cannot be read either.
func (l *Library) Files(ctx context.Context, o Owner, skillID string) ([]string, error) {
	if err := checkIDsForReading(o, skillID); err != nil {
		return nil, err
	}
	var list []string
	err := l.withSkill(ctx, o, skillID, func(t *tree.Tree) (err error) {
		list, err = files(ctx, t, content.Bounds)
		return failed(err, "the skill "+skillID)
	})
	return list, err
}

func files(ctx context.Context, t *tree.Tree, b tree.Bounds) ([]string, error) {
	list := []string{}
	err := t.Walk(ctx, b, func(e tree.Entry) error {
		if e.Info.Mode().IsRegular() {
			list = append(list, content.Legible(e.Path))
		}
		return nil
	})
	slices.Sort(list)
	return list, err
}

// Read returns a file of the user's version of a skill, of at most MaxFileBytes.
func (l *Library) Read(ctx context.Context, o Owner, skillID, path string) (content []byte, err error) {
	err = l.inSkillFile(ctx, o, skillID, path, func(t *tree.Tree, path string) (err error) {
		content, _, err = readFile(t, path)
		return err
	})
	return content, err
}

// ReadLines returns lines of a file of the user's version of a skill, without their line breaks;
// lines after the end are left out. The file may have MaxLinesBytes, and the lines together
// MaxFileBytes. Only these lines are held in memory, and nothing after them is read.
func (l *Library) ReadLines(ctx context.Context, o Owner, skillID, path string, r LineRange) (some []string, err error) {
	err = l.inSkillFile(ctx, o, skillID, path, func(t *tree.Tree, path string) (err error) {
		some, err = readLines(ctx, t, path, r)
		return err
	})
	return some, err
}

func (l *Library) inSkillFile(ctx context.Context, o Owner, skillID, path string, f func(*tree.Tree, string) error) error {
	if err := checkIDsForReading(o, skillID); err != nil {
		return err
	}
	path, err := cleanPath(path, "the skill")
	if err != nil {
		return err
	}
	return l.withSkill(ctx, o, skillID, func(t *tree.Tree) error { return f(t, path) })
}

// cleanPath refuses a path that does not name a file below its top.
func cleanPath(path, top string) (string, error) {
	clean, err := tree.CleanPath(path, top)
	if err != nil {
		return "", &fault.Error{
			Code: fault.PathRefused, Message: "path: " + err.Error(), Fields: []fault.Field{{Field: "path", Reason: err.Error()}},
		}
	}
	return clean, nil
}

// meant returns the path of the file that a path in a list of files means.
func meant(t *tree.Tree, path string) string {
	return names.Meant(path, func(path string) bool {
		_, err := t.Lstat(path)
		return err == nil
	})
}

// openFile opens a regular file and returns its stat data too.
func openFile(t *tree.Tree, path string) (*os.File, fs.FileInfo, error) {
	f, fi, err := t.Open(meant(t, path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fault.Wrap(fault.UnknownFile, err, "there is no file %q; list the files to see which exist", path)
	}
	return f, fi, failed(err, path)
}

func readLines(ctx context.Context, t *tree.Tree, path string, r LineRange) ([]string, error) {
	f, fi, err := openFile(t, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi.Size() > MaxLinesBytes {
		return nil, fault.New(fault.FileTooLarge, "%q has %d bytes, more than the %d whose lines can be read: use a command", path,
			fi.Size(), int64(MaxLinesBytes))
	}
	turn, err := admission.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer turn.End()
	some, err := lines.Read(turn.Reader(f), r.Start, r.End, MaxFileBytes)
	return some, failed(err, path)
}

// readFile reads a regular file and returns its stat data too.
func readFile(t *tree.Tree, path string) ([]byte, fs.FileInfo, error) {
	f, fi, err := openFile(t, path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	var content []byte
	if fi.Size() <= MaxFileBytes {
		if content, err = io.ReadAll(io.LimitReader(f, MaxFileBytes+1)); err != nil {
			return nil, nil, failed(err, path)
		}
	}
	if max(fi.Size(), int64(len(content))) > MaxFileBytes {
		return nil, nil, fault.New(fault.FileTooLarge,
			"%q has %d bytes, more than the %d that can be read at once: read it by lines, download it, or use a command",
			path, fi.Size(), MaxFileBytes)
	}
	return content, fi, nil
}
