package workspace

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"secbox/fault"
	"secbox/workspace/tree"
)

// Directories of skills below inputs/. Containers see them read-only, and requests may not name
// them.
const (
	// SkillFolders has one directory for each skill that the project has used, named by its digest.
	SkillFolders = ownInputs
	// SkillInputs has the inputs of running invokes. Containers can open a file by its name but not
	// list the directory, so an invoke cannot see others' inputs, unless core-api runs as the
	// containers' user.
	SkillInputs = ownInputs + "/.in"
)

// staleSkill is the age at which a skill's folder or input is unused: longer than any job may run,
// also on another node.
const staleSkill = 7 * 24 * time.Hour

// Folder is a directory that never changes under its name, such as a skill.
type Folder struct {
	Digest string // its name: lower-case hex
	Files  []FolderFile
	FS     fs.FS // the source of the files; their content is compared with Files
}

// FolderFile is one file of a Folder.
type FolderFile struct {
	Path       string // below the folder, with slashes
	Size       int64  // bytes
	SHA256     string // lower-case hex
	Executable bool
}

// PutFolder makes sure that inputs/.skill/<digest>/ is the folder. It appears as a whole, by a
// rename. An existing one is checked once in a process's life and replaced if it differs.
// fault.SkillChanged when the source differs from Files.
func (p *Project) PutFolder(f Folder) error {
	if !tree.IsDigest(f.Digest) {
		return fault.New(fault.Internal, "%q is no digest of a folder", tree.CutName(f.Digest, 80))
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
		return tree.Failed(err, "the skill's folder cannot be put into the inputs of project %s", p.id)
	}
	fi, err := root.Lstat(name)
	if err != nil {
		return tree.Failed(err, "the skill's folder is gone from the inputs of project %s", p.id)
	}
	if p.state.folders == nil {
		p.state.folders = map[string]fs.FileInfo{}
	}
	p.state.folders[f.Digest] = fi
	return nil
}

// putFolder keeps a correct folder and replaces any other. The caller holds p.state.mu.
func (p *Project) putFolder(root *os.Root, name string, f Folder) error {
	if err := makeOwnInputs(root); err != nil {
		return err
	}
	folders, _, err := tree.OpenBelow(root, inputsDir, SkillFolders)
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
	temp := p.w.TempName()
	staging, _, err := tree.OpenDir(root, stagingDir)
	if err != nil {
		return err
	}
	defer staging.Close()
	defer func() { _, _ = tree.RemoveTree(context.Background(), staging, temp) }() // no-op after the rename
	if err := f.CopyTo(staging, temp); err != nil {
		return err
	}
	// A rename does not replace a directory that is not empty. So a folder that another node has
	// put there meanwhile stays, with the jobs that run in it, unless its content is wrong.
	err = root.Rename(stagingDir+"/"+temp, name)
	if err == nil || folderIs(folders, f) {
		return nil
	}
	if _, err := tree.RemoveTree(context.Background(), folders, f.Digest); err != nil {
		return err
	}
	if err = root.Rename(stagingDir+"/"+temp, name); err != nil && folderIs(folders, f) {
		return nil
	}
	return err
}

// markSkill is how precise a folder's time of last use is. Every edit of an invoked skill leaves a
// folder; those not used for staleSkill are removed when a new one comes.
const markSkill = 24 * time.Hour

func (p *Project) markFolder(root *os.Root, name string, fi fs.FileInfo) {
	if now := p.w.opts.Now(); now.Sub(fi.ModTime()) > markSkill {
		_ = root.Chtimes(name, now, now) // otherwise the folder is removed one day and made again
	}
}

// sweepFolders removes stale folders. The caller holds p.state.mu.
func (p *Project) sweepFolders(folders *os.Root) {
	limit := p.w.opts.Now().Add(-staleSkill)
	var stale []string
	_ = tree.EachName(folders, func(name string) error {
		if fi, err := folders.Lstat(name); tree.IsDigest(name) && err == nil && fi.ModTime().Before(limit) {
			stale = append(stale, name)
		}
		return nil
	})
	for _, name := range stale {
		delete(p.state.folders, name)
		_, _ = tree.RemoveTree(context.Background(), folders, name)
	}
}

// makeOwnInputs makes inputs/.skill/.in if necessary.
func makeOwnInputs(root *os.Root) error {
	if err := tree.RealDir(root, inputsDir); err != nil {
		return err
	}
	if err := tree.MakeDir(root, inputsDir+"/"+SkillFolders); err != nil {
		return err
	}
	if err := tree.RealDir(root, inputsDir, SkillFolders); err != nil {
		return err
	}
	private := inputsDir + "/" + SkillInputs
	err := root.Mkdir(private, 0o711)
	if errors.Is(err, fs.ErrExist) {
		return tree.RealDir(root, private)
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

// folderIs reports whether the folder is there with all its files, unchanged.
func folderIs(folders *os.Root, f Folder) bool {
	dir, _, err := tree.OpenDir(folders, f.Digest)
	if err != nil {
		return false
	}
	defer dir.Close()
	for _, file := range f.Files {
		content, err := dir.OpenFile(file.Path, os.O_RDONLY|tree.OpenSafely, 0)
		if err != nil {
			return false
		}
		fi, err := content.Stat()
		same := err == nil && fi.Mode().IsRegular() && fi.Size() == file.Size && file.Verify(content) == nil
		content.Close()
		if !same {
			return false
		}
	}
	return true
}

// CopyTo copies the folder to name below parent. fault.SkillChanged when the source differs from
// Files.
func (f Folder) CopyTo(parent *os.Root, name string) error {
	if err := tree.MakeDir(parent, name); err != nil {
		return err
	}
	dir, _, err := tree.OpenDir(parent, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	made := map[string]bool{}
	for _, file := range f.Files {
		if !fs.ValidPath(file.Path) {
			return fmt.Errorf("%q is no path of a file", tree.CutName(file.Path, 80))
		}
		if err := makeParents(dir, file.Path, made); err != nil {
			return err
		}
		if err := copyFile(dir, f.FS, file); err != nil {
			return err
		}
	}
	return nil
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

// copyChecked copies a file and compares its size and digest.
func copyChecked(to io.Writer, from io.Reader, file FolderFile) error {
	n, sum, err := hashed(context.Background(), to, io.LimitReader(from, file.Size+1), nil)
	if err == nil && (n != file.Size || sum != file.SHA256) {
		err = skillChanged(fmt.Errorf("%s was changed", file.Path))
	}
	return err
}

// Verify returns an error if the content differs from the file's size or digest.
func (f FolderFile) Verify(content io.Reader) error { return copyChecked(io.Discard, content, f) }

func skillChanged(err error) error {
	return fault.Wrap(fault.SkillChanged, err, "the skill's folder was changed while it was being copied; try again")
}

// NewSkillInput returns an unguessable path below inputs/ for the input of one invoke.
func NewSkillInput() string { return SkillInputs + "/" + rand.Text() + ".json" }

// PutSkillInput writes the input of an invoke to a path from NewSkillInput. release removes it; it
// may be called more than once.
func (p *Project) PutSkillInput(name string, content []byte) (release func(), err error) {
	if path.Dir(name) != SkillInputs {
		return nil, fault.New(fault.Internal, "%q is no path of a skill's input", tree.CutName(name, 80))
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
		return nil, tree.Failed(err, "the skill's input cannot be written to the inputs of project %s", p.id)
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
	if err = errors.Join(err, tree.UndoFileUmask(f, false), f.Close()); err != nil {
		_ = root.Remove(name)
	}
	return err
}

// sweepSkillInputs removes leftovers of crashes, once per process.
func (p *Project) sweepSkillInputs(root *os.Root) {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	if p.state.sweptSkillInputs {
		return
	}
	p.state.sweptSkillInputs = true
	folders, _, err := tree.OpenBelow(root, inputsDir, SkillFolders)
	if err != nil {
		return
	}
	defer folders.Close()
	if private, _, err := tree.OpenDir(folders, path.Base(SkillInputs)); err == nil {
		tree.RemoveOlder(private, p.w.opts.Now().Add(-staleSkill))
		private.Close()
	}
}
