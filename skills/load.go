package skills

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
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

// meantToBeSkill reports whether a folder holds one of the two files that make a skill. A folder with neither is nobody's mistake.
func meantToBeSkill(t tree) bool {
	for _, name := range []string{ManifestFile, ReadmeFile} {
		if _, err := t.lstat(name); err == nil {
			return true
		}
	}
	return false
}

// load reads a skill whose folder has been walked: the skill, or what is wrong with it, all of it at once. The error is errChanged or one
// of reading; nothing is known then.
func load(t tree, folder string, seen *scan) (*Skill, []Problem, error) {
	l := loader{tree: t, skill: &Skill{}, problems: seen.problems}
	if err := l.files(seen.files); err != nil {
		return nil, nil, err
	}
	if l.manifest == nil && !l.has(ManifestFile) {
		l.add(ManifestFile, "", "does not exist; it is the tool's contract")
	}
	if l.judge(folder, seen.problems == nil); len(l.problems) > 0 {
		return nil, inOrder(l.problems), nil
	}
	l.skill.Digest = digest(l.skill.Files)
	return l.skill, nil, nil
}

type loader struct {
	tree     tree
	skill    *Skill
	manifest []byte // nil: there is none that could be read
	problems []Problem
}

// judge looks at what the manifest says, and whether SKILL.md is there. complete says that the list of files is.
func (l *loader) judge(id string, complete bool) {
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
		l.entrypoint(complete)
	}
}

func (l *loader) add(file, pointer, format string, args ...any) {
	l.problems = append(l.problems, Problem{File: file, Pointer: pointer, Reason: fmt.Sprintf(format, args...)})
}

// has reports whether the folder holds the file, or something wrong in its place that is reported already.
func (l *loader) has(name string) bool {
	return slices.ContainsFunc(l.skill.Files, func(f File) bool { return f.Path == name }) ||
		slices.ContainsFunc(l.problems, func(p Problem) bool { return p.File == name })
}

func (l *loader) files(list []scanned) error {
	broken := len(l.problems) > 0
	for _, one := range list {
		var keep *[]byte
		var content []byte
		most := int64(maxBytes)
		switch one.path {
		case ManifestFile:
			keep, most = &content, maxManifest
		case ReadmeFile:
			keep, most = &content, maxReadme
		default:
			if broken { // no digest will be needed
				continue
			}
		}
		if one.info.Size() > most {
			l.add(one.path, "", "is larger than %d bytes", most)
			continue
		}
		file, err := readFile(l.tree, one, keep)
		if err != nil {
			if errors.Is(err, errChanged) || errors.Is(err, fs.ErrNotExist) {
				return errChanged
			}
			l.add(one.path, "", "%s", reasonOf(err))
			continue
		}
		l.skill.Files = append(l.skill.Files, file)
		switch one.path {
		case ManifestFile:
			l.manifest = content
		case ReadmeFile:
			l.readme(content)
		}
	}
	return nil
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

// readFile reads a whole file, hashes it and keeps its content when keep is not nil. A file that is not as long as it was is errChanged.
func readFile(t tree, one scanned, keep *[]byte) (File, error) {
	file := File{Path: one.path, Size: one.info.Size()}
	f, err := t.open(one.path, one.info)
	if err != nil {
		return file, err
	}
	defer f.Close()
	sum := sha256.New()
	head := make([]byte, 0, 4)
	var all bytes.Buffer
	buffer := make([]byte, min(file.Size+1, 64<<10))
	for read := int64(0); ; {
		// One byte more than there should be shows that the file grew.
		n, err := f.Read(buffer[:min(int64(len(buffer)), file.Size-read+1)])
		read += int64(n)
		sum.Write(buffer[:n])
		head = append(head, buffer[:min(n, 4-len(head))]...)
		if keep != nil {
			all.Write(buffer[:n])
		}
		switch {
		case read > file.Size, errors.Is(err, io.EOF) && read < file.Size:
			return file, errChanged
		case errors.Is(err, io.EOF):
			file.SHA256, file.Executable = hex.EncodeToString(sum.Sum(nil)), startsItself(head)
			if keep != nil {
				*keep = append([]byte{}, all.Bytes()...)
			}
			return file, nil
		case err != nil:
			return file, err
		}
	}
}

// startsItself reports whether a file can be started without naming an interpreter: it begins with #! or is an ELF binary. The bit of
// the file system is not asked: embedded files, ZIPs and Windows have none, and a skill must not become another one by where it lies.
func startsItself(head []byte) bool {
	return bytes.HasPrefix(head, []byte("#!")) || bytes.HasPrefix(head, []byte("\x7fELF"))
}

// digest names a skill by its content: SHA-256, in lower-case hex, over
//
//	secbox skill 1\n
//	<sha256 of the content in hex> <x or -> <size in bytes> <path>\n     for each file, by path in the order of bytes
//
// where x stands for Executable. Paths are relative, with slashes, and hold no control characters, so no two folders have one listing.
// Directories count by the files in them; modes, owners and times do not count.
func digest(files []File) string {
	sum := sha256.New()
	fmt.Fprintln(sum, "secbox skill 1")
	for _, f := range files {
		x := "-"
		if f.Executable {
			x = "x"
		}
		fmt.Fprintf(sum, "%s %s %d %s\n", f.SHA256, x, f.Size, f.Path)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// entrypoint looks for the files that the entrypoint names. When the walk found something wrong, the list of files may be incomplete.
func (l *loader) entrypoint(complete bool) {
	for n, element := range l.skill.Manifest.Runtime.Entrypoint {
		name, ok := strings.CutPrefix(element, "./")
		if !ok {
			continue
		}
		where := fmt.Sprintf("/runtime/entrypoint/%d", n)
		if !fs.ValidPath(name) || name == "." || strings.Contains(name, `\`) {
			l.add(ManifestFile, where, "must name a file below the skill's folder: ./ and a path with single slashes, without .. and without backslashes")
			continue
		}
		at := slices.IndexFunc(l.skill.Files, func(f File) bool { return f.Path == name })
		switch {
		case at < 0 && complete && slices.ContainsFunc(strings.Split(name, "/"), func(s string) bool { return strings.HasPrefix(s, ".") }):
			l.add(ManifestFile, where, "names %s, but hidden files do not belong to a skill", schema.Clip(element))
		case at < 0 && complete:
			l.add(ManifestFile, where, "names %s, which is no regular file of the skill's folder", schema.Clip(element))
		case at >= 0 && n == 0 && !l.skill.Files[at].Executable:
			l.add(ManifestFile, where, "names %s, which begins neither with #! nor like an ELF binary: put its interpreter before it, as in [\"bash\", \"./run.sh\"]", schema.Clip(element))
		}
	}
}

// inOrder sorts problems by place and keeps as many as a person would read.
func inOrder(list []Problem) []Problem {
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), strings.Compare(a.Pointer, b.Pointer), strings.Compare(a.Reason, b.Reason))
	})
	return cut(slices.Compact(list), maxProblems, func(n int) Problem {
		return Problem{File: list[len(list)-1].File, Reason: fmt.Sprintf("and %d more problems", n)}
	})
}
