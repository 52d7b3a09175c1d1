package skills

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"secbox/skills/schema"
)

// Package is the source of skills that users' packages carry; see skills/library.
const Package = "package"

// MaxPackageBytes is how large a package may be that is a tool: it is copied beside the inputs of whoever calls it.
const MaxPackageBytes = maxBytes

// OfPackage judges a package that holds a manifest.json as the catalog judges a folder of its own: by the same schema, the same bounds and
// the same rules, except that hidden files belong to it. files are all its files with their digests, by path; read opens the package's
// tree, from which only manifest.json and SKILL.md are read, and what is read must be what files say: otherwise the error wraps
// ErrPackageChanged. Of skill and problems exactly one is there.
func OfPackage(id string, files []File, read fs.FS) (skill *Skill, problems []Problem, err error) {
	l := loader{skill: &Skill{Source: Package, Files: files, Digest: digest(files)}}
	l.bounds(files)
	for _, f := range files {
		switch f.Path {
		case ManifestFile:
			l.manifest, err = l.content(read, f, maxManifest)
		case ReadmeFile:
			var readme []byte
			if readme, err = l.content(read, f, maxReadme); readme != nil {
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
	if l.judge(id, true); len(l.problems) > 0 {
		return nil, inOrder(l.problems), nil
	}
	return l.skill, nil, nil
}

// ErrPackageChanged is a package that is not any more what was seen of it.
var ErrPackageChanged = errors.New("the package was changed while it was read")

// bounds refuses what the walk of the catalog refuses.
func (l *loader) bounds(files []File) {
	if len(files) > maxFiles {
		l.add("", "", "holds more than %d files", maxFiles)
		return
	}
	var bytes int64
	folded := map[string]string{}
	for _, f := range files {
		bytes += f.Size
		switch {
		case len(f.Path) > maxPathBytes:
			l.add(schema.Clip(f.Path), "", "has a path of more than %d bytes", maxPathBytes)
		case strings.Count(f.Path, "/") >= maxLevels:
			l.add(schema.Clip(f.Path), "", "lies deeper than %d levels", maxLevels)
		}
		for at := range len(f.Path) + 1 {
			if at < len(f.Path) && f.Path[at] != '/' {
				continue
			}
			part := f.Path[:at]
			lower := strings.ToLower(part)
			if other, taken := folded[lower]; taken && other != part {
				l.add(schema.Clip(part), "", "differs from %s only by case; some systems cannot hold both", schema.Clip(other))
			}
			folded[lower] = part
		}
	}
	if bytes > maxBytes {
		l.add("", "", "holds more than %d MiB", maxBytes>>20)
	}
	l.problems = cut(l.problems, maxProblems, func(n int) Problem { return Problem{Reason: fmt.Sprintf("and %d more problems", n)} })
}

// content reads one of the two files that are kept in memory; nil when it is too large.
func (l *loader) content(from fs.FS, f File, most int64) ([]byte, error) {
	if f.Size > most {
		l.add(f.Path, "", "is larger than %d bytes", most)
		return nil, nil
	}
	in, err := from.Open(f.Path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPackageChanged, err)
	}
	defer in.Close()
	content, err := io.ReadAll(io.LimitReader(in, f.Size+1))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	if int64(len(content)) != f.Size || hex.EncodeToString(sum[:]) != f.SHA256 {
		return nil, ErrPackageChanged
	}
	return content, nil
}

// BrokenPackage is a package that cannot even be looked through.
func BrokenPackage(id, file, reason string) Broken {
	return Broken{Folder: clipName(id), Source: Package, Problems: []Problem{{File: clipName(schema.Clip(file)), Reason: reason}}}
}

// From is the skill with its files read from elsewhere. They are checked against Files by whoever copies them.
func (s *Skill) From(files fs.FS) *Skill {
	moved := *s
	moved.fsys = files
	return &moved
}

// With is the catalog together with the packages of one user: packages and broken, which the snapshot takes over. A package that has the
// id of a skill that is there is broken: the other one stays.
func (s *Snapshot) With(packages []*Skill, broken []Broken) *Snapshot {
	all := slices.Clone(s.skills)
	broken = append(slices.Clone(s.broken), broken...)
	for _, p := range packages {
		if other := s.byID[p.ID()]; other != nil {
			broken = append(broken, Broken{Folder: p.ID(), Source: p.Source, Problems: []Problem{idTaken(other.Source)}})
			continue
		}
		all = append(all, p)
	}
	with := newSnapshot(all, broken)
	with.ofUser = true
	return with
}

func idTaken(source string) Problem {
	return Problem{
		File: ManifestFile, Pointer: "/id",
		Reason: fmt.Sprintf("is the id of a skill that is there already (%s) and stays; give this one another id and its folder the same name", source),
	}
}
