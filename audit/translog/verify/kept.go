package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit/translog/checkpoint"
	"secbox/fault"
)

// Kept is what a run verified: a checkpoint, and the hashes that prove that a later log extends its
// log.
type Kept struct {
	Checkpoint string   `json:"checkpoint"` // signed
	Size       int64    `json:"-"`
	Nodes      [][]byte `json:"nodes"` // the compact range of the tree
	Tiles      [][]byte `json:"tiles"` // by level, the hashes of the last tile, which is not full

	Execs  int64     `json:"execs"`   // that the entries begin
	FullAt time.Time `json:"full_at"` // when the last run that compared everything began; zero in a file of an older version

	root     tlog.Hash
	otherKey string // the id of the key that signed the checkpoint, if it is not the run's key
}

func (k *Kept) describe() string {
	return fmt.Sprintf("%s with the root %s", many(k.Size, "entry"), k.root)
}

// keep returns what this run verified.
func (r *run) keep() *Kept {
	k := &Kept{
		Checkpoint: r.checkpoint, Size: r.size, Nodes: r.tree.nodes.Hashes(), Tiles: r.tree.tiles, root: r.root, Execs: r.begun,
		FullAt: r.begunAt,
	}
	if left := r.sum.LeftOut; left != nil {
		k.Execs, k.FullAt = k.Execs+left.Execs, left.FullAt
	}
	return k
}

// ReadKept reads a file of WriteKept; nil if there is none. It fails if the file is damaged. If
// another key has signed it, Run reports that as a difference.
func ReadKept(path, key string) (*Kept, error) {
	verifier, err := newVerifier(key)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var k Kept
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err == nil {
		err = k.check(verifier)
	}
	if err != nil {
		return nil, fault.Wrap(fault.InvalidRequest, err,
			"cannot use %s, which has what was verified before: %s; keep it for the auditors, move it away, and verify everything",
			path, err)
	}
	return &k, nil
}

// check compares the hashes with the signed checkpoint, and sets the other fields.
func (k *Kept) check(verifier note.Verifier) error {
	point, _, _, err := log.ParseCheckpoint([]byte(k.Checkpoint), verifier.Name(), verifier)
	if err != nil {
		origin, _, _ := strings.Cut(k.Checkpoint, "\n")
		claim, other := checkpoint.OfOther([]byte(k.Checkpoint), origin, checkpoint.IDOf(verifier))
		if !other {
			return err
		}
		k.otherKey = claim.KeyID
		point = &log.Checkpoint{Size: uint64(claim.Tree.N), Hash: claim.Tree.Hash[:]}
	}
	if point.Size == 0 || point.Size > maxSize || len(point.Hash) != tlog.HashSize || len(k.Nodes) != bits.OnesCount64(point.Size) {
		return errors.New("it is damaged")
	}
	k.Size, k.root = int64(point.Size), tlog.Hash(point.Hash)
	for level, tile := range k.Tiles {
		if len(tile) != int(k.Size>>(tileHeight*level)%tileWidth)*tlog.HashSize {
			return errors.New("it is damaged")
		}
	}
	t, err := newTree(k)
	if err != nil {
		return err
	}
	root, err := t.nodes.GetRootHash(nil)
	if err == nil && tlog.Hash(root) != k.root {
		err = errors.New("its hashes are not those of its checkpoint")
	}
	return err
}

// WriteKept writes a file for ReadKept, which is whole or as before after a crash.
func WriteKept(path string, k *Kept) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-")
	if err == nil {
		_, err = f.Write(append(text, '\n'))
		err = errors.Join(err, f.Sync(), f.Close())
		if err == nil {
			err = os.Rename(f.Name(), path)
		}
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}
	if err != nil {
		return fault.Wrap(fault.Internal, err, "cannot remember in %s what was verified: %s", path, fault.Reason(err))
	}
	return nil
}
