package workspace

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"secbox/fault"
)

// Where skills' things lie below inputs/. Containers see all of it read-only, and no request may name it.
const (
	// SkillFolders holds one directory for each skill that the project has used, named by its digest.
	SkillFolders = ownInputs
	// SkillInputs holds what the running invokes were given. Containers may open what they know the name of, and cannot list it, so an
	// invoke does not see what its neighbours were given. Where core-api itself runs as the containers' user, they can.
	SkillInputs = ownInputs + "/.in"
)

// staleSkill is after how long a skill's folder or input belongs to nobody: longer than any job may take, also on another node.
const staleSkill = 7 * 24 * time.Hour

// Folder is a tree of files that never changes under its name: a skill.
type Folder struct {
	Digest string // its name: lower-case hex
	Files  []FolderFile
	FS     fs.FS // where the files are read from; their content is checked against Files
}

// FolderFile is one file of a Folder.
type FolderFile struct {
	Path       string // below the folder, with slashes
	Size       int64  // bytes
	SHA256     string // lower-case hex
	Executable bool
}

// PutFolder sees to it that inputs/.skill/<digest>/ holds the folder. It appears whole, by a rename. One that is there already is checked
// once in a process's life and replaced when it is not what its name says. fault.SkillChanged when the source is not what Files say.
func (p *Project) PutFolder(f Folder) error {
	if !isDigest(f.Digest) {
		return fault.New(fault.Internal, "%q is no digest of a folder", cutName(f.Digest, 80))
	}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	root, err := p.open()
	if err != nil {
		return err
	}
	defer root.Close()
	name := inputsDir + "/" + SkillFolders + "/" + f.Digest
	if fi, err := root.Lstat(name); err == nil {
		p.markFolder(root, name, fi)
		if known := p.state.folders[f.Digest]; known != nil && os.SameFile(fi, known) {
			return nil
		}
	}
	err = p.putFolder(root, name, f)
	if fault.Is(err, fault.SkillChanged) {
		return err
	}
	if err != nil {
		return failed(err, "the skill's folder cannot be put into the inputs of project %s", p.id)
	}
	fi, err := root.Lstat(name)
	if err != nil {
		return failed(err, "the skill's folder is gone from the inputs of project %s", p.id)
	}
	if p.state.folders == nil {
		p.state.folders = map[string]fs.FileInfo{}
	}
	p.state.folders[f.Digest] = fi
	return nil
}

// putFolder leaves a folder that is what it should be, and else puts one there. p.state.mu is held.
func (p *Project) putFolder(root *os.Root, name string, f Folder) error {
	if err := makeOwnInputs(root); err != nil {
		return err
	}
	folders, _, err := openBelow(root, inputsDir, SkillFolders)
	if err != nil {
		return err
	}
	defer folders.Close()
	if folderIs(folders, f) {
		return nil
	}
	p.sweepFolders(folders)
	if err := p.stage(root); err != nil {
		return err
	}
	temp := p.w.fresh()
	staging, _, err := openDir(root, stagingDir)
	if err != nil {
		return err
	}
	defer staging.Close()
	defer func() { _, _ = RemoveTree(context.Background(), staging, temp) }() // nothing, once it was renamed
	if err := copyFolder(staging, temp, f); err != nil {
		return err
	}
	// A rename replaces no directory that has something in it. So a folder that another node has put there meanwhile stays, and the jobs
	// that run in it keep it; only what is not what its name says is removed.
	err = root.Rename(stagingDir+"/"+temp, name)
	if err == nil || folderIs(folders, f) {
		return nil
	}
	if _, err := RemoveTree(context.Background(), folders, f.Digest); err != nil {
		return err
	}
	if err = root.Rename(stagingDir+"/"+temp, name); err != nil && folderIs(folders, f) {
		return nil
	}
	return err
}

// A user who edits a skill and invokes it leaves a folder for each edit. What nobody has asked for in staleSkill goes when the next new
// one comes; a folder's time is that of its last use, give or take markSkill.
const markSkill = 24 * time.Hour

func (p *Project) markFolder(root *os.Root, name string, fi fs.FileInfo) {
	if now := p.w.opts.Now(); now.Sub(fi.ModTime()) > markSkill {
		_ = root.Chtimes(name, now, now) // where that cannot be done the folder goes one day, and comes back with its next use
	}
}

// sweepFolders removes the folders that are stale. p.state.mu is held.
func (p *Project) sweepFolders(folders *os.Root) {
	limit := p.w.opts.Now().Add(-staleSkill)
	var stale []string
	_ = eachName(folders, func(name string) error {
		if fi, err := folders.Lstat(name); isDigest(name) && err == nil && fi.ModTime().Before(limit) {
			stale = append(stale, name)
		}
		return nil
	})
	for _, name := range stale {
		delete(p.state.folders, name)
		_, _ = RemoveTree(context.Background(), folders, name)
	}
}

// makeOwnInputs makes inputs/.skill/.in where it is missing.
func makeOwnInputs(root *os.Root) error {
	if err := realDir(root, inputsDir); err != nil {
		return err
	}
	if err := makeDir(root, inputsDir+"/"+SkillFolders); err != nil {
		return err
	}
	if err := realDir(root, inputsDir, SkillFolders); err != nil {
		return err
	}
	private := inputsDir + "/" + SkillInputs
	err := root.Mkdir(private, 0o711)
	if errors.Is(err, fs.ErrExist) {
		return realDir(root, private)
	}
	if err != nil {
		return err
	}
	fi, err := root.Lstat(private)
	if err == nil && fi.Mode().Perm() != 0o711 {
		err = root.Chmod(private, 0o711) // the umask took some of it
	}
	return err
}

// openBelow opens a directory two levels down without following a link.
func openBelow(root *os.Root, first, second string) (*os.Root, fs.FileInfo, error) {
	dir, _, err := openDir(root, first)
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close()
	return openDir(dir, second)
}

// folderIs reports whether the folder lies there with all its files, unchanged.
func folderIs(folders *os.Root, f Folder) bool {
	dir, _, err := openDir(folders, f.Digest)
	if err != nil {
		return false
	}
	defer dir.Close()
	for _, file := range f.Files {
		content, err := dir.OpenFile(file.Path, os.O_RDONLY|openSafely, 0)
		if err != nil {
			return false
		}
		fi, err := content.Stat()
		same := err == nil && fi.Mode().IsRegular() && fi.Size() == file.Size && copyChecked(io.Discard, content, file) == nil
		content.Close()
		if !same {
			return false
		}
	}
	return true
}

// copyFolder copies the folder to name below parent.
func copyFolder(parent *os.Root, name string, f Folder) error {
	if err := makeDir(parent, name); err != nil {
		return err
	}
	dir, _, err := openDir(parent, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	made := map[string]bool{}
	for _, file := range f.Files {
		if !fs.ValidPath(file.Path) {
			return fmt.Errorf("%q is no path of a file", cutName(file.Path, 80))
		}
		for _, above := range parents(file.Path) {
			if made[above] {
				continue
			}
			made[above] = true
			if err := makeDir(dir, above); err != nil {
				return err
			}
		}
		if err := copyFile(dir, f.FS, file); err != nil {
			return err
		}
	}
	return nil
}

// parents are the directories above a path, the topmost first.
func parents(file string) (above []string) {
	for i, c := range file {
		if c == '/' {
			above = append(above, file[:i])
		}
	}
	return above
}

func copyFile(dir *os.Root, source fs.FS, file FolderFile) error {
	in, err := source.Open(file.Path)
	if err != nil {
		return skillChanged(err)
	}
	defer in.Close()
	if fi, err := in.Stat(); err != nil || !fi.Mode().IsRegular() {
		return skillChanged(fmt.Errorf("%s is no regular file any more", file.Path))
	}
	mode := fs.FileMode(0o644)
	if file.Executable {
		mode = 0o755
	}
	out, err := dir.OpenFile(file.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	err = copyChecked(out, in, file)
	if fi, e := out.Stat(); err == nil && e == nil && fi.Mode().Perm()&mode != mode {
		err = out.Chmod(mode) // the umask took some of it
	}
	return errors.Join(err, out.Close())
}

// copyChecked copies a file that must have the size and the digest that it is known by.
func copyChecked(to io.Writer, from io.Reader, file FolderFile) error {
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, sum), io.LimitReader(from, file.Size+1))
	if err != nil {
		return err
	}
	if n != file.Size || hex.EncodeToString(sum.Sum(nil)) != file.SHA256 {
		return skillChanged(fmt.Errorf("%s is not what it was", file.Path))
	}
	return nil
}

func skillChanged(err error) error {
	return fault.Wrap(fault.SkillChanged, err, "the skill's folder was changed while it was being copied; try again")
}

func isDigest(s string) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == sha256.Size && hex.EncodeToString(raw) == s
}

// NewSkillInput is a path below inputs/ for what one invoke is given: nobody guesses it.
func NewSkillInput() string { return SkillInputs + "/" + rand.Text() + ".json" }

// PutSkillInput writes what an invoke is given to a path that NewSkillInput made. release removes it; it may be called more than once.
func (p *Project) PutSkillInput(name string, content []byte) (release func(), err error) {
	if path.Dir(name) != SkillInputs {
		return nil, fault.New(fault.Internal, "%q is no path of a skill's input", cutName(name, 80))
	}
	root, err := p.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	p.sweepSkillInputs(root)
	if err = makeOwnInputs(root); err == nil {
		err = writeSkillInput(root, inputsDir+"/"+name, content)
	}
	if err != nil {
		return nil, failed(err, "the skill's input cannot be written to the inputs of project %s", p.id)
	}
	return func() {
		if root, err := p.open(); err == nil {
			_ = root.Remove(inputsDir + "/" + name)
			root.Close()
		}
	}, nil
}

func writeSkillInput(root *os.Root, name string, content []byte) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, open644(f), f.Close()); err != nil {
		_ = root.Remove(name)
	}
	return err
}

// sweepSkillInputs removes, once in a process's life, what a crash left long ago.
func (p *Project) sweepSkillInputs(root *os.Root) {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	if p.state.sweptSkillInputs {
		return
	}
	p.state.sweptSkillInputs = true
	folders, _, err := openBelow(root, inputsDir, SkillFolders)
	if err != nil {
		return
	}
	defer folders.Close()
	if private, _, err := openDir(folders, path.Base(SkillInputs)); err == nil {
		p.w.removeOlder(private, staleSkill)
		private.Close()
	}
}
