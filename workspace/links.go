package workspace

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"

	"secbox/tree"
)

// links finds the files that symbolic links among the artifacts of an exec lead to, as the container saw them.
type links struct {
	project *Project
	uid     int                   // the container's user
	dirs    map[string]*tree.Tree // by name: inputs, work, artifacts; nil before the first use
	open    map[string]bool       // whether the container had it
	top     *os.Root              // the exec's artifacts
}

func newLinks(p *Project, artifacts *os.Root, a Access) *links {
	return &links{
		project: p, uid: p.w.opts.UID, top: artifacts, dirs: map[string]*tree.Tree{},
		open: map[string]bool{inputsDir: a.Inputs != None, workDir: a.Work != None, artifactsDir: a.Artifacts != None},
	}
}

func (l *links) close() {
	for _, dir := range l.dirs {
		_ = dir.Close()
	}
}

// maxHops is how many links a path may have, as on Linux.
const maxHops = 40

// find opens the regular file that a link leads to; nil if there is none that the job could read. directory is the link's own,
// with a slash at the end. A path through a link to a directory is not followed.
func (l *links) find(directory, target string) (*os.File, fs.FileInfo, error) {
	at := target
	if !path.IsAbs(at) {
		at = path.Join(containerRoot+artifactsDir, directory, at)
	}
	for range maxHops {
		part, below, _ := strings.Cut(strings.TrimPrefix(path.Clean(at), containerRoot), "/")
		if !strings.HasPrefix(path.Clean(at), containerRoot) || below == "" || !l.open[part] {
			return nil, nil, nil
		}
		dir, err := l.dir(part)
		if err != nil {
			return nil, nil, err
		}
		fi, err := l.look(dir, below)
		switch {
		case err != nil: // as the job would have found it
			return nil, nil, nil //nolint:nilerr // there is no such file
		case fi.Mode()&fs.ModeSymlink != 0:
			next, err := dir.Readlink(below)
			if err != nil {
				return nil, nil, nil //nolint:nilerr // it is gone
			}
			if at = next; !path.IsAbs(at) {
				at = path.Join(containerRoot+part, path.Dir(below), next)
			}
			continue
		case !fi.Mode().IsRegular() || !l.mayRead(fi):
			return nil, nil, nil
		}
		f, fi, err := dir.Open(below)
		if err != nil {
			return nil, nil, nil //nolint:nilerr // it was exchanged
		}
		return f, fi, nil
	}
	return nil, nil, nil
}

const containerRoot = "/workspace/"

// look describes a file whose directories the job could pass.
func (l *links) look(dir *tree.Tree, below string) (fs.FileInfo, error) {
	for i, c := range below {
		if c != '/' {
			continue
		}
		fi, err := dir.Lstat(below[:i])
		if err != nil {
			return nil, err
		}
		if fi.Mode().Perm()&0o001 == 0 && !l.owns(fi) {
			return nil, fs.ErrPermission
		}
	}
	return dir.Lstat(below)
}

func (l *links) mayRead(fi fs.FileInfo) bool { return fi.Mode().Perm()&0o004 != 0 || l.owns(fi) }

// owns reports whether the container's user, or one who may change its rights, owns a file. Where core-api is not root, it is that user.
func (l *links) owns(fi fs.FileInfo) bool { return l.uid <= 0 || tree.BelongsTo(fi, l.uid) }

func (l *links) dir(name string) (*tree.Tree, error) {
	if dir := l.dirs[name]; dir != nil {
		return dir, nil
	}
	var root *os.Root
	var err error
	if name == artifactsDir {
		root, err = l.top.OpenRoot(".")
	} else {
		root, err = l.project.openPart(name)
	}
	if err != nil {
		return nil, err
	}
	l.dirs[name] = tree.New(root)
	return l.dirs[name], nil
}

// followLink replaces a symbolic link by a copy of the regular file that it leads to, and completes its entry. The entry stays a link
// if it leads to none. reason says why a link that leads to a file is omitted.
func (c *collector) followLink(dir *os.Root, at place, name string, entry *ManifestEntry) (reason string, err error) {
	if runtime.GOOS == "windows" { // its links are other ones than the container's
		return "", nil
	}
	target, err := dir.Readlink(name)
	if err != nil {
		return "", err
	}
	f, fi, err := c.links.find(at.stored, target)
	if f == nil || err != nil {
		return "", err
	}
	defer f.Close()
	if fi.Size() > c.maxBytes-c.manifest.TotalBytes {
		return OmitOverLimit, nil
	}
	temp := ".collect-" + c.fresh()
	to, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fi.Mode().Perm()&0o111|0o644)
	if err != nil {
		return "", err
	}
	if c.buffer == nil {
		c.buffer = make([]byte, 64<<10)
	}
	read, sum, err := hashed(c.ctx, to, io.LimitReader(f, fi.Size()+1), c.buffer)
	if err = errors.Join(err, to.Close()); err != nil || read != fi.Size() { // another exec of the project may be writing
		_ = dir.Remove(temp)
		return OmitUnreadable, err
	}
	c.chown(dir, temp)
	if err := dir.Rename(temp, name); err != nil {
		_ = dir.Remove(temp)
		return "", err
	}
	entry.Kind, entry.Size, entry.SHA256, entry.Link = KindFile, read, sum, tree.CutName(strings.ToValidUTF8(target, "\uFFFD"), maxOmittedName)
	c.manifest.TotalBytes += read
	return "", nil
}
