package tools

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/internal/admission"
	"secbox/packages/metadata"
	"secbox/sandbox"
)

// skillsDir has the user's own skills in the sandbox, one directory each.
const skillsDir = sandbox.Root + "/skills"

const (
	maxSkillFiles = 500 // that are listed
	maxSkillNames = 100
)

// skillBounds bound the list of a skill's files.
var skillBounds = sandbox.WalkBounds{Entries: 2000, Depth: 10, Time: sandbox.DefaultWalkBounds.Time}

const skillDescription = `Reads a skill: a folder with instructions (SKILL.md) and the files that they mention. Without "file" the answer is SKILL.md, or else README.md, and the list of files; with "file" it is that file. ` +
	`There are skills of the installation, of the agent, and the user's own ones in /workspace/skills.`

// Skills are the skills of the installation.
type Skills interface {
	// Names returns the names of all, sorted.
	Names() []string
	// Open returns the folder of a skill; nil: there is none of this name.
	Open(name string) fs.FS
}

// Packages are the user's skills that core-api keeps. In containers they are in /workspace/skills,
// too; not on users' machines. A skill or a file that does not exist is fs.ErrNotExist.
type Packages interface {
	Files(ctx context.Context, skill string) ([]string, error)
	Read(ctx context.Context, skill, file string) ([]byte, error)
}

// SkillParams are the arguments of Skill.
type SkillParams struct {
	Name string `json:"name" jsonschema:"the skill's name"`
	File string `json:"file,omitempty" jsonschema:"a file of the skill, as it is in the list; SKILL.md and the list if left out"`
}

// Skill shows a skill of the installation or, if it has none of this name, of the user.
func (s *Session) Skill(ctx context.Context, p SkillParams) (*Result, error) {
	if p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/\x00") {
		return nil, badArgument("name", "must be the name of a skill, without slashes")
	}
	var from skillSource = userSkill{s, skillsDir + "/" + p.Name}
	if s.skills != nil {
		if folder := s.skills.Open(p.Name); folder != nil {
			from = globalSkill{folder}
		}
	}
	candidates := metadata.Files[:]
	if p.File != "" {
		if !fs.ValidPath(p.File) {
			return nil, badArgument("file", "must be a path of the list, relative to the skill and without ..")
		}
		candidates = []string{p.File}
	}
	v := &view{sum: sha256.New(), first: 1, most: maxLines, bare: true, reserve: callerOf(ctx).reserve}
	file, size, err := readFirst(ctx, from, candidates, admission.InTurns(ctx, v))
	if _, own := from.(userSkill); own && s.packages != nil && errors.Is(err, fs.ErrNotExist) {
		if _, e := from.files(ctx); errors.Is(e, fs.ErrNotExist) {
			from = keptSkill{s.packages, p.Name}
			file, size, err = readFirst(ctx, from, candidates, admission.InTurns(ctx, v))
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, s.noSkill(ctx, p, from)
	}
	if err != nil {
		return nil, s.explain(ctx, p.Name+"/"+file, err)
	}
	v.end()
	if v.image || v.binary {
		return &Result{Text: fmt.Sprintf("%s is not text: %s, %d bytes", quote(file), v.mime, size)}, nil
	}
	text := v.page(size)
	if p.File == "" {
		files, err := from.files(ctx)
		if err != nil {
			return nil, s.explain(ctx, p.Name, err)
		}
		text += "\n" + fileList(from.where(), files)
	}
	return &Result{Text: text}, nil
}

// readFirst reads the first of the files that exists, and returns its name.
func readFirst(ctx context.Context, from skillSource, files []string, to io.Writer) (file string, size int64, err error) {
	for _, file = range files {
		if size, err = from.read(ctx, file, to); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return file, size, err
}

// noSkill is the error for a skill, or a file of a skill, that does not exist.
func (s *Session) noSkill(ctx context.Context, p SkillParams, from skillSource) error {
	if files, err := from.files(ctx); err == nil {
		return fault.New(fault.UnknownFile, "the skill %s has no such file. %s", quote(p.Name), fileList(from.where(), files))
	}
	var names []string
	if s.skills != nil {
		names = s.skills.Names()
	}
	entries, err := s.sandbox.ReadDir(ctx, skillsDir, s.user)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.explain(ctx, skillsDir, err)
	}
	for _, e := range entries {
		if e.IsDir && !slices.Contains(names, e.Name) {
			names = append(names, quote(e.Name))
		}
	}
	more := ""
	if len(names) > maxSkillNames {
		names, more = names[:maxSkillNames], ", …"
	}
	return fault.New(fault.UnknownSkill, "there is no skill %s; the skills are: %s%s", quote(p.Name), strings.Join(names, ", "), more)
}

func fileList(where string, files []string) string {
	var b strings.Builder
	b.WriteString("Files of the skill" + where + ":\n")
	for n, f := range files {
		if n == maxSkillFiles {
			fmt.Fprintf(&b, "… %d more\n", len(files)-n)
			break
		}
		b.WriteString(quote(f) + "\n")
	}
	return b.String()
}

// skillSource is where a skill's files are.
type skillSource interface {
	where() string // of the files, for commands
	read(ctx context.Context, file string, to io.Writer) (int64, error)
	files(ctx context.Context) ([]string, error)
}

// globalSkill is a skill of the installation.
type globalSkill struct{ folder fs.FS }

func (globalSkill) where() string { return "" }

func (g globalSkill) read(_ context.Context, file string, to io.Writer) (int64, error) {
	in, err := g.folder.Open(file)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	return io.Copy(to, in)
}

func (g globalSkill) files(ctx context.Context) (list []string, err error) {
	err = fs.WalkDir(g.folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			list = append(list, name)
		}
		return errors.Join(err, ctx.Err())
	})
	return list, err
}

// keptSkill is a skill of the user that core-api keeps.
type keptSkill struct {
	packages Packages
	name     string
}

func (keptSkill) where() string { return ", which commands of the user's machine do not find" }

func (k keptSkill) read(ctx context.Context, file string, to io.Writer) (int64, error) {
	content, err := k.packages.Read(ctx, k.name, file)
	if err != nil {
		return 0, err
	}
	n, err := to.Write(content)
	return int64(n), err
}

func (k keptSkill) files(ctx context.Context) ([]string, error) { return k.packages.Files(ctx, k.name) }

// userSkill is a skill in the user's sandbox.
type userSkill struct {
	session *Session
	dir     string
}

func (u userSkill) where() string { return " in " + quote(u.dir) }

func (u userSkill) read(ctx context.Context, file string, to io.Writer) (int64, error) {
	return u.session.sandbox.ReadFileTo(ctx, u.dir+"/"+file, to, u.session.user)
}

func (u userSkill) files(ctx context.Context) (list []string, err error) {
	err = sandbox.WalkDir(ctx, u.session.sandbox, u.dir, u.session.user, skillBounds, func(rel string, _ sandbox.DirEntry) error {
		list = append(list, rel)
		return nil
	})
	return list, err
}
