package skills

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"

	"secbox/skills/schema"
)

// Bounds of the two files that are read into memory, in bytes.
const (
	maxManifest = 1 << 20
	maxReadme   = 1 << 20
)

// looksLikeSkill reports whether a folder holds one of the two files that make a skill. Other
// folders are ignored.
func looksLikeSkill(d skillDir) bool {
	for _, name := range []string{ManifestFile, ReadmeFile} {
		if _, err := d.lstat(name); err == nil {
			return true
		}
	}
	return false
}

// load reads a skill from a folder that has been walked. It returns the skill or all its problems.
// An error, such as ErrChanged, means that neither is known.
func load(d skillDir, folder string, walked *walk) (*Skill, []Problem, error) {
	l := loader{dir: d, skill: &Skill{}, problems: walked.problems}
	if err := l.files(walked.files); err != nil {
		return nil, nil, err
	}
	if l.manifest == nil && !l.has(ManifestFile) {
		l.add(ManifestFile, "", "does not exist; it is the tool's contract")
	}
	if l.validate(folder, walked.problems == nil); len(l.problems) > 0 {
		return nil, firstProblems(l.problems), nil
	}
	l.skill.Digest = Digest(l.skill.Files)
	return l.skill, nil, nil
}

type loader struct {
	dir      skillDir
	skill    *Skill
	manifest []byte // nil: it could not be read
	problems []Problem
}

// validate checks the manifest, and that SKILL.md exists. complete says whether the list of files
// is.
func (l *loader) validate(id string, complete bool) {
	if !l.has(ReadmeFile) {
		l.add(ReadmeFile, "", "does not exist; it says what the skill does and how to use it")
	}
	if l.manifest == nil {
		return
	}
	manifest, inputs, outputs, problems := readManifest(l.manifest, id)
	l.problems = append(l.problems, problems...)
	if len(problems) == 0 {
		l.skill.Manifest, l.skill.inputs, l.skill.outputs, l.skill.Raw = *manifest, inputs, outputs, l.manifest
		l.checkEntrypoint(complete)
	}
}

func (l *loader) add(file, pointer, format string, args ...any) {
	l.problems = append(l.problems, Problem{File: file, Pointer: pointer, Reason: fmt.Sprintf(format, args...)})
}

// has reports whether the folder has the file, or a problem about the file has been reported.
func (l *loader) has(name string) bool {
	return slices.ContainsFunc(l.skill.Files, func(f File) bool { return f.Path == name }) ||
		slices.ContainsFunc(l.problems, func(p Problem) bool { return p.File == name })
}

func (l *loader) files(list []walkedFile) error {
	broken := len(l.problems) > 0
	buffer := make([]byte, 64<<10)
	for _, one := range list {
		var content bytes.Buffer
		var keep io.Writer
		most := int64(maxBytes)
		switch {
		case one.path == ManifestFile:
			keep, most = &content, maxManifest
		case one.path == ReadmeFile:
			keep, most = &content, maxReadme
		case broken: // no digest is needed
			continue
		}
		if one.info.Size() > most {
			l.add(one.path, "", "is larger than %d bytes", most)
			continue
		}
		file, err := l.hash(one, buffer, keep)
		if errors.Is(err, ErrChanged) || errors.Is(err, fs.ErrNotExist) {
			return ErrChanged
		}
		if err != nil {
			l.add(one.path, "", "%s", reasonOf(err))
			continue
		}
		l.skill.Files = append(l.skill.Files, file)
		switch one.path {
		case ManifestFile:
			l.manifest = append([]byte{}, content.Bytes()...)
		case ReadmeFile:
			l.readme(content.Bytes())
		}
	}
	return nil
}

func (l *loader) hash(one walkedFile, buffer []byte, keep io.Writer) (File, error) {
	f, err := l.dir.open(one.path, one.info)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	return HashFile(f, one.path, one.info.Size(), buffer, keep)
}

func (l *loader) readme(content []byte) {
	switch {
	case !utf8.Valid(content):
		l.add(ReadmeFile, "", "is not valid UTF-8")
	case len(bytes.TrimSpace(content)) == 0:
		l.add(ReadmeFile, "", "is empty; it says what the skill does and how to use it")
	}
	l.skill.Readme = string(content)
}

// checkEntrypoint checks the files that the entrypoint names. After a problem in the walk, the list
// of files may be incomplete.
func (l *loader) checkEntrypoint(complete bool) {
	for n, element := range l.skill.Manifest.Runtime.Entrypoint {
		name, ok := strings.CutPrefix(element, "./")
		if !ok {
			continue
		}
		where := fmt.Sprintf("/runtime/entrypoint/%d", n)
		if !fs.ValidPath(name) || name == "." || strings.Contains(name, `\`) {
			l.add(ManifestFile, where,
				"must name a file below the skill's folder: ./ and a path with single slashes, without .. and without backslashes")
			continue
		}
		at := slices.IndexFunc(l.skill.Files, func(f File) bool { return f.Path == name })
		hidden := strings.HasPrefix(name, ".") || strings.Contains(name, "/.")
		switch {
		case at < 0 && complete && hidden:
			l.add(ManifestFile, where, "names %s, but hidden files do not belong to a skill", schema.Clip(element))
		case at < 0 && complete:
			l.add(ManifestFile, where, "names %s, which is no regular file of the skill's folder", schema.Clip(element))
		case at >= 0 && n == 0 && !l.skill.Files[at].Program:
			l.add(ManifestFile, where, "names %s, which begins neither with #! nor like an ELF binary: put its interpreter before it, as "+
				"in [\"bash\", \"./run.sh\"]",
				schema.Clip(element))
		}
	}
}

// firstProblems sorts problems by place and keeps maxProblems of them.
func firstProblems(list []Problem) []Problem {
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), strings.Compare(a.Pointer, b.Pointer), strings.Compare(a.Reason, b.Reason))
	})
	return cut(slices.Compact(list), maxProblems, func(n int) Problem {
		return Problem{File: list[len(list)-1].File, Reason: fmt.Sprintf("and %d more problems", n)}
	})
}
