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

	"secbox/tree"
)

const (
	maxIntact   = 4096            // files that are remembered, some 200 bytes each
	intactAfter = 3 * time.Second // age of a file's last change from which a later change is certain to have another time
	largeFile   = 1 << 20         // bytes; files above it are hashed two at a time
)

var errAltered = errors.New("was changed after it was collected")

// intactFiles remembers which files had the content of their manifest entry, by a stamp that only root can set back: the time of the
// inode's last change. So a large file is not hashed again for each range that is read of it. It is safe for concurrent use.
type intactFiles struct {
	mu    sync.Mutex
	seen  map[intactKey]tree.FileStat
	large chan struct{} // holds a place for each large file that is being hashed
	after time.Duration // intactAfter
}

type intactKey struct {
	inode  uint64
	sha256 string
}

func newIntactFiles() intactFiles {
	return intactFiles{seen: map[intactKey]tree.FileStat{}, large: make(chan struct{}, 2), after: intactAfter}
}

// check compares an open file, whose stamp was just taken, with its entry; errAltered when they differ. It leaves the file at its start.
func (c *intactFiles) check(ctx context.Context, f *os.File, stamp tree.FileStat, entry ManifestEntry) error {
	if stamp.Size != entry.Size {
		return fmt.Errorf("it %w: it has %d bytes and had %d", errAltered, stamp.Size, entry.Size)
	}
	key := intactKey{stamp.Inode, entry.SHA256}
	if entry.Size == 0 || c.known(key, stamp) {
		return nil
	}
	if entry.Size > largeFile {
		select {
		case c.large <- struct{}{}:
			defer func() { <-c.large }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if c.known(key, stamp) {
			return nil
		}
	}
	began := time.Now()
	sum, err := hashFile(ctx, f)
	if err != nil {
		return err
	}
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if sum != entry.SHA256 || tree.StatOf(fi) != stamp {
		return fmt.Errorf("it %w: its SHA-256 is %s and was %s", errAltered, sum, entry.SHA256)
	}
	if stamp.Changed != 0 && began.Sub(stamp.Newest()) > c.after {
		c.remember(key, stamp)
	}
	return nil
}

func (c *intactFiles) known(key intactKey, stamp tree.FileStat) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, ok := c.seen[key]
	return ok && seen == stamp
}

func (c *intactFiles) remember(key intactKey, stamp tree.FileStat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.seen) >= maxIntact {
		for old := range c.seen { // any one: a file that is forgotten is hashed again
			delete(c.seen, old)
			break
		}
	}
	c.seen[key] = stamp
}

func hashFile(ctx context.Context, f *os.File) (string, error) {
	h, buffer := sha256.New(), make([]byte, 64<<10)
	for {
		if err := context.Cause(ctx); err != nil {
			return "", err
		}
		n, err := f.Read(buffer)
		h.Write(buffer[:n])
		if errors.Is(err, io.EOF) {
			_, err = f.Seek(0, io.SeekStart)
			return hex.EncodeToString(h.Sum(nil)), err
		}
		if err != nil {
			return "", err
		}
	}
}

// unchanged reads a file that was checked, and fails when it has been changed since. It has no WriteTo, as that would pass Read by.
type unchanged struct {
	f     *os.File
	stamp tree.FileStat
}

func (u *unchanged) Read(p []byte) (int, error) {
	n, err := u.f.Read(p)
	if n > 0 {
		if fi, e := u.f.Stat(); e != nil || tree.StatOf(fi) != u.stamp {
			return 0, errors.Join(errAltered, e)
		}
	}
	return n, err
}

func (u *unchanged) Seek(offset int64, whence int) (int64, error) { return u.f.Seek(offset, whence) }

func (u *unchanged) Close() error { return u.f.Close() }
