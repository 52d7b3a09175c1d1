// Package creator embeds skill-creator, the installation's own skill, with which skills are begun, checked and packed. Every server has the
// version that fits its rules. The package must not know HTTP, users or containers.
package creator

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"slices"
	"strings"

	"secbox/skills"
	"secbox/workspace"
)

//go:embed skill-creator/*.md skill-creator/*.json skill-creator/*.py
var embedded embed.FS

// Folder returns the skill with its digest.
func Folder() (workspace.Folder, error) {
	tree, err := fs.Sub(embedded, "skill-creator")
	if err != nil {
		return workspace.Folder{}, err
	}
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
		sum := sha256.Sum256(content)
		one := workspace.FolderFile{
			Path: path, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:]), Executable: skills.Executable(content[:min(len(content), 4)]),
		}
		f.Files = append(f.Files, one)
		listed = append(listed, skills.File(one))
		return nil
	})
	slices.SortFunc(listed, func(a, b skills.File) int { return strings.Compare(a.Path, b.Path) })
	f.Digest = skills.Digest(listed)
	return f, err
}
