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
	treePerLevel  = 40 // entries of one directory below the first
	treeDirsToAsk = 40
)

const cdDescription = `Changes the current directory, by which relative paths of the other tools are resolved and in which commands start. It stays for this session, ` +
	`and begins with /workspace. The answer shows the directory as a tree.`

// CdParams are the arguments of Cd.
type CdParams struct {
	Path string `json:"path" jsonschema:"the directory: relative to the current one, or absolute; /workspace is the top"`
}

// Cd changes the current directory to one that exists.
func (s *Session) Cd(ctx context.Context, p CdParams) (*Result, error) {
	full := s.resolve(p.Path)
	info, err := s.sandbox.Stat(ctx, full, s.user)
	if err != nil {
		return nil, s.explain(ctx, full, err)
	}
	if !info.IsDir {
		return nil, badArgument("path", "%s is not a directory but a file; read it with files.read", quote(full))
	}
	full = path.Clean(full)
	t := &tree{session: s, left: treeLines, asks: treeDirsToAsk}
	err = t.add(ctx, full, 1)
	switch {
	case fault.Is(err, fault.TreeTooLarge):
		fmt.Fprintf(&t.text, "  (more than %d entries; find files with files.glob)\n", sandbox.MaxDirEntries)
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
	left    int // lines
	asks    int // directories that may still be listed
	asked   int
}

// opaque directories are not looked into: their many files tell nothing.
var opaque = []string{".git", "node_modules", "__pycache__", ".venv"}

func (t *tree) add(ctx context.Context, dir string, level int) error {
	t.asked++
	entries, err := t.session.sandbox.ReadDir(ctx, dir, t.session.user)
	if err != nil {
		return err
	}
	most := treePerLevel
	if level == 1 {
		most = treeLines
	}
	indent := strings.Repeat("  ", level)
	for n, e := range entries {
		if n == most || t.left == 0 {
			fmt.Fprintf(&t.text, "%s… %d more\n", indent, len(entries)-n)
			return nil
		}
		t.left--
		t.text.WriteString(indent + describe(e) + "\n")
		if e.IsDir && level < treeLevels && t.asked < t.asks && !slices.Contains(opaque, e.Name) {
			if err := t.add(ctx, path.Join(dir, e.Name), level+1); err != nil {
				if ctx.Err() != nil {
					return err
				}
				fmt.Fprintf(&t.text, "%s  (cannot be listed)\n", indent)
			}
		}
	}
	return nil
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
