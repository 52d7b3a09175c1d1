package library

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"secbox/fault"
	"secbox/workspace"
)

// MaxFileBytes is the largest file that is read or written in one piece.
const MaxFileBytes = 10 << 20

// Files lists the regular files of the user's version of a skill, in the order of the bytes of their paths, which are relative and have
// slashes. Links and special files, which a command may have put there, are left out: they cannot be read either.
func (l *Library) Files(ctx context.Context, o Owner, skillID string) ([]string, error) {
	if err := forReading(o, skillID); err != nil {
		return nil, err
	}
	var list []string
	err := l.reading(ctx, o, skillID, func(t *workspace.Tree) (err error) {
		list, err = files(ctx, t, skillBounds)
		return failed(err, "the skill "+skillID)
	})
	return list, err
}

func files(ctx context.Context, t *workspace.Tree, b workspace.Bounds) ([]string, error) {
	list := []string{}
	err := t.Walk(ctx, b, func(e workspace.Entry) error {
		if e.Info.Mode().IsRegular() {
			list = append(list, legible(e.Path))
		}
		return nil
	})
	slices.Sort(list)
	return list, err
}

// legible is a path as JSON can hold it: one that is no UTF-8 is escaped.
func legible(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	return strings.Trim(strconv.QuoteToGraphic(path), `"`)
}

// Read returns a file of the user's version of a skill, of at most MaxFileBytes.
func (l *Library) Read(ctx context.Context, o Owner, skillID, path string) ([]byte, error) {
	if err := forReading(o, skillID); err != nil {
		return nil, err
	}
	path, err := cleanPath(path, "the skill")
	if err != nil {
		return nil, err
	}
	var content []byte
	err = l.reading(ctx, o, skillID, func(t *workspace.Tree) (err error) {
		content, _, err = readFile(t, path)
		return err
	})
	return content, err
}

// cleanPath refuses a path that does not name a file below its top.
func cleanPath(path, top string) (string, error) {
	clean, err := workspace.CleanPath(path, top)
	if err != nil {
		return "", &fault.Error{
			Code: fault.PathRefused, Message: "path: " + err.Error(), Fields: []fault.Field{{Field: "path", Reason: err.Error()}},
		}
	}
	return clean, nil
}

// readFile reads a regular file and says what was seen of it.
func readFile(t *workspace.Tree, path string) ([]byte, fs.FileInfo, error) {
	f, fi, err := t.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fault.Wrap(fault.UnknownFile, err, "there is no file %q: the list of files has those that there are", path)
	}
	if err != nil {
		return nil, nil, failed(err, path)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, nil, failed(err, path)
	}
	if len(content) > MaxFileBytes {
		return nil, nil, fault.New(fault.FileTooLarge, "%q has %d bytes, more than the %d that are read at once: download the skill, or use a command",
			path, fi.Size(), MaxFileBytes)
	}
	return content, fi, nil
}
