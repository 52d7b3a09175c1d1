// Package creator embeds skill-creator, the installation's own skill, with which skills are begun,
// checked and packed. Every server has the version that fits its rules. The package must not know
// HTTP, users or containers.
package creator

import (
	"bytes"
	"embed"
	"io/fs"
	"slices"
	"strings"

	"secbox/skills"
	"secbox/workspace"
)

//go:embed skill-creator/*.md skill-creator/*.py
var embedded embed.FS

// Folder returns the skill with its digest.
func Folder() (workspace.Folder, error) {
	tree, err := fs.Sub(embedded, "skill-creator")
	if err != nil {
		return workspace.Folder{}, err
	}
	tree = skills.WithManifestSchema(tree)
	f := workspace.Folder{FS: tree}
	var listed []skills.File
	err = fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		one, err := skills.HashFile(bytes.NewReader(content), path, int64(len(content)), make([]byte, 32<<10), nil)
		f.Files = append(f.Files, workspace.FolderFile{Path: path, Size: one.Size, SHA256: one.SHA256, Executable: one.Executable})
		listed = append(listed, one)
		return err
	})
	slices.SortFunc(listed, func(a, b skills.File) int { return strings.Compare(a.Path, b.Path) })
	f.Digest = skills.Digest(listed)
	return f, err
}
