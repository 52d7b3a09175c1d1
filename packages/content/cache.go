package content

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"secbox/skills"
	"secbox/workspace/tree"
)

// settle is the age of a file's last change from which on its stat data is trusted: a second change
// within the same tick of the file system's clock cannot be seen.
const settle = 3 * time.Second

// maxFiles bounds the files that a cache remembers, of about 400 bytes each.
const maxFiles = 200_000

// Cache remembers the digests of files by tree and stat data, so that unchanged files are not read
// again. Use it for display only: decisions about versions and copies use Read. It is safe for
// concurrent use.
type Cache struct {
	now    func() time.Time
	hashed atomic.Int64 // files, for tests

	mu    sync.Mutex
	trees map[string]cachedTree
	files int
}

type cachedTree struct {
	files       map[string]cachedFile // never changed
	fingerprint *tree.Fingerprint     // nil: something has changed so recently that the tree must be walked
	digest      string                // of the tree that matches the fingerprint
}

type cachedFile struct {
	stat tree.FileStat
	file skills.File
}

// NewCache returns an empty cache.
func NewCache(now func() time.Time) *Cache {
	return &Cache{now: now, trees: map[string]cachedTree{}}
}

// Hashed returns the number of files that were read, for tests.
func (c *Cache) Hashed() int64 { return c.hashed.Load() }

// Read is like the function Read, but does not read files that have not changed since the last call
// with this key. An empty key caches nothing.
func (c *Cache) Read(ctx context.Context, key string, t *tree.Tree, most int64) (Content, error) {
	if key == "" {
		return Read(ctx, t, most)
	}
	c.mu.Lock()
	before := c.trees[key].files
	c.mu.Unlock()
	after := make(map[string]cachedFile, len(before))
	read := map[string]cachedFile{} // with trusted stat data
	still, fingerprint, started := t.Still(), t.NewFingerprint(), c.now()
	var began time.Time
	content, err := walk(ctx, t, most, func(e tree.Entry) (skills.File, bool) {
		fingerprint.Add(e)
		if !e.Info.Mode().IsRegular() {
			return skills.File{}, false
		}
		known, ok := before[e.Path]
		if ok && known.stat == tree.StatOf(e.Info) {
			after[e.Path] = known
			return known.file, true
		}
		began = c.now()
		return skills.File{}, false
	}, func(e tree.Entry, file skills.File) {
		c.hashed.Add(1)
		if stat := tree.StatOf(e.Info); began.Sub(stat.Newest()) > settle {
			read[e.Path] = cachedFile{stat, file}
		}
	})
	if err != nil {
		return Content{}, err
	}
	seen := cachedTree{files: after, digest: content.Digest}
	if len(read) == 0 || still() {
		maps.Copy(after, read)
		if started.Sub(fingerprint.Newest()) > settle {
			seen.fingerprint = fingerprint
		}
	}
	c.put(key, seen)
	return content, nil
}

// Unchanged returns the digest of the tree with this name below dir, if its stat data has not
// changed since the last Read with this key.
func (c *Cache) Unchanged(key, name string, dir *tree.Tree) (digest string, ok bool) {
	c.mu.Lock()
	seen := c.trees[key]
	c.mu.Unlock()
	return seen.digest, dir.Matches(name, seen.fingerprint)
}

// Forget makes the next Read read all files.
func (c *Cache) Forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files -= len(c.trees[key].files)
	delete(c.trees, key)
}

// Distrust makes the next Unchanged fail, but keeps the digests of the files.
func (c *Cache) Distrust(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if seen, ok := c.trees[key]; ok {
		seen.fingerprint = nil
		c.trees[key] = seen
	}
}

// put remembers a tree and drops others at random while there are too many files.
func (c *Cache) put(key string, seen cachedTree) {
	if len(seen.files) > maxFiles {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files += len(seen.files) - len(c.trees[key].files)
	c.trees[key] = seen
	for other := range c.trees {
		if c.files <= maxFiles {
			return
		}
		if other != key {
			c.files -= len(c.trees[other].files)
			delete(c.trees, other)
		}
	}
}
