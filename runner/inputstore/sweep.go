package inputstore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"secbox/workspace/tree"
)

// grace is how long a content is kept after its last use though no ended exec names it: longer than
// any job runs.
const grace = 7 * 24 * time.Hour

// Named calls each with the inputs of every exec that may still be replayed, by its token. An error
// means that not all were named.
type Named func(ctx context.Context, each func(token, digest string)) error

// Measure finds out how much is in the store, also by other nodes, and removes what a crash has
// left half written.
func (s *Store) Measure(ctx context.Context) error { return s.measure(ctx, func(string, time.Time) {}) }

// Sweep removes the contents that were not used for a week and that no exec names. It asks named
// only if there are old contents. After an error, it has removed none.
func (s *Store) Sweep(ctx context.Context, named Named) (removed int, err error) {
	old := map[string]bool{} // by path
	limit := s.cfg.Now().Add(-grace)
	err = s.measure(ctx, func(name string, used time.Time) {
		if used.Before(limit) {
			old[name] = true
		}
	})
	if err != nil || len(old) == 0 {
		return 0, err
	}
	if err := named(ctx, func(token, digest string) {
		if tree.IsDigest(digest) {
			delete(old, tokenDir(token)+"/"+place(digest))
		}
	}); err != nil {
		return 0, err
	}
	for name := range old {
		if err := ctx.Err(); err != nil {
			return removed, err
		}
		fi, err := s.dir.Lstat(name)
		if err != nil || !fi.ModTime().Before(limit) { // used again meanwhile
			continue
		}
		if err := s.dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, tree.Failed(err, "a kept input cannot be removed")
		}
		token, _, _ := strings.Cut(name, "/")
		s.add(token, -price(fi.Size()))
		removed++
	}
	return removed, nil
}

// measure walks all contents. What is added meanwhile may count twice until the next time.
func (s *Store) measure(ctx context.Context, each func(name string, used time.Time)) error {
	s.mu.Lock()
	s.since = map[string]int64{}
	s.mu.Unlock()
	used := map[string]int64{}
	err := tree.EachName(s.dir, func(token string) error { return s.measureToken(ctx, token, used, each) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		for token, n := range s.since {
			used[token] += n
		}
		s.used = used
	}
	s.since = nil
	if err != nil {
		return tree.Failed(err, "the kept inputs cannot be listed")
	}
	return nil
}

func (s *Store) measureToken(ctx context.Context, token string, used map[string]int64, each func(string, time.Time)) error {
	dir, _, err := tree.OpenDir(s.dir, token)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, tree.ErrNotDir) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	return tree.EachName(dir, func(first string) error {
		if strings.HasPrefix(first, newPrefix) {
			if fi, err := dir.Lstat(first); err == nil && fi.ModTime().Before(s.cfg.Now().Add(-24*time.Hour)) {
				_ = dir.Remove(first)
			}
			return nil
		}
		contents, _, err := tree.OpenDir(dir, first)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, tree.ErrNotDir) {
			return nil
		}
		if err != nil {
			return err
		}
		defer contents.Close()
		return tree.EachName(contents, func(digest string) error {
			fi, err := lstat(ctx, contents, digest)
			if fi != nil {
				used[token] += price(fi.Size())
				each(token+"/"+first+"/"+digest, fi.ModTime())
			}
			return err
		})
	})
}

// lstat returns nil for a name that is gone.
func lstat(ctx context.Context, dir *os.Root, name string) (fs.FileInfo, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	fi, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return fi, err
}
