// Package logtest verifies a transparency log and its proofs for tests, as a client that is not
// ours would: with the libraries of transparency-dev, and none of the code that makes the log.
package logtest

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/transparency-dev/formats/log"
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
)

const width = 256 // hashes of a full tile

// Verify reads a log in the layout of C2SP tlog-tiles by get, whose paths are checkpoint and
// tile/…, and recomputes its tree from its entries. It returns the entries.
func Verify(key string, get func(path string) ([]byte, error)) ([][]byte, error) {
	signed, err := get("checkpoint")
	if err != nil {
		return nil, err
	}
	point, err := open(key, signed)
	if err != nil {
		return nil, err
	}
	var entries [][]byte
	level := make([][]byte, 0, point.Size) // hashes of one level of tiles
	for first := uint64(0); first < point.Size; first += width {
		bundle, err := get("tile/entries/" + name(first/width, min(width, point.Size-first)))
		if err != nil {
			return nil, err
		}
		for len(bundle) > 2 {
			n := int(binary.BigEndian.Uint16(bundle))
			if n > len(bundle)-2 {
				return nil, fmt.Errorf("an entry of %d bytes is cut", n)
			}
			entries = append(entries, bundle[2:2+n])
			level = append(level, rfc6962.DefaultHasher.HashLeaf(bundle[2:2+n]))
			bundle = bundle[2+n:]
		}
	}
	root, err := rootOf(level)
	if err != nil {
		return nil, err
	}
	if uint64(len(entries)) != point.Size || !bytes.Equal(root, point.Hash) {
		return nil, fmt.Errorf("%d entries have the root %x, and the checkpoint is of %d with %x", len(entries), root, point.Size,
			point.Hash)
	}
	for l := 0; len(level) > 0; l++ {
		var above [][]byte
		for first := 0; first < len(level); first += width {
			part := level[first:min(len(level), first+width)]
			tile, err := get(fmt.Sprintf("tile/%d/%s", l, name(uint64(first/width), uint64(len(part)))))
			if err != nil {
				return nil, err
			}
			if !bytes.Equal(tile, bytes.Join(part, nil)) {
				return nil, fmt.Errorf("tile %d/%d does not have the hashes of the entries", l, first/width)
			}
			if len(part) == width {
				sub, err := rootOf(part)
				if err != nil {
					return nil, err
				}
				above = append(above, sub)
			}
		}
		level = above
	}
	return entries, nil
}

// name is the path of a tile within its level.
func name(n, hashes uint64) string {
	path := fmt.Sprintf("%03d", n%1000)
	for n /= 1000; n > 0; n /= 1000 {
		path = fmt.Sprintf("x%03d/%s", n%1000, path)
	}
	if hashes < width {
		path += fmt.Sprintf(".p/%d", hashes)
	}
	return path
}

func open(key string, signed []byte) (*log.Checkpoint, error) {
	verifier, err := note.NewVerifier(key)
	if err != nil {
		return nil, err
	}
	point, _, _, err := log.ParseCheckpoint(signed, verifier.Name(), verifier)
	return point, err
}

func rootOf(leafHashes [][]byte) ([]byte, error) {
	if len(leafHashes) == 0 {
		return rfc6962.DefaultHasher.EmptyRoot(), nil
	}
	tree := (&compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}).NewEmptyRange(0)
	for _, h := range leafHashes {
		if err := tree.Append(h, nil); err != nil {
			return nil, err
		}
	}
	return tree.GetRootHash(nil)
}

// Consistent reports an error unless the tree of one log's checkpoint begins with the entries of
// another's.
func Consistent(key string, signed []byte, entries [][]byte) error {
	point, err := open(key, signed)
	if err != nil {
		return err
	}
	if point.Size > uint64(len(entries)) {
		return fmt.Errorf("the log was cut: it had %d entries and has %d", point.Size, len(entries))
	}
	var hashes [][]byte
	for _, e := range entries[:point.Size] {
		hashes = append(hashes, rfc6962.DefaultHasher.HashLeaf(e))
	}
	root, err := rootOf(hashes)
	if err == nil && !bytes.Equal(root, point.Hash) {
		err = fmt.Errorf("the log was forked: its first %d entries had another root", point.Size)
	}
	return err
}
