// Package checkpoint reads the signed checkpoints of a transparency log (C2SP tlog-checkpoint),
// compares them by their trees, and keeps them in files that only grow. golang.org/x/mod/sumdb
// computes the trees and signatures. The package knows neither networks nor databases.
package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// MaxBytes is the size of the largest checkpoint that is read, with its signatures.
const MaxBytes = 64 << 10

// maxText is the size of the largest text that is signed. A checkpoint of core-api has three short
// lines.
const maxText = 1 << 10

// MaxSize is beyond the size of any log, and keeps indexes of hashes from overflowing.
const MaxSize = 1 << 48

// Checkpoint is a checkpoint whose signature by the log was verified.
type Checkpoint struct {
	Origin string
	Tree   tlog.Tree
	Signed string // the note, with the signatures that were verified, and no others
	Sigs   []note.Signature
}

// Text returns what is signed.
func (c Checkpoint) Text() string { text, _, _ := strings.Cut(c.Signed, "\n\n"); return text + "\n" }

func (c Checkpoint) String() string {
	if c.Tree.N == 1 {
		return fmt.Sprintf("1 entry, root %s", c.Tree.Hash)
	}
	return fmt.Sprintf("%d entries, root %s", c.Tree.N, c.Tree.Hash)
}

// The reasons why a text is no checkpoint of a log. Each is wrapped in a sentence.
var (
	ErrFormat    = errors.New("it is no checkpoint") // also the page of a proxy
	ErrOrigin    = errors.New("it is of another installation")
	ErrKey       = errors.New("it is signed by another key")
	ErrSignature = errors.New("its signature does not verify")
)

// Open verifies a checkpoint of the log with this key, whose origin is the key's name. Signatures
// of cosigners are verified too, and other signatures are dropped. A signature of a cosigner may be
// missing, and must not be wrong.
func Open(signed []byte, key note.Verifier, cosigners ...note.Verifier) (Checkpoint, error) {
	c, _, err := parse(signed)
	if err != nil {
		return c, err
	}
	if c.Origin != key.Name() {
		return Checkpoint{}, fmt.Errorf("%w: its origin is %q, and the key is of %q", ErrOrigin, c.Origin, key.Name())
	}
	unverified := &note.UnverifiedNoteError{}
	if _, err := note.Open(signed, note.VerifierList(key)); errors.As(err, &unverified) {
		return Checkpoint{}, fmt.Errorf("%w than %s", ErrKey, IDOf(key))
	} else if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	n, err := note.Open(signed, note.VerifierList(append(slices.Clone(cosigners), key)...))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	verified, err := note.Sign(&note.Note{Text: n.Text, Sigs: n.Sigs})
	c.Signed, c.Sigs = string(verified), n.Sigs
	return c, err
}

// parse reads a note with a checkpoint, and verifies nothing.
func parse(signed []byte) (Checkpoint, *note.Note, error) {
	if len(signed) > MaxBytes {
		return Checkpoint{}, nil, fmt.Errorf("%w: it has more than %d bytes", ErrFormat, MaxBytes)
	}
	unverified := &note.UnverifiedNoteError{}
	if _, err := note.Open(signed, note.VerifierList()); !errors.As(err, &unverified) {
		return Checkpoint{}, nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	text := unverified.Note.Text
	var point log.Checkpoint
	if _, err := point.Unmarshal([]byte(text)); err != nil {
		return Checkpoint{}, nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if len(point.Hash) != tlog.HashSize || point.Size > MaxSize || len(text) > maxText ||
		!strings.HasPrefix(text, string(point.Marshal())) {
		return Checkpoint{}, nil, fmt.Errorf("%w: its size or root is not in the form of C2SP tlog-checkpoint", ErrFormat)
	}
	return Checkpoint{Origin: point.Origin, Tree: tlog.Tree{N: int64(point.Size), Hash: tlog.Hash(point.Hash)}}, unverified.Note, nil
}

// Cosign returns the checkpoint with a signature of the cosigner, and its signature line.
func (c Checkpoint) Cosign(cosigner note.Signer) (cosigned Checkpoint, line string, err error) {
	signed, err := note.Sign(&note.Note{Text: c.Text(), Sigs: c.Sigs}, cosigner)
	if err != nil {
		return c, "", err
	}
	alone, err := note.Sign(&note.Note{Text: c.Text()}, cosigner)
	if err != nil {
		return c, "", err
	}
	_, line, _ = strings.Cut(string(alone), "\n\n")
	c.Signed = string(signed)
	return c, line, nil
}

// The reasons why one tree does not extend another.
var (
	ErrSmaller = errors.New("the log was cut or rolled back: it has fewer entries than before")
	ErrForked  = errors.New("the log was rebuilt, or is shown differently: its tree does not extend the tree from before")
	ErrHashes  = errors.New("the log's hashes do not match its signed root")
)

// Extends checks that the tree next begins with the entries of the tree before, which may be the
// same tree. tiles are next's tiles. It fails with ErrSmaller, ErrForked or ErrHashes, and with the
// error of the tiles if they cannot be read.
func Extends(before, next tlog.Tree, tiles tlog.TileReader) error {
	switch {
	case next.N < before.N:
		return ErrSmaller
	case next.N == before.N && next.Hash != before.Hash:
		return ErrForked
	case next.N == before.N || before.N == 0:
		return nil
	}
	read := &recorded{TileReader: tiles}
	proof, err := tlog.ProveTree(next.N, before.N, tlog.TileHashReader(next, read))
	switch {
	case read.err != nil:
		return read.err
	case err != nil:
		return fmt.Errorf("%w: %w", ErrHashes, err)
	}
	if err := tlog.CheckTree(proof, next.N, next.Hash, before.N, before.Hash); err != nil {
		return fmt.Errorf("%w: %w", ErrForked, err)
	}
	return nil
}

// recorded wraps the tiles to tell an error of reading them from an error of their content.
type recorded struct {
	tlog.TileReader
	err error
}

func (r *recorded) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	data, err := r.TileReader.ReadTiles(wanted)
	r.err = errors.Join(r.err, err)
	return data, err
}
