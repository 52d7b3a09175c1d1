package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"secbox/fault"
	"secbox/internal/names"
	"secbox/pathadapter"
	"secbox/workspace/tree"
)

// emptySHA256 is the digest of an empty file, which need not be opened.
const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// Collect walks the artifacts directory of an exec, hashes the regular files, and removes
// everything beyond a limit; maxBytes limits the apparent sizes of all regular files, so a sparse
// file is not read. It must be called once, after the container's confirmed death and before
// Publish. access is what the container had.
//
// The walk goes by name, so the order on the disk does not matter: a file that does not fit is
// omitted, a smaller one behind it may fit. Files with the names of core-api's own are moved, and
// names that are not UTF-8 become names with %XX. A symbolic link to a regular file in a directory
// of the project that the container had is replaced by a copy; other links are not followed, and
// only regular files are opened. When ctx ends or a file cannot be read or removed, the error comes
// with an incomplete manifest.
func (p *Project) Collect(ctx context.Context, execID string, maxBytes int64, access Access) (Manifest, error) {
	return p.collect(ctx, execID, maxBytes, access, false)
}

func (p *Project) collect(ctx context.Context, execID string, maxBytes int64, access Access, beside bool) (Manifest, error) {
	m := Manifest{ExecID: execID}
	dir, err := p.artifacts(execID)
	if err != nil {
		return m, err
	}
	defer dir.Close()
	p.takeOver(dir)
	c := collector{
		ctx: ctx, manifest: &m, maxBytes: maxBytes, room: tree.MaxEntries, pathRoom: MaxPathBytes, own: p.ownsArtifacts(),
		beside: beside,
		fresh:  p.w.TempName,
		links:  newLinks(p, dir, access),
	}
	if beside {
		c.links.below = execID
	}
	defer c.links.close()
	names, err := c.list(dir, "")
	if err == nil {
		err = c.entries(dir, place{}, names, 1)
	}
	if err != nil {
		if f := new(fault.Error); errors.As(err, &f) {
			return m, err
		}
		return m, tree.Failed(err, "the artifacts of exec %s cannot be collected", execID)
	}
	return m, nil
}

// takeOver gives the directory to root with mode 0755, so that the container's uid, which a user of
// this host may have, cannot change the evidence. Errors are ignored: some file systems have
// neither modes nor owners.
func (p *Project) takeOver(dir *os.Root) {
	if fi, err := dir.Stat("."); err == nil && fi.Mode()&^fs.ModeDir != 0o755 {
		_ = dir.Chmod(".", 0o755)
	}
	if p.ownsArtifacts() {
		_ = dir.Lchown(".", 0, 0)
	}
}

// ownsArtifacts reports whether artifacts become root's. A core-api without root is the container's
// user itself, or cannot take files from that user.
func (p *Project) ownsArtifacts() bool { return p.w.opts.UID > 0 && os.Geteuid() == 0 }

type collector struct {
	ctx      context.Context
	manifest *Manifest
	maxBytes int64
	room     int // entries that may still be kept
	pathRoom int // bytes of paths that may still be listed
	buffer   []byte
	own      bool          // kept files become root's
	beside   bool          // processes may have the files open
	fresh    func() string // makes names of temporary files
	links    *links
}

// place is a directory among the artifacts, as paths with a slash at the end; empty for the top.
type place struct{ shown, stored string }

// entries collects the names of a directory; depth is 1 at the top.
func (c *collector) entries(dir *os.Root, at place, names []string, depth int) error {
	for _, name := range names {
		below, next, inner, err := c.visit(dir, at, name, depth)
		if err != nil {
			return fmt.Errorf("%q: %w", tree.CutName(at.shown+name, maxOmittedName), err)
		}
		if below == nil {
			continue
		}
		err = c.entries(below, next, inner, depth+1)
		below.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// visit handles one entry. For a directory that is kept, it returns the open directory, its place
// and the names in it.
func (c *collector) visit(dir *os.Root, at place, name string, depth int) (below *os.Root, next place, names []string, err error) {
	if err := context.Cause(c.ctx); err != nil {
		return nil, next, nil, err
	}
	if runtime.GOOS == "windows" && pathadapter.NameFault(name) != "" {
		c.mention(dir, at.shown+name, name, OmitForeign)
		c.manifest.OmittedCount++
		return nil, next, nil, nil // there is no way to remove it either
	}
	fi, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, next, nil, nil
	}
	if err != nil {
		return nil, next, nil, err
	}
	shown, stored, err := c.nameFor(dir, name, depth)
	if err != nil {
		return nil, next, nil, err
	}
	if stored != name {
		c.links.renamed[at.stored+name], name = stored, stored
	}
	path := at.shown + shown
	if shown == "" {
		return nil, next, nil, c.omit(dir, at.shown+name, name, OmitNotUTF8)
	}
	if fi.IsDir() {
		if depth > tree.MaxDepth {
			return nil, next, nil, c.omit(dir, path, name, OmitTooDeep)
		}
		below, names, err = c.enter(dir, path+"/", name, fi)
		return below, place{path + "/", at.stored + name + "/"}, names, err
	}
	return nil, next, nil, c.leaf(dir, at, shown, name, fi)
}

// nameFor returns the name under which an entry is listed, and its name on the disk, which it may
// change. The listed name is empty if there is none.
func (c *collector) nameFor(dir *os.Root, name string, depth int) (shown, stored string, err error) {
	switch {
	case !utf8.ValidString(name):
		shown, stored = names.Shown(name), names.Shown(name)
	case depth == 1 && slices.Contains(publishedNames, pathadapter.FoldName(name)):
		shown, stored = name, jobPrefix+name
	default:
		return name, name, nil
	}
	for try := 0; ; try++ {
		switch err := tree.RenameNew(dir, name, dir, stored); {
		case err == nil:
			return shown, stored, nil
		case shown != stored && errors.Is(err, fs.ErrExist) && try < maxTries: // the listed name stays
			stored = jobPrefix + c.fresh() + "-" + name
		case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENAMETOOLONG):
			return "", name, nil
		default:
			return "", name, err
		}
	}
}

const (
	jobPrefix = ".job-" // of a job's file that has the name of one of core-api's own
	maxTries  = 10
)

// leaf handles an entry that is no directory.
func (c *collector) leaf(dir *os.Root, at place, shown, name string, fi fs.FileInfo) (err error) {
	path := at.shown + shown
	if len(path) > c.pathRoom {
		return c.omit(dir, path, name, OmitTooMany)
	}
	entry := ManifestEntry{Path: path}
	if stored := at.stored + name; stored != path {
		entry.Stored = stored
	}
	switch mode := fi.Mode(); {
	case mode.IsRegular():
		if fi.Size() > c.maxBytes-c.manifest.TotalBytes {
			return c.omit(dir, path, name, OmitOverLimit)
		}
		if entry.SHA256, err = c.take(dir, name, fi); err != nil {
			return err
		}
		if c.beside { // the copy may be shorter
			if fi, err = dir.Lstat(name); err != nil {
				return err
			}
		}
		entry.Kind, entry.Size = KindFile, fi.Size()
		c.manifest.TotalBytes += fi.Size()
	case mode&fs.ModeSymlink != 0:
		entry.Kind = KindSymlink
		if reason, err := c.followLink(dir, at, name, &entry); err != nil || reason != "" {
			if err == nil {
				err = c.omit(dir, path, name, reason)
			}
			return err
		}
	case mode&fs.ModeNamedPipe != 0:
		entry.Kind = KindFIFO
	case mode&fs.ModeSocket != 0:
		entry.Kind = KindSocket
	case mode&fs.ModeDevice != 0:
		entry.Kind = KindDevice
	default: // on Windows: a reparse point that is not a link
		return c.omit(dir, path, name, OmitUnreadable)
	}
	if _, _, linked := tree.OnDisk(fi); entry.Kind != KindFile && !linked {
		c.chown(dir, name)
	}
	c.pathRoom -= len(path)
	c.manifest.Files = append(c.manifest.Files, entry)
	return nil
}

func (c *collector) enter(parent *os.Root, prefix, name string, fi fs.FileInfo) (dir *os.Root, names []string, err error) {
	if err = tree.CheckMount(parent, name); err != nil {
		return nil, nil, err
	}
	c.chown(parent, name)
	if err = setMode(parent, name, fi, 0o700); err != nil {
		return nil, nil, err
	}
	if dir, _, err = tree.OpenDir(parent, name); err != nil {
		return nil, nil, err
	}
	if names, err = c.list(dir, prefix); err != nil {
		dir.Close()
		return nil, nil, err
	}
	return dir, names, nil
}

// list reads a directory: the first names in sorted order, as many as there is room for. The others
// are removed. Names count when they are listed, so that all levels of the walk together stay
// within the room.
func (c *collector) list(dir *os.Root, prefix string) ([]string, error) {
	var names []string
	overflow := false
	err := tree.EachName(dir, func(name string) error {
		names = append(names, name)
		if len(names) >= 2*c.room+tree.NameBatch {
			slices.Sort(names)
			clear(names[c.room:])
			names = names[:c.room]
			overflow = true
			return context.Cause(c.ctx)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	if len(names) > c.room {
		names = slices.Clip(names[:c.room])
		overflow = true
	}
	if overflow {
		if err := c.removeOthers(dir, prefix, names); err != nil {
			return nil, err
		}
	}
	c.room -= len(names)
	return names, nil
}

// removeOthers removes everything in dir but the sorted names. It repeats until it sees no other
// name: some file systems skip entries when others are removed during a listing.
func (c *collector) removeOthers(dir *os.Root, prefix string, keep []string) error {
	for {
		found := false
		err := tree.EachName(dir, func(name string) error {
			if _, kept := slices.BinarySearch(keep, name); kept {
				return nil
			}
			found = true
			if err := context.Cause(c.ctx); err != nil {
				return err
			}
			return c.omit(dir, prefix+name, name, OmitTooMany)
		})
		if err != nil || !found {
			return err
		}
	}
}

// omit removes an entry with everything below it and lists it as omitted.
func (c *collector) omit(dir *os.Root, path, name, reason string) error {
	c.mention(dir, path, name, reason)
	removed, err := tree.RemoveTree(c.ctx, dir, name)
	c.manifest.OmittedCount += removed
	return err
}

// mention lists an entry as omitted.
func (c *collector) mention(dir *os.Root, path, name, reason string) {
	if len(c.manifest.Omitted) < maxOmittedLines {
		line := OmittedEntry{Path: path, Reason: reason}
		if !utf8.ValidString(path) {
			line.Path = strings.Trim(strconv.QuoteToGraphic(path), `"`)
		}
		line.Path = tree.CutName(line.Path, maxOmittedName)
		if fi, err := dir.Lstat(name); err == nil && fi.Mode().IsRegular() {
			line.Size = fi.Size()
		}
		c.manifest.Omitted = append(c.manifest.Omitted, line)
	}
	switch reason {
	case OmitOverLimit, OmitTooMany, OmitTooDeep:
		c.manifest.Truncated = true
		if !slices.Contains(c.manifest.Limits, reason) {
			c.manifest.Limits = append(c.manifest.Limits, reason)
		}
	}
}

// chown gives an entry to root, if core-api is root. Errors are ignored: some file systems have no
// owners.
func (c *collector) chown(dir *os.Root, name string) {
	if c.own {
		_ = dir.Lchown(name, 0, 0)
	}
}

// setMode gives an entry's owner the needed permissions and removes write permission of others and
// the set-uid bits. A failed chmod is not an error while the owner has the needed permissions.
func setMode(dir *os.Root, name string, fi fs.FileInfo, needed fs.FileMode) error {
	perm := fi.Mode().Perm()&^0o022 | needed
	if fi.Mode()&^fs.ModeType == perm {
		return nil
	}
	if err := dir.Chmod(name, perm); err != nil && fi.Mode()&needed != needed {
		return err
	}
	return nil
}

// take makes an unchanged regular file core-api's, writable by its owner alone, and returns its
// SHA-256. The owner, who may be core-api's user, must be able to read it later. A file with
// several names is replaced by a copy, since jobs may be able to write to the other names.
func (c *collector) take(dir *os.Root, name string, fi fs.FileInfo) (string, error) {
	_, _, linked := tree.OnDisk(fi)
	if !linked {
		c.chown(dir, name)
	}
	if err := setMode(dir, name, fi, 0o400); err != nil {
		return "", err
	}
	if linked || c.beside {
		return c.copy(dir, name, fi)
	}
	return c.hash(dir, name, fi, io.Discard)
}

// copy replaces a file by a copy and returns its SHA-256.
func (c *collector) copy(dir *os.Root, name string, fi fs.FileInfo) (string, error) {
	temp := ".collect-" + c.fresh()
	to, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fi.Mode().Perm()&^0o022|0o600)
	if err != nil {
		return "", err
	}
	sum, err := c.hash(dir, name, fi, to)
	if err = errors.Join(err, to.Close()); err == nil {
		err = dir.Rename(temp, name)
	}
	if err != nil {
		_ = dir.Remove(temp)
	}
	return sum, err
}

// hash reads a regular file that is still the one that fi describes, and copies it to w. A change
// of size meanwhile is an error, unless processes may have the file open: the container is dead, so
// another program of the host is writing.
func (c *collector) hash(dir *os.Root, name string, fi fs.FileInfo, w io.Writer) (string, error) {
	size := fi.Size()
	if size == 0 {
		return emptySHA256, nil
	}
	f, _, err := tree.OpenSame(dir, name, fi)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if c.buffer == nil {
		c.buffer = make([]byte, 64<<10)
	}
	if c.beside {
		_, sum, err := hashed(c.ctx, w, io.LimitReader(f, size), c.buffer)
		return sum, err
	}
	read, sum, err := hashed(c.ctx, w, io.LimitReader(f, size+1), c.buffer) // one byte more than there should be shows that the file grew
	if err == nil && read != size {
		err = fmt.Errorf("its size changed from %d bytes while it was read", size)
	}
	return sum, err
}
