package skills

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"secbox/fault"
	"secbox/workspace/tree"
)

// skillDir is the folder of one skill, embedded or on disk. Its methods never follow links.
type skillDir interface {
	// names lists a directory, in no order, and may stop after max names.
	names(dir string, max int) ([]string, error)
	// lstat describes an entry itself, not its target.
	lstat(name string) (fs.FileInfo, error)
	// open opens a regular file that is still the one that lstat has seen. It never blocks.
	open(name string, seen fs.FileInfo) (fs.File, error)
	io.Closer
}

// sourceDir is a folder of skills.
type sourceDir interface {
	// names lists the entries that may be skills.
	names() ([]string, error)
	// skill opens the folder of one; errNotFolder for anything else.
	skill(name string) (skillDir, error)
	// fsys returns the file system for Skill.FS.
	fsys(name string) fs.FS
	io.Closer
}

var (
	errNotFolder = errors.New("is no folder")
	errLink      = errors.New("is a symbolic link; skills are not followed through links: copy the folder")
)

// embedded is a skillDir or, as embeddedSource, a sourceDir for an fs.FS that has no links and does
// not change.
type embedded struct{ fs.FS }

func (e embedded) Close() error { return nil }

func (e embedded) lstat(name string) (fs.FileInfo, error) { return fs.Stat(e.FS, name) }

func (e embedded) open(name string, _ fs.FileInfo) (fs.File, error) { return e.Open(name) }

func (e embedded) names(dir string, _ int) ([]string, error) {
	list, err := fs.ReadDir(e.FS, dir)
	names := make([]string, len(list))
	for n, entry := range list {
		names[n] = entry.Name()
	}
	return names, err
}

type embeddedSource struct{ embedded }

func openBuiltIn() (sourceDir, error) { return embeddedSource{embedded{builtIn}}, nil }

func (e embeddedSource) names() ([]string, error) { return e.embedded.names(".", 0) }

func (e embeddedSource) skill(name string) (skillDir, error) {
	fi, err := fs.Stat(e.FS, name)
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return nil, errNotFolder
	}
	return embedded{e.fsys(name)}, nil
}

func (e embeddedSource) fsys(name string) fs.FS {
	sub, _ := fs.Sub(e.FS, name) // fails only for invalid names
	return sub
}

// diskSource is the operator's folder. The folder is trusted, its contents are less so: the author
// of a skill must not be able to make the server read other files or block.
type diskSource struct {
	root *os.Root
	dir  string
}

// maxFolders bounds the names in a folder of skills, in case it is / or a home directory by
// mistake.
const maxFolders = 10_000

func openDisk(dir string) (diskSource, error) {
	root, err := os.OpenRoot(dir)
	return diskSource{root, dir}, err
}

func (d diskSource) Close() error { return d.root.Close() }

// asSkill returns the folder itself as the folder of one skill. It shares the descriptor.
func (d diskSource) asSkill() diskSkill { return diskSkill{d.root} }

func (d diskSource) names() ([]string, error) {
	names, err := d.asSkill().names(".", maxFolders)
	if err == nil && len(names) > maxFolders {
		err = fmt.Errorf("it holds more than %d entries", maxFolders)
	}
	return names, err
}

func (d diskSource) skill(name string) (skillDir, error) {
	before, err := d.root.Lstat(name)
	switch {
	case err != nil:
		return nil, err
	case before.Mode()&fs.ModeSymlink != 0:
		return nil, errLink
	case !before.IsDir():
		return nil, errNotFolder
	}
	// "/." opens the name as a directory: opening a FIFO that has replaced it would block.
	root, err := d.root.OpenRoot(name + "/.")
	if err != nil {
		return nil, err
	}
	after, err := root.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = ErrChanged
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return diskSkill{root}, nil
}

func (d diskSource) fsys(name string) fs.FS { return diskFS{d.dir, name} }

type diskSkill struct{ root *os.Root }

func (d diskSkill) Close() error { return d.root.Close() }

func (d diskSkill) lstat(name string) (fs.FileInfo, error) { return d.root.Lstat(name) }

func (d diskSkill) names(dir string, max int) ([]string, error) {
	// A link that has replaced the directory cannot leave the folder, and a FIFO does not block and
	// has no names.
	f, err := d.root.OpenFile(dir, os.O_RDONLY|tree.OpenSafely, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(max + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

func (d diskSkill) open(name string, seen fs.FileInfo) (fs.File, error) {
	f, err := d.root.OpenFile(name, os.O_RDONLY|tree.OpenSafely, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !os.SameFile(seen, fi) {
		err = ErrChanged
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// diskFS opens the operator's folder again for each file, so that skills hold no descriptors.
type diskFS struct{ dir, folder string }

// Open implements fs.FS for regular files and directories. It follows no links.
func (d diskFS) Open(name string) (fs.File, error) {
	f, err := d.open(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return f, nil
}

func (d diskFS) open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	source, err := openDisk(d.dir)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	skill, err := source.skill(d.folder)
	if err != nil {
		return nil, err
	}
	defer skill.Close()
	for parent := path.Dir(name); parent != "."; parent = path.Dir(parent) {
		if fi, err := skill.lstat(parent); err != nil || !fi.IsDir() {
			return nil, fs.ErrNotExist
		}
	}
	seen, err := skill.lstat(name)
	if err != nil {
		return nil, err
	}
	if !seen.Mode().IsRegular() && !seen.IsDir() {
		return nil, fs.ErrInvalid
	}
	return skill.open(name, seen)
}

// reasonOf explains briefly why something could not be read, without the path, which the caller
// names.
func reasonOf(err error) string {
	var f *fault.Error
	var p *fs.PathError
	switch {
	case errors.As(err, &f):
		return f.Message
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist"
	case errors.Is(err, fs.ErrPermission):
		return "cannot be read: permission denied"
	case errors.As(err, &p):
		return "cannot be read: " + p.Err.Error()
	}
	return err.Error()
}
