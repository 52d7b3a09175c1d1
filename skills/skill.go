package skills

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"secbox/skills/schema"
	"secbox/workspace/tree"
)

// The sources of skills.
const (
	BuiltIn   = "built-in"   // embedded in the binary
	SkillsDir = "skills_dir" // the operator's folder, the setting sandbox.skills_dir
	Package   = "package"    // packages of users; see packages/library
)

// Skill is a skill that can be invoked. It is immutable: when its folder changes, the catalog gets
// a new one.
type Skill struct {
	Manifest Manifest
	Raw      json.RawMessage // manifest.json as it was read
	Readme   string          // SKILL.md
	Source   string
	Digest   string // see Digest; also the name of the skill's folder in a container
	Files    []File // by path

	fsys            fs.FS // the folder
	inputs, outputs *schema.Schema
}

// File is one file of a skill's folder.
type File struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
	// Executable is the owner's execute bit of the file's mode, or Program where files have no
	// modes: in a binary and on Windows.
	Executable bool `json:"executable,omitempty"`
	Program    bool `json:"-"` // by its content; see tree.IsProgram
}

// ID returns the skill's id.
func (s *Skill) ID() string { return s.Manifest.ID }

// FS returns the skill's folder, which may hold more than Files. Its files may have changed since
// Digest was computed: a caller that copies them must check.
func (s *Skill) FS() fs.FS { return s.fsys }

// WithFS returns the skill with its files read from elsewhere.
func (s *Skill) WithFS(fsys fs.FS) *Skill {
	moved := *s
	moved.fsys = fsys
	return &moved
}

// Problem is one thing that is wrong with a skill.
type Problem struct {
	File    string `json:"file"`    // below the skill's folder
	Pointer string `json:"pointer"` // JSON pointer into the file; empty: the file as a whole
	Reason  string `json:"reason"`
}

// Broken is a folder that looks like a skill but cannot be used. It hides only itself.
type Broken struct {
	Folder   string    `json:"folder"` // its name in the source
	Source   string    `json:"source"`
	Problems []Problem `json:"problems"` // never empty
}

// Digest identifies a skill by its content: the SHA-256, in lower-case hex, of
//
//	secbox skill 1\n
//	<sha256 of the content in hex> <x or -> <size in bytes> <path>\n     for each file, in byte order of the paths
//
// where x means Executable. Paths are relative, with slashes and without control characters, so no
// two folders have the same text. The first line is "secbox skill 2" if a program is not
// executable, or another file is; see DigestOfContents. Directories count only by their files;
// owners, times and the rest of the modes do not count. The digest of a package includes its hidden
// files; the digest of a folder in the catalog does not.
func Digest(files []File) string {
	for _, f := range files {
		if f.Executable != f.Program {
			return DigestWithModes(files)
		}
	}
	return DigestOfContents(files)
}

// DigestOfContents is Digest as it was before modes counted: programs are taken as executable, and
// other files as not.
func DigestOfContents(files []File) string {
	return digest("secbox skill 1", files, func(f File) bool { return f.Program })
}

// DigestWithModes is Digest with the first line "secbox skill 2", whatever the modes.
func DigestWithModes(files []File) string {
	return digest("secbox skill 2", files, func(f File) bool { return f.Executable })
}

func digest(form string, files []File, executable func(File) bool) string {
	sum := sha256.New()
	fmt.Fprintln(sum, form)
	for _, f := range files {
		x := "-"
		if executable(f) {
			x = "x"
		}
		fmt.Fprintf(sum, "%s %s %d %s\n", f.SHA256, x, f.Size, f.Path)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// ErrChanged is wrapped by errors of reading a file or folder that changed meanwhile.
var ErrChanged = errors.New("changed while it was read; it is read again at the next reload")

// HashFile reads a file to its end, and returns it with its digest, Executable if it is a program.
// It uses the buffer and writes the content to keep, unless that is nil. ErrChanged means that the
// file does not have the given size any more.
func HashFile(r io.Reader, path string, size int64, buffer []byte, keep io.Writer) (File, error) {
	file := File{Path: path, Size: size}
	sum := sha256.New()
	head := make([]byte, 0, 4)
	for read := int64(0); ; {
		n, err := r.Read(buffer[:min(int64(len(buffer)), size-read+1)]) // one byte more shows that the file grew
		read += int64(n)
		sum.Write(buffer[:n])
		head = append(head, buffer[:min(n, 4-len(head))]...)
		if keep != nil {
			if _, err := keep.Write(buffer[:n]); err != nil {
				return file, err
			}
		}
		switch {
		case read > size, errors.Is(err, io.EOF) && read < size:
			return file, ErrChanged
		case errors.Is(err, io.EOF):
			file.SHA256, file.Program = hex.EncodeToString(sum.Sum(nil)), tree.IsProgram(head)
			file.Executable = file.Program
			return file, nil
		case err != nil:
			return file, err
		}
	}
}
