package verify

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/transparency-dev/formats/log"
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit/translog/checkpoint"
	"secbox/fault"
)

// tileHeight and tileWidth are as in C2SP tlog-tiles.
const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
)

// maxConflicts bounds the entries that differ from their tile and are attributed to their exec.
const maxConflicts = 10_000

// readCheckpoint reads and checks the checkpoint. One that is not signed by the key is a
// difference, and its log is compared nevertheless.
func (r *run) readCheckpoint(ctx context.Context) error {
	verifier, err := newVerifier(r.o.Key)
	if err != nil {
		return err
	}
	r.origin = verifier.Name()
	if r.o.Kept != nil && r.o.Kept.otherKey != "" {
		r.report(Difference{
			What: "key", Expected: "the one under which the log was verified before, " + r.o.Kept.otherKey,
			Found: checkpoint.IDOf(verifier) +
				": the log was rebuilt under another key, unless an operator replaced it (log_key_replaced) or this key is another log's",
		})
	}
	r.checkpoint, err = r.source.Checkpoint(ctx)
	if fault.Is(err, fault.NotLogged) {
		r.size = 0
		if r.o.Kept != nil {
			r.report(Difference{What: "tree", Expected: "at least the verified one: " + r.o.Kept.describe(), Found: "an empty log"})
		}
		return nil
	}
	if errors.Is(err, ErrNoState) {
		r.size = 0
		r.report(Difference{What: "state", Expected: "a checkpoint and a size of the log", Found: "none"})
		return nil
	}
	if err != nil {
		return err
	}
	point, _, _, err := log.ParseCheckpoint([]byte(r.checkpoint), r.origin, verifier)
	if err != nil {
		r.report(Difference{What: "checkpoint", Expected: "a signature of " + r.o.Key, Found: err.Error()})
		point = &log.Checkpoint{}
		if _, err := point.Unmarshal([]byte(r.checkpoint)); err != nil {
			point = &log.Checkpoint{Hash: make([]byte, tlog.HashSize)}
		}
	}
	if len(point.Hash) != tlog.HashSize || point.Size > maxSize {
		r.report(Difference{
			What: "checkpoint", Expected: "a root of 32 bytes and a possible size",
			Found: fmt.Sprintf("%s and the size %d", many(int64(len(point.Hash)), "byte"), point.Size),
		})
		point = &log.Checkpoint{Hash: make([]byte, tlog.HashSize)}
	}
	r.size, r.root = int64(point.Size), tlog.Hash(point.Hash)
	r.sum.Size = r.size
	return nil
}

func newVerifier(key string) (note.Verifier, error) {
	verifier, err := note.NewVerifier(strings.TrimSpace(key))
	if err != nil {
		err = fault.Wrap(fault.InvalidRequest, err, "the key is not the public key of a log; `core-api audit key` prints it")
	}
	return verifier, err
}

// maxSize is above the size of any log, and bounds the memory that a hostile checkpoint can cost to
// 32 MiB.
const maxSize = 1 << 28

// tree is the hashes of the log that are needed to extend it.
type tree struct {
	nodes *compact.Range
	tiles [][]byte // by level, the hashes of the last tile, which is not full
}

var factory = &compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}

// readLog recomputes the tree from the entries, and compares it with the tiles, the root, and what
// was verified before.
func (r *run) readLog(ctx context.Context) error {
	if left := r.o.LeftOut(); left != nil && left.Entries <= r.size {
		if ok, err := r.readEntries(ctx, r.o.Kept); ok || err != nil {
			r.sum.LeftOut = left
			return err
		}
	}
	_, err := r.readEntries(ctx, nil)
	return err
}

func (r *run) describe() string {
	return fmt.Sprintf("%s with the root %s", many(r.size, "entry"), r.root)
}

// readEntries reads the entries from the end of the kept log on, or all entries if from is nil. If
// from is not nil and the root differs from the checkpoint's, it returns false and reports nothing.
func (r *run) readEntries(ctx context.Context, from *Kept) (bool, error) {
	var err error
	base := int64(0)
	if r.tree, err = newTree(from); err != nil {
		return false, err
	}
	if from != nil {
		base = from.Size
	}
	r.leaves.close()
	if r.leaves, err = newLeaves(r.o.TempDir, base); err != nil {
		return false, err
	}
	r.sum.From, r.sum.Entries, r.seen, r.conflicts = base, 0, newBitmap(r.size-base), map[int64]tlog.Hash{}
	var pending []Difference
	n := base / tileWidth
	err = inOrder(ctx, func(context.Context) (func(context.Context) (part, error), error) {
		if n*tileWidth >= r.size {
			return nil, nil
		}
		p := part{first: n * tileWidth, width: int(min(tileWidth, r.size-n*tileWidth))}
		n++
		return func(ctx context.Context) (part, error) { return p.read(ctx, r.source) }, nil
	}, func(p part) error {
		found, err := r.addPart(ctx, p, base)
		pending = append(pending, found...)
		if from == nil {
			for _, d := range pending {
				r.report(d)
			}
			pending = nil
		}
		r.progress()
		return err
	})
	if err != nil {
		return false, err
	}
	root := tlog.Hash(rfc6962.DefaultHasher.EmptyRoot())
	if r.size > 0 {
		computed, err := r.tree.nodes.GetRootHash(nil)
		if err != nil {
			return false, err
		}
		root = tlog.Hash(computed)
		pending = append(pending, r.compareTiles(ctx, true)...)
	}
	if r.size > 0 && root != r.root {
		if from != nil {
			return false, nil
		}
		pending = append(pending, Difference{What: "root of the log", Expected: r.root.String(), Found: root.String() + " of the entries"})
	}
	for _, d := range pending {
		r.report(d)
	}
	if r.o.Kept != nil && r.size < r.o.Kept.Size {
		r.report(Difference{
			What: "tree", Expected: "at least the verified one: " + r.o.Kept.describe(),
			Found: "a log of " + r.describe() + ", so it was cut or rolled back",
		})
	}
	return true, r.leaves.flush()
}

// part is the entries of one tile, and the tile.
type part struct {
	first   int64
	width   int
	entries []byte // 32 bytes each; nil: missing
	tile    []byte // nil: missing
}

// read reads the entries and the tile.
func (p part) read(ctx context.Context, source Source) (part, error) {
	t := tlog.Tile{H: tileHeight, N: p.first / tileWidth, W: p.width}
	var err error
	if p.tile, err = readTile(ctx, source, t); err != nil {
		return p, err
	}
	t.L = -1
	bundle, err := source.Tile(ctx, tilePath(t))
	if fault.Is(err, fault.UnknownFile) || err == nil && len(bundle) != p.width*(2+tlog.HashSize) {
		return p, nil
	}
	for ; len(bundle) > 0 && err == nil; bundle = bundle[2+tlog.HashSize:] {
		if binary.BigEndian.Uint16(bundle) != tlog.HashSize {
			p.entries = nil
			return p, nil
		}
		p.entries = append(p.entries, bundle[2:2+tlog.HashSize]...)
	}
	return p, err
}

// readTile returns the hashes of a tile; nil if there are none.
func readTile(ctx context.Context, source Source, t tlog.Tile) ([]byte, error) {
	hashes, err := source.Tile(ctx, tilePath(t))
	if fault.Is(err, fault.UnknownFile) || err == nil && len(hashes) != t.W*tlog.HashSize {
		return nil, nil
	}
	return hashes, err
}

// tilePath is the path of C2SP tlog-tiles below tile/.
func tilePath(t tlog.Tile) string {
	path := strings.TrimPrefix(t.Path(), "tile/8/")
	if rest, ok := strings.CutPrefix(path, "data/"); ok {
		return "entries/" + rest
	}
	return path
}

// addPart adds the entries from base on to the tree. Where they are missing, it takes the hashes of
// the tile.
func (r *run) addPart(ctx context.Context, p part, base int64) (found []Difference, err error) {
	name := entriesFrom(p.first, p.first+int64(p.width))
	if p.entries == nil {
		found = append(found, Difference{What: name, Expected: many(int64(p.width), "entry"), Found: "missing or damaged ones"})
	}
	for i := range p.width {
		index := p.first + int64(i)
		if index < base {
			continue
		}
		var leaf, inTile tlog.Hash
		if p.tile != nil {
			inTile = tlog.Hash(p.tile[i*tlog.HashSize:])
		}
		if leaf = inTile; p.entries != nil {
			leaf = tlog.RecordHash(p.entries[i*tlog.HashSize : (i+1)*tlog.HashSize])
		}
		if p.tile != nil && leaf != inTile {
			if len(r.conflicts) == maxConflicts {
				found = append(found, Difference{
					What: fmt.Sprintf("entry %d", index), Expected: "the hash of its tile, " + inTile.String(),
					Found: leaf.String(),
				})
			} else {
				r.conflicts[index] = inTile
			}
		}
		if err := r.leaves.add(leaf); err != nil {
			return nil, err
		}
		r.sum.Entries++
		err := r.tree.nodes.Append(leaf[:], func(id compact.NodeID, hash []byte) {
			if id.Level%tileHeight == 0 {
				r.tree.add(int(id.Level/tileHeight), hash)
			}
		})
		if err != nil {
			return nil, err
		}
		if kept := r.o.Kept; kept != nil && index+1 == kept.Size {
			root, err := r.tree.nodes.GetRootHash(nil)
			if err != nil {
				return nil, err
			}
			if tlog.Hash(root) != kept.root {
				found = append(found, Difference{
					What: "tree", Expected: "one that extends the verified log of " + kept.describe(),
					Found: fmt.Sprintf("the root %s of its first %s, so it was rebuilt", encode(root), many(kept.Size, "entry")),
				})
			}
		}
	}
	return append(found, r.compareTiles(ctx, false)...), nil
}

func newTree(from *Kept) (tree, error) {
	if from == nil {
		return tree{nodes: factory.NewEmptyRange(0)}, nil
	}
	nodes, err := factory.NewRange(0, uint64(from.Size), from.Nodes)
	if err != nil {
		return tree{}, err
	}
	t := tree{nodes: nodes}
	for _, tile := range from.Tiles {
		t.tiles = append(t.tiles, append([]byte{}, tile...))
	}
	return t, nil
}

func (t *tree) add(level int, hash []byte) {
	for len(t.tiles) <= level {
		t.tiles = append(t.tiles, nil)
	}
	t.tiles[level] = append(t.tiles[level], hash...)
}

// compareTiles compares the tiles above the lowest level that have become full with the stored
// tiles; at the end, the last tiles, too.
func (r *run) compareTiles(ctx context.Context, end bool) (found []Difference) {
	for level := range r.tree.tiles {
		hashes := r.tree.tiles[level]
		full := len(hashes) == tileWidth*tlog.HashSize
		if !full && (!end || len(hashes) == 0) {
			continue
		}
		if level > 0 { // addPart has compared the lowest
			t := tlog.Tile{H: tileHeight, L: level, W: len(hashes) / tlog.HashSize}
			t.N = (int64(r.tree.nodes.End())>>(tileHeight*level) - 1) / tileWidth
			found = append(found, r.compareTile(ctx, t, hashes)...)
		}
		if full {
			r.tree.tiles[level] = nil
		}
	}
	return found
}

func (r *run) compareTile(ctx context.Context, t tlog.Tile, hashes []byte) []Difference {
	what := "tile " + tilePath(t)
	stored, err := readTile(ctx, r.source, t)
	switch {
	case err != nil:
		return []Difference{{What: what, Expected: many(int64(t.W), "hash"), Found: err.Error()}}
	case stored == nil:
		return []Difference{{What: what, Expected: many(int64(t.W), "hash"), Found: "none, or fewer"}}
	}
	for at := 0; at < len(hashes); at += tlog.HashSize {
		if want, is := hashes[at:at+tlog.HashSize], stored[at:at+tlog.HashSize]; string(want) != string(is) {
			return []Difference{{What: fmt.Sprintf("%s, hash %d", what, at/tlog.HashSize), Expected: encode(want), Found: encode(is)}}
		}
	}
	return nil
}

// entriesFrom names the entries from one index on and before another.
func entriesFrom(first, end int64) string {
	if end == first+1 {
		return fmt.Sprintf("entry %d", first)
	}
	return fmt.Sprintf("entries %d to %d", first, end-1)
}

func encode(hash []byte) string { return base64.StdEncoding.EncodeToString(hash) }
