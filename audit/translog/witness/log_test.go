package witness_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit/translog/witness"
	"secbox/fault"
)

// fakeLog is a log in memory that shows what a test tells it to.
type fakeLog struct {
	origin   string
	signer   note.Signer
	verifier string
	hashes   []tlog.Hash // stored hashes

	mu    sync.Mutex
	size  int64
	shown func() ([]byte, error) // nil: the newest checkpoint
	tiles func(path string, data []byte) ([]byte, error)
	asked chan string // gets paths, if not nil
}

func newLog(t testing.TB, origin string) *fakeLog {
	t.Helper()
	secret, verifier, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	return &fakeLog{origin: origin, signer: signer, verifier: verifier}
}

// again returns an empty log with the same origin and key.
func (l *fakeLog) again() *fakeLog {
	return &fakeLog{origin: l.origin, signer: l.signer, verifier: l.verifier}
}

// grow appends entries whose text begins with what.
func (l *fakeLog) grow(t testing.TB, n int, what string) *fakeLog {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for range n {
		hashes, err := tlog.StoredHashes(l.size, fmt.Appendf(nil, "%s %d", what, l.size), l)
		if err != nil {
			t.Fatal(err)
		}
		l.hashes = append(l.hashes, hashes...)
		l.size++
	}
	return l
}

// ReadHashes implements tlog.HashReader.
func (l *fakeLog) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	var all []tlog.Hash
	for _, i := range indexes {
		if i >= int64(len(l.hashes)) {
			return nil, fmt.Errorf("no hash %d", i)
		}
		all = append(all, l.hashes[i])
	}
	return all, nil
}

// at returns the checkpoint of a size.
func (l *fakeLog) at(t testing.TB, size int64) []byte {
	t.Helper()
	root, err := tlog.TreeHash(size, l)
	if err != nil {
		t.Fatal(err)
	}
	point := log.Checkpoint{Origin: l.origin, Size: uint64(size), Hash: root[:]}
	signed, err := note.Sign(&note.Note{Text: string(point.Marshal())}, l.signer)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// get returns how the log is read.
func (l *fakeLog) get(t testing.TB) witness.Get {
	return func(_ context.Context, path string, limit int64) ([]byte, error) {
		if l.asked != nil {
			l.asked <- path
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		rest, isTile := strings.CutPrefix(path, "tile/")
		switch {
		case !isTile && l.shown != nil:
			return l.shown()
		case !isTile && l.size == 0:
			return nil, fault.New(fault.NotLogged, "empty")
		case !isTile:
			return l.at(t, l.size), nil
		}
		tile, err := tlog.ParseTilePath("tile/8/" + rest)
		if err != nil {
			return nil, err
		}
		data, err := tlog.ReadTileData(tile, l)
		if err != nil {
			return nil, fault.New(fault.UnknownFile, "no tile %s", rest)
		}
		if l.tiles != nil {
			return l.tiles(path, data)
		}
		if int64(len(data)) > limit {
			t.Errorf("%s: %d bytes, and the limit is %d", path, len(data), limit)
		}
		return data, nil
	}
}

func open(t testing.TB, dir string, l *fakeLog) *witness.Witness {
	t.Helper()
	w, err := witness.Open(config(t, dir, l))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func config(t testing.TB, dir string, l *fakeLog) witness.Config {
	return witness.Config{Dir: dir, Key: l.verifier, Name: "test/w", Get: l.get(t), Logger: slog.New(slog.DiscardHandler)}
}
