package library

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"secbox/pathadapter"
	"secbox/skills"
	"secbox/tree"
)

// skillBounds is what is looked at of a skill: what an archive may hold, files and as many folders, and what listings walk.
var skillBounds = tree.Bounds{Entries: 20_000, Depth: tree.ListingBounds.Depth}

// contents is what a tree holds, as far as it makes a version.
type contents struct {
	files  []skills.File // regular files, by path
	odd    string        // something that no version can hold, and why; "" when there is none
	digest string        // "" when odd is not
}

// contents lists and hashes a tree, of as many bytes as an upload may have. With a key, files that look as they did at the last call are
// not read again: that is for what is shown. What decides over versions and copies has no key: then every file is read.
func (l *Library) contents(ctx context.Context, key string, t *tree.Tree) (contents, error) {
	return l.contentsUpTo(ctx, key, t, l.Limits.Bytes)
}

// contentsUpTo gives up with tree.ErrTooLarge at the file that passes so many bytes, before it is read: what a command makes large at
// no cost, a file with holes, costs no time either.
func (l *Library) contentsUpTo(ctx context.Context, key string, t *tree.Tree, most int64) (contents, error) {
	before := l.files.get(key)
	var c contents
	after := make(map[string]seenFile, len(before))
	read := map[string]seenFile{} // those whose stamps may be believed
	still, fingerprint, walked := t.Still(), t.NewFingerprint(), l.Now()
	buffer := make([]byte, 64<<10)
	err := t.Walk(ctx, skillBounds, func(e tree.Entry) error {
		if why := oddName(e); why != "" && c.odd == "" {
			c.odd = why
		}
		fingerprint.Add(e)
		if !e.Info.Mode().IsRegular() {
			return nil
		}
		if most -= e.Info.Size(); most < 0 {
			return fmt.Errorf("%w: too many bytes", tree.ErrTooLarge)
		}
		stamp := tree.StatOf(e.Info)
		if known, ok := before[e.Path]; ok && known.stamp == stamp {
			after[e.Path] = known
			c.files = append(c.files, known.file)
			return nil
		}
		began := l.Now()
		l.reads.Add(1)
		file, err := readWhole(e, buffer)
		if err != nil {
			return fmt.Errorf("%q: %w", e.Path, err)
		}
		if began.Sub(stamp.Newest()) > settle {
			read[e.Path] = seenFile{stamp, file}
		}
		c.files = append(c.files, file)
		return nil
	})
	if err != nil {
		return contents{}, err
	}
	slices.SortFunc(c.files, func(a, b skills.File) int { return strings.Compare(a.Path, b.Path) })
	if c.odd == "" {
		c.digest = skills.Digest(c.files)
	}
	look := seenTree{files: after, digest: c.digest}
	if len(read) == 0 || still() {
		maps.Copy(after, read)
		if walked.Sub(fingerprint.Newest()) > settle {
			look.fingerprint = fingerprint
		}
	}
	l.files.put(key, look)
	return c, nil
}

// size is that of all files, in bytes.
func (c contents) size() (n uint64) {
	for _, f := range c.files {
		n += uint64(f.Size)
	}
	return n
}

// oddName says why an entry cannot be in a version. Such a name could also make two trees have one listing.
func oddName(e tree.Entry) string {
	mode := e.Info.Mode()
	if why := pathadapter.NameFault(path.Base(e.Path)); why != "" {
		return fmt.Sprintf("the name %.200q %s", e.Path, why)
	}
	if !mode.IsDir() && !mode.IsRegular() {
		return fmt.Sprintf("%.200q is a link or something special", e.Path)
	}
	return ""
}

// readWhole reads and hashes a file, which must stay as long as it was.
func readWhole(e tree.Entry, buffer []byte) (skills.File, error) {
	file := skills.File{Path: e.Path, Size: e.Info.Size()}
	f, err := e.Open()
	if err != nil {
		return file, err
	}
	defer f.Close()
	sum := sha256.New()
	head := make([]byte, 0, 4)
	for read := int64(0); ; {
		n, err := f.Read(buffer[:min(int64(len(buffer)), file.Size-read+1)]) // one byte more shows that it grew
		read += int64(n)
		sum.Write(buffer[:n])
		head = append(head, buffer[:min(n, 4-len(head))]...)
		switch {
		case read > file.Size, errors.Is(err, io.EOF) && read < file.Size:
			return file, tree.ErrChanged
		case errors.Is(err, io.EOF):
			file.SHA256, file.Executable = hex.EncodeToString(sum.Sum(nil)), skills.Executable(head)
			return file, nil
		case err != nil:
			return file, err
		}
	}
}

// settle is how old the last change of a file must be for its stamp to be believed later: a second change within the same tick of the
// file system's clock leaves no trace.
const settle = 3 * time.Second

type seenFile struct {
	stamp tree.FileStat
	file  skills.File
}

// seenTree is what is remembered of a tree.
type seenTree struct {
	files       map[string]seenFile
	fingerprint *tree.Fingerprint // nil: something has changed so recently that stat data proves nothing
	digest      string            // as contents has it; of a tree that matches the fingerprint
}

// maxSeen bounds what is remembered of files, some 400 bytes each.
const maxSeen = 200_000

// fileCache remembers the digests of files by tree, path and stamp, so that a skill in which nothing has changed is not read again.
type fileCache struct {
	mu    sync.Mutex
	trees map[string]seenTree
	files int
}

func (c *fileCache) get(key string) map[string]seenFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trees[key].files // never changed once it is there
}

// unchanged returns the digest of a tree below copies whose stat data is unchanged.
func (c *fileCache) unchanged(key, name string, copies *tree.Tree) (digest string, ok bool) {
	c.mu.Lock()
	seen := c.trees[key]
	c.mu.Unlock()
	return seen.digest, copies.Matches(name, seen.fingerprint)
}

// forget makes the next look read all files.
func (c *fileCache) forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files -= len(c.trees[key].files)
	delete(c.trees, key)
}

// put remembers a tree; an empty key remembers nothing. Any other tree makes room.
func (c *fileCache) put(key string, tree seenTree) {
	if key == "" || len(tree.files) > maxSeen {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trees == nil {
		c.trees = map[string]seenTree{}
	}
	c.files += len(tree.files) - len(c.trees[key].files)
	c.trees[key] = tree
	for other := range c.trees {
		if c.files <= maxSeen {
			return
		}
		if other != key {
			c.files -= len(c.trees[other].files)
			delete(c.trees, other)
		}
	}
}
