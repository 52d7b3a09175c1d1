package tools

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/sandbox"
)

// Bounds of the directory tree that Cd shows.
const (
	treeLevels    = 3
	treeLines     = 200
	treeFirst     = 150 // entries of the directory itself
	treePerLevel  = 40  // entries of each directory below
	treeLeast     = 4   // lines for each directory that is shown with its entries
	treeDirsToAsk = 40
)

const cdDescription = `Changes the current directory, by which relative paths of the other tools are resolved and in which commands start. It stays for this session, ` +
	`and begins with /workspace. The answer shows the directory as a tree.`

// CdParams are the arguments of Cd.
type CdParams struct {
	Path string `json:"path" jsonschema:"the directory: relative to the current one, or absolute; /workspace is the top"`
}

// Cd changes the current directory to an existing directory.
func (s *Session) Cd(ctx context.Context, p CdParams) (*Result, error) {
	full := s.resolve(p.Path)
	info, err := s.sandbox.Stat(ctx, full, s.user)
	if err != nil {
		return nil, s.explain(ctx, full, err)
	}
	if !info.IsDir {
		return nil, badArgument("path", "%s is not a directory but a file; read it with files_read", quote(full))
	}
	full = path.Clean(full)
	t := &tree{session: s}
	_, err = t.add(ctx, full, 1, treeLines)
	switch {
	case fault.Is(err, fault.TreeTooLarge):
		fmt.Fprintf(&t.text, "  (more than %d entries; find files with files_glob)\n", sandbox.MaxDirEntries)
	case err != nil:
		return nil, s.explain(ctx, full, err)
	}
	s.setDir(full)
	return &Result{Text: visible(full) + "\n" + t.text.String(), Meta: map[string]any{"dir": full}}, nil
}

// tree writes directories with what is below them.
type tree struct {
	session *Session
	text    strings.Builder
	asked   int // directories that were listed
}

// opaque directories are not looked into: their many files tell nothing.
var opaque = []string{".git", "node_modules", "__pycache__", ".venv"}

// looksInto reports whether an entry is a directory of this level that is shown with its entries.
func looksInto(e sandbox.DirEntry, level int) bool {
	return e.IsDir && level < treeLevels && !slices.Contains(opaque, e.Name)
}

// add writes a directory in at most so many lines, and notes about what is left out. The names of
// its entries come first, and what is below them shares the other lines: a large directory does not
// hide the directories after it.
func (t *tree) add(ctx context.Context, dir string, level, lines int) (used int, err error) {
	t.asked++
	entries, err := t.session.sandbox.ReadDir(ctx, dir, t.session.user)
	if err != nil {
		return 0, err
	}
	most := treePerLevel
	if level == 1 {
		most = treeFirst
	}
	indent := strings.Repeat("  ", level)
	shown := entries[:min(len(entries), most, lines)]
	used, dirs := len(shown), 0
	for _, e := range shown {
		if looksInto(e, level) {
			dirs++
		}
	}
	if dirs*treeLeast > lines-used { // their names alone
		dirs = 0
	}
	for _, e := range shown {
		t.text.WriteString(indent + describe(e) + "\n")
		if dirs == 0 || !looksInto(e, level) || t.asked == treeDirsToAsk {
			continue
		}
		share := (lines - used) / dirs
		dirs--
		below, err := t.add(ctx, path.Join(dir, e.Name), level+1, share)
		used += below
		if err != nil {
			if ctx.Err() != nil {
				return used, err
			}
			fmt.Fprintf(&t.text, "%s  (cannot be listed)\n", indent)
		}
	}
	if left := len(entries) - len(shown); left > 0 {
		fmt.Fprintf(&t.text, "%s… %d more\n", indent, left)
	}
	return used, nil
}

// describe is the line of an entry.
func describe(e sandbox.DirEntry) string {
	name := quote(e.Name)
	switch {
	case e.IsDir:
		return name + "/"
	case e.Mode.IsRegular():
		return fmt.Sprintf("%s  %s", name, bytesText(e.Size))
	case e.Mode&fs.ModeSymlink != 0:
		return name + "  (link)"
	}
	return name + "  (" + kindOf(e.Mode) + ")"
}

// bytesText writes a size for people.
func bytesText(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d B", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
