// Package content lists and hashes the files of a skill's tree: a stored version, or a user's copy
// in which commands may be writing. It must not know users, agents or the registry.
package content

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"secbox/internal/admission"
	"secbox/internal/names"
	"secbox/pathadapter"
	"secbox/skills"
	"secbox/workspace/tree"
)

// Bounds bound the walk of a skill's tree: the files that an archive may hold, and as many
// directories.
var Bounds = tree.Bounds{Entries: 20_000, Depth: tree.ListingBounds.Depth}

// Content is the content of a tree.
type Content struct {
	Files   []skills.File // regular files, by path
	Invalid string        // why the tree cannot be a version, as in "link" is a link; empty if it can
	Digest  string        // empty if Invalid is not
}

// Read reads and hashes all files of a tree. It fails with tree.ErrTooLarge at the file that
// exceeds most bytes, before it is read: a command can make a large sparse file at no cost.
func Read(ctx context.Context, t *tree.Tree, most int64) (Content, error) {
	return walk(ctx, t, most, func(tree.Entry) (skills.File, bool) { return skills.File{}, false }, func(tree.Entry, skills.File) {})
}

// walk reads a tree. It does not read files that known returns, and passes the others to hashed.
func walk(ctx context.Context, t *tree.Tree, most int64, known func(tree.Entry) (skills.File, bool),
	hashed func(tree.Entry, skills.File),
) (Content, error) {
	var c Content
	buffer := make([]byte, 64<<10)
	err := t.Walk(ctx, Bounds, func(e tree.Entry) error {
		if why := invalidEntry(e); why != "" && c.Invalid == "" {
			c.Invalid = why
		}
		file, ok := known(e)
		if !e.Info.Mode().IsRegular() {
			return nil
		}
		if most -= e.Info.Size(); most < 0 {
			return fmt.Errorf("%w: too many bytes", tree.ErrTooLarge)
		}
		if !ok {
			var err error
			if file, err = hash(ctx, e, buffer); err != nil {
				return fmt.Errorf("%q: %w", e.Path, err)
			}
			hashed(e, file)
		}
		file.Executable = tree.IsExecutable(e.Info, file.Program)
		c.Files = append(c.Files, file)
		return nil
	})
	if err != nil {
		return Content{}, err
	}
	slices.SortFunc(c.Files, func(a, b skills.File) int { return strings.Compare(a.Path, b.Path) })
	if c.Invalid == "" {
		c.Digest = skills.Digest(c.Files)
	}
	return c, nil
}

// Bytes returns the size of all files.
func (c Content) Bytes() (n int64) {
	for _, f := range c.Files {
		n += f.Size
	}
	return n
}

// ByPath returns the files by path.
func (c Content) ByPath() map[string]skills.File {
	m := make(map[string]skills.File, len(c.Files))
	for _, f := range c.Files {
		m[f.Path] = f
	}
	return m
}

// Has reports whether the content can be a version's with this digest: its modes count unless the
// version is from before they did.
func (c Content) Has(digest string) bool {
	return c.Digest != "" && (digest == c.Digest || digest == skills.DigestOfContents(c.Files) || digest == skills.DigestWithModes(c.Files))
}

// invalidEntry returns why an entry cannot be part of a version, or "". Such names could also give
// two trees the same digest.
func invalidEntry(e tree.Entry) string {
	mode := e.Info.Mode()
	if why := pathadapter.NameFault(path.Base(e.Path)); why != "" {
		return fmt.Sprintf("the name %.200q %s", e.Path, why)
	}
	if !mode.IsDir() && !mode.IsRegular() {
		return fmt.Sprintf("%.200q is a link or special file", e.Path)
	}
	return ""
}

func hash(ctx context.Context, e tree.Entry, buffer []byte) (skills.File, error) {
	f, err := e.Open()
	if err != nil {
		return skills.File{}, err
	}
	defer f.Close()
	turn, err := admission.Begin(ctx)
	if err != nil {
		return skills.File{}, err
	}
	defer turn.End()
	file, err := skills.HashFile(turn.Reader(f), e.Path, e.Info.Size(), buffer, nil)
	if errors.Is(err, skills.ErrChanged) {
		err = tree.ErrChanged
	}
	return file, err
}

// Legible returns a path as valid UTF-8, for JSON; see names.Shown.
func Legible(path string) string { return names.Shown(path) }
