package skills

import (
	"bytes"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"secbox/skills/schema"
	"secbox/workspace/tree"
)

// MaxPackageBytes bounds a package that is a tool: it is copied into the inputs of every project
// that calls it.
const MaxPackageBytes = maxBytes

// LoadPackage checks a package with a manifest.json by the rules that the catalog applies to a
// folder, except that hidden files belong to it. files are all its files, by path; fsys is the
// package's tree; LoadPackage reads only manifest.json and SKILL.md in it. Exactly one of skill and
// problems is set. The error wraps ErrChanged when these files are not what files says.
func LoadPackage(id string, files []File, fsys fs.FS) (skill *Skill, problems []Problem, err error) {
	l := loader{skill: &Skill{Source: Package, Files: files, Digest: Digest(files)}}
	l.checkBounds(files)
	for _, f := range files {
		switch f.Path {
		case ManifestFile:
			l.manifest, err = l.content(fsys, f, maxManifest)
		case ReadmeFile:
			var readme []byte
			if readme, err = l.content(fsys, f, maxReadme); readme != nil {
				l.readme(readme)
			}
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if l.manifest == nil && !slices.ContainsFunc(l.problems, func(p Problem) bool { return p.File == ManifestFile }) {
		l.add(ManifestFile, "", "is no regular file; it is the tool's contract")
	}
	if l.validate(id, true); len(l.problems) > 0 {
		return nil, firstProblems(l.problems), nil
	}
	return l.skill, nil, nil
}

// checkBounds refuses what the walk of the catalog refuses.
func (l *loader) checkBounds(files []File) {
	if len(files) > maxFiles {
		l.add("", "", "holds more than %d files", maxFiles)
		return
	}
	var total int64
	folded := map[string]string{}
	for _, f := range files {
		total += f.Size
		switch {
		case len(f.Path) > maxPathBytes:
			l.add(schema.Clip(f.Path), "", "has a path of more than %d bytes", maxPathBytes)
		case strings.Count(f.Path, "/") >= maxLevels:
			l.add(schema.Clip(f.Path), "", "is deeper than %d levels", maxLevels)
		}
		for _, part := range append(tree.Parents(f.Path), f.Path) {
			lower := strings.ToLower(part)
			if other, taken := folded[lower]; taken && other != part {
				l.add(schema.Clip(part), "", "differs from %s only by case; some systems cannot hold both", schema.Clip(other))
			}
			folded[lower] = part
		}
	}
	if total > maxBytes {
		l.add("", "", "holds more than %d MiB", maxBytes>>20)
	}
	l.problems = cut(l.problems, maxProblems, func(n int) Problem { return Problem{Reason: fmt.Sprintf("and %d more problems", n)} })
}

// content reads a file into memory; nil when it is too large.
func (l *loader) content(fsys fs.FS, f File, most int64) ([]byte, error) {
	if f.Size > most {
		l.add(f.Path, "", "is larger than %d bytes", most)
		return nil, nil
	}
	in, err := fsys.Open(f.Path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrChanged, err)
	}
	defer in.Close()
	var content bytes.Buffer
	read, err := HashFile(in, f.Path, f.Size, make([]byte, 32<<10), &content)
	if err == nil && read.SHA256 != f.SHA256 {
		err = ErrChanged
	}
	if err != nil {
		return nil, err
	}
	return append([]byte{}, content.Bytes()...), nil
}
