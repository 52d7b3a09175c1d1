package translog

import (
	"context"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// TileHeight is the height of tiles in C2SP tlog-tiles: 256 hashes.
const TileHeight = 8

// tiles implements tlog.TileReader.
type tiles struct {
	ctx   context.Context // of one use
	store Store
}

func (t tiles) Height() int                     { return TileHeight }
func (t tiles) SaveTiles([]tlog.Tile, [][]byte) {}

func (t tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	all := make([][]byte, len(wanted))
	for i, tile := range wanted {
		hashes, err := t.store.Tile(t.ctx, tile.L, tile.N)
		if err != nil {
			return nil, err
		}
		if len(hashes) < tile.W*tlog.HashSize {
			return nil, fmt.Errorf("the database has %d bytes of %s", len(hashes), tile.Path())
		}
		all[i] = hashes[:tile.W*tlog.HashSize]
	}
	return all, nil
}

// tree reads the hashes of the log of this state from the tiles in the store. It checks them
// against the root.
func tree(ctx context.Context, store Store, s State) tlog.HashReader {
	return tlog.TileHashReader(tlog.Tree{N: s.Size, Hash: s.Root}, tiles{ctx, store})
}

// growing is a tree with new entries, whose hashes are in memory.
type growing struct {
	old    tlog.HashReader
	hashes map[int64]tlog.Hash // by stored hash index
	size   int64
}

// ReadHashes implements tlog.HashReader.
func (g *growing) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	all := make([]tlog.Hash, len(indexes))
	var stored []int64
	var at []int
	for i, index := range indexes {
		if h, ok := g.hashes[index]; ok {
			all[i] = h
		} else {
			stored, at = append(stored, index), append(at, i)
		}
	}
	if len(stored) == 0 {
		return all, nil
	}
	old, err := g.old.ReadHashes(stored)
	if err != nil {
		return nil, err
	}
	for i, h := range old {
		all[at[i]] = h
	}
	return all, nil
}

// add appends an entry.
func (g *growing) add(entry []byte) error {
	hashes, err := tlog.StoredHashes(g.size, entry, g)
	if err != nil {
		return err
	}
	first := tlog.StoredHashIndex(0, g.size)
	for i, h := range hashes {
		g.hashes[first+int64(i)] = h
	}
	g.size++
	return nil
}

// tiles returns the tiles that are new or wider than in the tree of the old size.
func (g *growing) tiles(old int64) ([]Tile, error) {
	var all []Tile
	for _, t := range tlog.NewTiles(TileHeight, old, g.size) {
		hashes, err := tlog.ReadTileData(t, g)
		if err != nil {
			return nil, err
		}
		all = append(all, Tile{Level: t.L, N: t.N, Hashes: hashes})
	}
	return all, nil
}
