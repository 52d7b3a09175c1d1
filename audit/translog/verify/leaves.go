package verify

import (
	"bufio"
	"context"
	"fmt"
	"math/bits"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/mod/sumdb/tlog"

	"secbox/fault"
)

// leaves has the hashes of the entries from base on in a temporary file.
type leaves struct {
	base int64
	file *os.File
	out  *bufio.Writer
	n    int64
}

func newLeaves(dir string, base int64) (leaves, error) {
	f, err := os.CreateTemp(dir, "secbox-verify-")
	if err != nil {
		return leaves{}, fault.Wrap(fault.Internal, err, "cannot make a temporary file: %s", fault.Reason(err))
	}
	_ = os.Remove(f.Name()) // on Windows it fails, and close removes it
	return leaves{base: base, file: f, out: bufio.NewWriterSize(f, 64<<10)}, nil
}

func (l *leaves) close() {
	if l.file != nil {
		_ = l.file.Close()
		_ = os.Remove(l.file.Name())
		l.file = nil
	}
}

func (l *leaves) add(h tlog.Hash) error {
	l.n++
	if _, err := l.out.Write(h[:]); err != nil {
		return fault.Wrap(fault.DiskFull, err, "cannot write the temporary file %s: %s", l.file.Name(), fault.Reason(err))
	}
	return nil
}

func (l *leaves) flush() error {
	if err := l.out.Flush(); err != nil {
		return fault.Wrap(fault.DiskFull, err, "cannot write the temporary file %s: %s", l.file.Name(), fault.Reason(err))
	}
	return nil
}

// at returns the hash of an entry from base on. It is safe for concurrent use.
func (l *leaves) at(index int64) (h tlog.Hash, err error) {
	if _, err := l.file.ReadAt(h[:], (index-l.base)*tlog.HashSize); err != nil {
		return h, fault.Wrap(fault.Internal, err, "cannot read the temporary file %s: %s", l.file.Name(), fault.Reason(err))
	}
	return h, nil
}

// older reads hashes before leaves.base from the tiles, which it checks against the root.
type older struct {
	mu     sync.Mutex
	hashes tlog.HashReader
}

func (r *run) older(ctx context.Context) *older {
	return &older{hashes: tlog.TileHashReader(tlog.Tree{N: r.size, Hash: r.root},
		&tileReader{ctx: ctx, source: r.source, cache: map[tlog.Tile][]byte{}})}
}

func (o *older) at(index int64) (tlog.Hash, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	hashes, err := o.hashes.ReadHashes([]int64{tlog.StoredHashIndex(0, index)})
	if err != nil {
		return tlog.Hash{}, err
	}
	return hashes[0], nil
}

// tileReader implements tlog.TileReader with a small cache, since an exec with new entries has its
// older entries close together.
type tileReader struct {
	ctx    context.Context // of one Run
	source Source
	cache  map[tlog.Tile][]byte
}

const maxCachedTiles = 128 // of 8 KiB

func (t *tileReader) Height() int                     { return tileHeight }
func (t *tileReader) SaveTiles([]tlog.Tile, [][]byte) {}

func (t *tileReader) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	all := make([][]byte, len(wanted))
	for i, tile := range wanted {
		hashes, ok := t.cache[tile]
		if !ok {
			var err error
			if hashes, err = readTile(t.ctx, t.source, tile); err != nil {
				return nil, err
			}
			if hashes == nil {
				return nil, fmt.Errorf("there is no %s", tile.Path())
			}
			if len(t.cache) >= maxCachedTiles {
				clear(t.cache)
			}
			t.cache[tile] = hashes
		}
		all[i] = hashes
	}
	return all, nil
}

// bitmap is safe for concurrent use.
type bitmap []atomic.Uint64

func newBitmap(n int64) bitmap { return make(bitmap, (max(0, n)+63)/64) }

// set reports whether the bit was set before.
func (b bitmap) set(i int64) bool { return b[i/64].Or(1<<(i%64))&(1<<(i%64)) != 0 }

// next returns the first bit from i on that is not set, or end.
func (b bitmap) next(i, end int64) int64 {
	for i < end {
		free := ^b[i/64].Load() >> (i % 64)
		if free != 0 {
			return min(end, i+int64(bits.TrailingZeros64(free)))
		}
		i += 64 - i%64
	}
	return end
}

func (b bitmap) isSet(i int64) bool { return b[i/64].Load()&(1<<(i%64)) != 0 }
