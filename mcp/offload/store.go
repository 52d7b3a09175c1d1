package offload

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"

	"secbox/fault"
	"secbox/sandbox"
)

// Bounds bound the kept results of a session, a user or a store. When one is reached, the oldest
// results make room.
type Bounds struct {
	Bytes   int64
	Entries int
}

// Config is the configuration of a Store.
type Config struct {
	Dir                string // made with the mode 0700; what is in it is removed
	Session, User, All Bounds // without a value: 16 MiB and 64, 64 MiB and 256, 512 MiB and 4096
}

// Store keeps the results of many sessions. Safe for concurrent use.
type Store struct {
	cfg  Config
	root *os.Root

	mu      sync.Mutex
	entries []*entry // oldest first
}

// entry is one kept result: a file of the store's directory with its id as the name.
type entry struct {
	id      string
	session *Session
	bytes   int64
	tool    string
	read    File // that the result shows; without a path: none
}

// Open makes the directory, and removes the results of an earlier process. The caller must call
// Close.
func Open(cfg Config) (*Store, error) {
	for bounds, value := range map[*Bounds]Bounds{&cfg.Session: {16 << 20, 64}, &cfg.User: {64 << 20, 256}, &cfg.All: {512 << 20, 4096}} {
		if *bounds == (Bounds{}) {
			*bounds = value
		}
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fault.Wrap(fault.InvalidSettings, err, "cannot create %s: %s; state_dir must belong to the user that runs core-api",
			cfg.Dir, fault.Reason(err))
	}
	root, err := os.OpenRoot(cfg.Dir)
	if err == nil {
		if err = errors.Join(root.Chmod(".", 0o700), sweep(root)); err == nil {
			return &Store{cfg: cfg, root: root}, nil
		}
		_ = root.Close()
	}
	return nil, fault.Wrap(fault.InvalidSettings, err, "cannot use %s: %s; remove it, or give its contents to the user that runs core-api",
		cfg.Dir, fault.Reason(err))
}

// sweep removes everything in a directory.
func sweep(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	_ = dir.Close()
	for _, name := range names {
		err = errors.Join(err, root.RemoveAll(name))
	}
	return err
}

// Close removes all results.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = nil
	return errors.Join(sweep(s.root), s.root.Close())
}

// Begin begins a session of a user. It uses nothing until a result is kept. The caller must call
// Close.
func (s *Store) Begin(user sandbox.User) *Session { return &Session{store: s, user: user} }

// add writes a result and keeps it, after the oldest ones have made room.
func (s *Store) add(e *entry, text string) error {
	if e.bytes > s.cfg.Session.Bytes {
		return fault.New(fault.FileTooLarge, "the result has %d bytes, more than %d", e.bytes, s.cfg.Session.Bytes)
	}
	err := s.write(e.id, text)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && e.session.closed {
		err = fs.ErrClosed
	}
	if err != nil {
		_ = s.root.Remove(e.id)
		return err
	}
	s.entries = append(s.entries, e)
	s.evict(s.cfg.Session, func(other *entry) bool { return other.session == e.session })
	s.evict(s.cfg.User, func(other *entry) bool { return other.session.user.ID == e.session.user.ID })
	s.evict(s.cfg.All, func(*entry) bool { return true })
	return nil
}

func (s *Store) write(name, text string) error {
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// evict removes the oldest entries of a group until the others are within its bounds. The caller
// holds mu.
func (s *Store) evict(within Bounds, group func(*entry) bool) {
	var bytes int64
	entries := 0
	gone := map[*entry]bool{}
	for _, e := range slices.Backward(s.entries) {
		if !group(e) {
			continue
		}
		if bytes, entries = bytes+e.bytes, entries+1; bytes > within.Bytes || entries > within.Entries {
			gone[e] = true
			_ = s.root.Remove(e.id) // at the latest, the next Open removes it
		}
	}
	s.entries = slices.DeleteFunc(s.entries, func(e *entry) bool { return gone[e] })
}
