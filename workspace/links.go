package workspace

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"secbox/workspace/tree"
)

// links finds the files that symbolic links among the artifacts of an exec lead to, as the
// container saw them.
type links struct {
	project *Project
	uid     int                   // the container's user
	taken   bool                  // artifacts that the walk has passed are root's
	dirs    map[string]*tree.Tree // by name: inputs, work, artifacts; nil before the first use
	open    map[string]bool       // whether the container had it
	top     *os.Root              // the exec's artifacts
	renamed map[string]string     // what the walk has renamed below top: the new name by the path on the disk with the old one
	steps   int                   // directories that may still be passed
	below   string                // the exec's directory in the container's artifacts/; empty: it is artifacts/
}

func newLinks(p *Project, artifacts *os.Root, a Access) *links {
	return &links{
		project: p, uid: p.w.opts.UID, taken: p.ownsArtifacts(), top: artifacts, dirs: map[string]*tree.Tree{},
		renamed: map[string]string{}, steps: maxSteps,
		open: map[string]bool{inputsDir: a.Inputs != None, workDir: a.Work != None, artifactsDir: a.Artifacts != None},
	}
}

func (l *links) close() {
	for _, dir := range l.dirs {
		_ = dir.Close()
	}
}

const (
	maxHops  = 40      // links that a path may have, as on Linux
	maxSteps = 1 << 20 // directories that all links of an exec may pass, some seconds: each name is looked up from the top
)

// find opens the regular file that a link leads to, along other links and back along .., as Linux
// does. It returns nil if there is none that the job could read, or the way is too long. directory
// is the link's own, with a slash at the end.
func (l *links) find(ctx context.Context, directory, target string) (*os.File, fs.FileInfo, error) {
	at := strings.Split(containerRoot+artifactsDir+"/"+l.below+"/"+directory, "/") // a directory without links, of names
	at = slices.DeleteFunc(at, func(name string) bool { return name == "" })
	left := components(&at, target)
	for hops := 0; len(left) > 0; {
		name := left[0]
		left = left[1:]
		switch {
		case name == "" || name == ".":
			continue
		case name == "..":
			at = at[:max(0, len(at)-1)]
			continue
		case len(at) == 0 && name == containerRoot[1:len(containerRoot)-1], len(at) == 1 && l.open[name]:
			at = append(at, name)
			continue
		case len(at) < 2:
			return nil, nil, nil
		case l.below != "" && len(at) == 2 && at[1] == artifactsDir:
			if name != l.below {
				return nil, nil, nil // another exec's
			}
			at = append(at, name)
			continue
		}
		if l.steps -= len(at); l.steps < 0 || len(at) > tree.MaxDepth {
			return nil, nil, nil
		}
		dir, err := l.dir(at[1])
		if err = cmp.Or(context.Cause(ctx), err); err != nil {
			return nil, nil, err
		}
		above := at[2:]
		if l.below != "" && at[1] == artifactsDir {
			above = at[3:]
		}
		below := strings.Join(append(slices.Clone(above), name), "/")
		if now := l.renamed[below]; now != "" && at[1] == artifactsDir {
			name = now
			below = strings.Join(append(slices.Clone(above), name), "/")
		}
		fi, err := dir.Lstat(below)
		switch {
		case err != nil: // as the job would have found it
			return nil, nil, nil //nolint:nilerr // there is no such file
		case fi.IsDir():
			if fi.Mode().Perm()&0o001 == 0 && !l.owns(at[1], fi) {
				return nil, nil, nil
			}
			at = append(at, name)
		case fi.Mode()&fs.ModeSymlink != 0:
			next, err := dir.Readlink(below)
			if hops++; err != nil || hops > maxHops {
				return nil, nil, nil //nolint:nilerr // it is gone
			}
			left = append(components(&at, next), left...)
		case !fi.Mode().IsRegular() || len(left) > 0 || fi.Mode().Perm()&0o004 == 0 && !l.owns(at[1], fi):
			return nil, nil, nil
		default:
			f, fi, err := dir.Open(below)
			if err != nil {
				return nil, nil, nil //nolint:nilerr // it was exchanged
			}
			return f, fi, nil
		}
	}
	return nil, nil, nil
}

// components splits a path. If it is absolute, it begins anew.
func components(at *[]string, target string) []string {
	if path.IsAbs(target) {
		*at = nil
	}
	return strings.Split(target, "/")
}

const containerRoot = "/workspace/"

// owns reports whether the container's user, or one who may change its rights, owns a file. Where
// core-api is not root, it is that user. What is root's among the artifacts was the job's before
// the walk took it.
func (l *links) owns(part string, fi fs.FileInfo) bool {
	return l.uid <= 0 || tree.BelongsTo(fi, l.uid) || l.taken && part == artifactsDir && tree.BelongsTo(fi, 0)
}

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

// followLink replaces a symbolic link by a copy of the regular file that it leads to, and completes
// its entry. The entry stays a link if it leads to none. reason says why a link that leads to a
// file is omitted.
func (c *collector) followLink(dir *os.Root, at place, name string, entry *ManifestEntry) (reason string, err error) {
	if runtime.GOOS == "windows" { // its links are other ones than the container's
		return "", nil
	}
	target, err := dir.Readlink(name)
	if err != nil {
		return "", err
	}
	f, fi, err := c.links.find(c.ctx, at.stored, target)
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
	entry.Kind, entry.Size, entry.SHA256, entry.Link = KindFile, read, sum,
		tree.CutName(strings.ToValidUTF8(target, "\uFFFD"), maxOmittedName)
	c.manifest.TotalBytes += read
	return "", nil
}
