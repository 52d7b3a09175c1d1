package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"secbox/internal/admission"
	"secbox/workspace/tree"
)

const (
	maxIntact   = 4096            // remembered files, some 200 bytes each
	intactAfter = 3 * time.Second // minimum age of a file's last change, so that a later change has another time
)

var errAltered = errors.New("was changed after it was collected")

// intactFiles remembers files that had the content of their manifest entry, by stat data that only
// root can forge (the time of the last inode change). So a large file is not hashed again for each
// range that is read. It is safe for concurrent use.
type intactFiles struct {
	mu    sync.Mutex
	seen  map[intactKey]tree.FileStat
	after time.Duration // intactAfter
}

type intactKey struct {
	inode  uint64
	sha256 string
}

func newIntactFiles() intactFiles {
	return intactFiles{seen: map[intactKey]tree.FileStat{}, after: intactAfter}
}

// check compares an open file, whose stat data was just read, with its entry: errAltered when they
// differ. It leaves the file at its start.
func (c *intactFiles) check(ctx context.Context, f *os.File, stat tree.FileStat, entry ManifestEntry) error {
	if stat.Size != entry.Size {
		return fmt.Errorf("it %w: it has %d bytes and had %d", errAltered, stat.Size, entry.Size)
	}
	key := intactKey{stat.Inode, entry.SHA256}
	if entry.Size == 0 || c.known(key, stat) {
		return nil
	}
	turn, err := admission.Begin(ctx)
	if err != nil {
		return err
	}
	defer turn.End()
	if c.known(key, stat) { // another caller has hashed it meanwhile
		return nil
	}
	began := time.Now()
	_, sum, err := hashed(ctx, io.Discard, turn.Reader(f), nil)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if sum != entry.SHA256 || tree.StatOf(fi) != stat {
		return fmt.Errorf("it %w: its SHA-256 is %s and was %s", errAltered, sum, entry.SHA256)
	}
	if stat.Changed != 0 && began.Sub(stat.Newest()) > c.after {
		c.remember(key, stat)
	}
	return nil
}

func (c *intactFiles) known(key intactKey, stat tree.FileStat) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, ok := c.seen[key]
	return ok && seen == stat
}

func (c *intactFiles) remember(key intactKey, stat tree.FileStat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.seen) >= maxIntact {
		for old := range c.seen { // any one; that file is hashed again
			delete(c.seen, old)
			break
		}
	}
	c.seen[key] = stat
}

// hashed copies from r to w until ctx ends, and returns the number of bytes and their SHA-256. A
// nil buffer allocates one.
func hashed(ctx context.Context, w io.Writer, r io.Reader, buffer []byte) (int64, string, error) {
	h := sha256.New()
	n, err := io.CopyBuffer(io.MultiWriter(h, w), untilEnd{ctx, r}, buffer)
	return n, hex.EncodeToString(h.Sum(nil)), err
}

// untilEnd reads until ctx ends.
type untilEnd struct {
	ctx context.Context
	r   io.Reader
}

func (u untilEnd) Read(p []byte) (int, error) {
	if err := context.Cause(u.ctx); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

// unchanged reads a checked file and fails when it has been changed since. It has no WriteTo, which
// would bypass Read.
type unchanged struct {
	f    *os.File
	stat tree.FileStat
}

// Executable reports whether the file is executable, for archives.
func (u *unchanged) Executable() bool { return u.stat.Mode&0o100 != 0 }

func (u *unchanged) Read(p []byte) (int, error) {
	n, err := u.f.Read(p)
	if n > 0 {
		if fi, e := u.f.Stat(); e != nil || tree.StatOf(fi) != u.stat {
			return 0, errors.Join(errAltered, e)
		}
	}
	return n, err
}

func (u *unchanged) Seek(offset int64, whence int) (int64, error) { return u.f.Seek(offset, whence) }

func (u *unchanged) Close() error { return u.f.Close() }
