// Package inputstore keeps the contents of execs' inputs for replays and downloads, by their
// digest, below the workspace root. Each token has its own contents: the bound of a token counts
// what it has brought, and a token cannot find out what others have. Contents are compared with
// their digest when they are read, and damaged ones are replaced when they come again. The package
// must not know execs or databases.
package inputstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"sync"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/workspace/tree"
)

// dirName is the directory of the store below the workspace root. It is private and never mounted.
const dirName = "kept-inputs"

const (
	block      = 4 << 10   // bytes; a content counts as whole blocks, and as one at least
	touchAfter = time.Hour // the age from which a content that is used again gets a new time
	newPrefix  = ".new-"   // of the names of files that are being written
)

// Config configures a Store.
type Config struct {
	Root             string // the workspace root
	MaxBytes         int64  // of all contents; 0 keeps none
	MaxBytesPerToken int64  // 0: a quarter
	Now              func() time.Time
	Logger           *slog.Logger
}

// Store is the store of a workspace root. It is safe for concurrent use, also by several nodes; a
// node learns at each Measure what the others have added.
type Store struct {
	cfg Config
	dir *os.Root

	mu    sync.Mutex
	used  map[string]int64 // bytes, by the token's directory
	since map[string]int64 // what was added while Measure runs; nil otherwise
}

// Content is the content of an input.
type Content struct {
	SHA256 string // lower-case hex
	Data   []byte
}

// Open opens the store, and makes its directory if it is missing. The caller must call Close.
func Open(cfg Config) (*Store, error) {
	if cfg.MaxBytesPerToken == 0 {
		cfg.MaxBytesPerToken = cfg.MaxBytes / 4
	}
	root, err := os.OpenRoot(cfg.Root)
	if err != nil {
		return nil, tree.Failed(err, "the workspace root cannot be opened")
	}
	defer root.Close()
	if err := root.Mkdir(dirName, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, tree.Failed(err, "cannot make %s in the workspace root", dirName)
	}
	dir, _, err := tree.OpenDir(root, dirName)
	if err != nil {
		return nil, tree.Failed(err, "cannot open %s in the workspace root", dirName)
	}
	return &Store{cfg: cfg, dir: dir, used: map[string]int64{}}, nil
}

// Close closes the store. Nothing else may run.
func (s *Store) Close() error { return s.dir.Close() }

// Keep keeps the contents of one exec's inputs for a token: all of them or, with the reason, not
// all. Those that are in the store already are shared. Nothing is synced: after a loss of power,
// Get finds out what is missing.
func (s *Store) Keep(token string, contents []Content) audit.InputsKept {
	if s.cfg.MaxBytes == 0 {
		return audit.KeptOff
	}
	kept, err := s.keep(token, contents)
	if err != nil {
		s.cfg.Logger.Error("the inputs of an exec cannot be kept", "error", err)
		return audit.KeptFailed
	}
	return kept
}

func (s *Store) keep(token string, contents []Content) (audit.InputsKept, error) {
	name := tokenDir(token)
	if err := s.dir.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	dir, _, err := tree.OpenDir(s.dir, name)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	var missing []Content
	var need int64
	seen := map[string]bool{}
	for _, c := range contents {
		if seen[c.SHA256] {
			continue
		}
		seen[c.SHA256] = true
		if has, err := s.has(dir, c); err != nil {
			return "", err
		} else if !has {
			missing, need = append(missing, c), need+price(int64(len(c.Data)))
		}
	}
	if kept := s.reserve(name, need); kept != audit.Kept {
		return kept, nil
	}
	for _, c := range missing {
		added, err := s.write(dir, c)
		if err != nil {
			s.add(name, -need)
			return "", err
		}
		need -= price(int64(len(c.Data)))
		if !added {
			s.add(name, -price(int64(len(c.Data))))
		}
	}
	return audit.Kept, nil
}

// has reports whether the store has the content, marks it as used, and removes a damaged one.
func (s *Store) has(dir *os.Root, c Content) (bool, error) {
	f, err := open(dir, c.SHA256)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		defer f.Close()
		var fi fs.FileInfo
		if fi, err = f.Stat(); err != nil {
			return false, err
		}
		if fi.Size() == int64(len(c.Data)) && equal(f, c.Data) {
			if now := s.cfg.Now(); now.Sub(fi.ModTime()) > touchAfter {
				if err := dir.Chtimes(place(c.SHA256), now, now); errors.Is(err, fs.ErrNotExist) { // the sweep of another node was faster
					return false, nil
				} else if err != nil {
					return false, err
				}
			}
			return true, nil
		}
	}
	s.cfg.Logger.Warn("the kept copy of an input is damaged and is replaced", "sha256", c.SHA256, "error", err)
	return false, dir.RemoveAll(place(c.SHA256))
}

// equal reports whether the rest of a reader is the content.
func equal(r io.Reader, content []byte) bool {
	buffer := make([]byte, min(len(content)+1, 64<<10))
	for {
		n, err := r.Read(buffer)
		if n > len(content) || !bytes.Equal(buffer[:n], content[:n]) {
			return false
		}
		content = content[n:]
		if err != nil {
			return errors.Is(err, io.EOF) && len(content) == 0
		}
	}
}

// write puts the content in its place as a whole; false if another exec was faster.
func (s *Store) write(dir *os.Root, c Content) (added bool, err error) {
	temp := newPrefix + rand.Text()
	f, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, err
	}
	defer dir.Remove(temp) // after a rename there is none
	_, err = f.Write(c.Data)
	if err := errors.Join(err, f.Close()); err != nil {
		return false, err
	}
	to := place(c.SHA256)
	if err := dir.Mkdir(path.Dir(to), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	err = dir.Link(temp, to)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil { // a file system without links
		err = dir.Rename(temp, to)
	}
	return err == nil, err
}

// Get returns the kept content of an input of an exec of the token. fault.NotReplayable if the
// store does not have it, fault.ArtifactAltered if it was changed on the disk.
func (s *Store) Get(token string, in audit.Input) ([]byte, error) {
	gone := func(err error) error {
		return fault.Wrap(fault.NotReplayable, err,
			"the content of the input %q is not kept any more: send the request again with its inputs", tree.CutName(in.Path, 255))
	}
	if !tree.IsDigest(in.SHA256) {
		return nil, gone(errors.New("no digest"))
	}
	dir, _, err := tree.OpenDir(s.dir, tokenDir(token))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, gone(err)
	}
	if err != nil {
		return nil, tree.Failed(err, "the kept inputs cannot be read")
	}
	defer dir.Close()
	altered := func(err error) error {
		return fault.Wrap(fault.ArtifactAltered, err, "the kept copy of the input %q was changed on the disk, so it is not used: restore "+
			"%s/%s/%s from a backup, or send the request again with its inputs",
			tree.CutName(in.Path, 255), dirName, tokenDir(token), place(in.SHA256))
	}
	f, err := open(dir, in.SHA256)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, gone(err)
	case err != nil:
		return nil, altered(err)
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || fi.Size() != in.Size {
		return nil, altered(errors.Join(errors.New("it has another size"), err))
	}
	content := make([]byte, in.Size)
	if _, err := io.ReadFull(f, content); err != nil {
		return nil, tree.Failed(err, "the kept input %q cannot be read", tree.CutName(in.Path, 255))
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != in.SHA256 {
		return nil, altered(errors.New("it has another digest"))
	}
	return content, nil
}

// Kept reports for each input of execs of the token whether the store has a content of its digest
// and size, which Get compares further.
func (s *Store) Kept(ctx context.Context, token string, inputs []audit.Input) ([]bool, error) {
	kept := make([]bool, len(inputs))
	if len(inputs) == 0 {
		return kept, nil
	}
	dir, _, err := tree.OpenDir(s.dir, tokenDir(token))
	if errors.Is(err, fs.ErrNotExist) {
		return kept, nil
	}
	if err != nil {
		return nil, tree.Failed(err, "the kept inputs cannot be read")
	}
	defer dir.Close()
	for i, in := range inputs {
		if err := ctx.Err(); err != nil {
			return nil, fault.Wrap(fault.Internal, err, "the client left")
		}
		if !tree.IsDigest(in.SHA256) {
			continue
		}
		fi, err := dir.Lstat(place(in.SHA256))
		kept[i] = err == nil && fi.Mode().IsRegular() && fi.Size() == in.Size
	}
	return kept, nil
}

// open opens the regular file of a content.
func open(dir *os.Root, digest string) (*os.File, error) {
	f, err := dir.OpenFile(place(digest), os.O_RDONLY|tree.OpenSafely, 0)
	if err != nil {
		return nil, err
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s is no regular file: %w", place(digest), errors.Join(err, fs.ErrInvalid))
	}
	return f, nil
}

// reserve counts bytes before they are written.
func (s *Store) reserve(token string, bytes int64) audit.InputsKept {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all int64
	for _, n := range s.used {
		all += n
	}
	switch {
	case bytes == 0:
	case all+bytes > s.cfg.MaxBytes:
		return audit.KeptNoRoom
	case s.used[token]+bytes > s.cfg.MaxBytesPerToken:
		return audit.KeptShare
	}
	s.addLocked(token, bytes)
	return audit.Kept
}

func (s *Store) add(token string, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLocked(token, bytes)
}

func (s *Store) addLocked(token string, bytes int64) {
	s.used[token] += bytes
	if s.since != nil {
		s.since[token] += bytes
	}
}

// Used is the bytes that all contents count as.
func (s *Store) Used() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all int64
	for _, n := range s.used {
		all += n
	}
	return all
}

func price(size int64) int64 { return max(1, (size+block-1)/block) * block }

// tokenDir names the directory of a token, whose id may be any text.
func tokenDir(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:16])
}

// place returns the path of a content below the directory of its token.
func place(digest string) string { return digest[:2] + "/" + digest }
