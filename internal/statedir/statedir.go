// Package statedir opens the private directory of a node: the embedded database, captured output,
// the spool of records and the node's id.
//
// Containers must never see the directory, nor other users: its mode is 0700. One process locks it
// until it closes it or ends: two core-apis on one state dir would end each other's execs. The
// package knows the lock and the id, and nothing of the other files.
package statedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"secbox/fault"
	"secbox/internal/lockfile"
)

const (
	lockFile = "node.lock"
	idFile   = "node_id"
)

// Dir is a state dir that this process has locked.
type Dir struct {
	path   string
	nodeID string
	lock   *os.File
}

// Open creates the directory if it is missing, locks it, and reads or creates the node's id. It
// fails with fault.StateDirInUse while another process holds the lock.
func Open(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fault.Wrap(fault.InvalidSettings, err, "cannot create state_dir %s: %s; choose another with --state-dir", path,
			fault.Reason(err))
	}
	if err := makePrivate(path); err != nil {
		return nil, fault.Wrap(fault.InvalidSettings, err,
			"cannot make state_dir %s private: %s; it must belong to the user that runs core-api", path, fault.Reason(err))
	}
	lock, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.InvalidSettings, err, "cannot write to state_dir %s: %s; choose another with --state-dir", path,
			fault.Reason(err))
	}
	if err := lockfile.Try(lock); err != nil {
		_ = lock.Close()
		if errors.Is(err, lockfile.ErrLocked) {
			return nil, fault.Wrap(fault.StateDirInUse, err,
				"another core-api holds the state dir %s; stop it, or give this one its own --state-dir", path)
		}
		return nil, fault.Wrap(fault.InvalidSettings, err, "state_dir %s does not support locks; it must be on a local file system", path)
	}
	id, err := nodeID(filepath.Join(path, idFile))
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	return &Dir{path: path, nodeID: id, lock: lock}, nil
}

// nodeID reads the node's id, or creates it.
func nodeID(path string) (string, error) {
	content, err := Read(path, maxSecret)
	if err == nil {
		id, err := uuid.Parse(strings.TrimSpace(string(content)))
		if err != nil {
			return "", fault.Wrap(fault.InvalidSettings, err, "%s is damaged; restore it, or remove it to become a new node", path)
		}
		return id.String(), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fault.Wrap(fault.InvalidSettings, err, "cannot read %s: %s", path, fault.Reason(err))
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", fault.Wrap(fault.Internal, err, "cannot create a node id")
	}
	temp := path + ".new"
	if err := os.WriteFile(temp, []byte(id.String()+"\n"), 0o600); err != nil {
		return "", fault.Wrap(fault.InvalidSettings, err, "cannot write %s: %s", temp, fault.Reason(err))
	}
	if err := os.Rename(temp, path); err != nil {
		return "", fault.Wrap(fault.InvalidSettings, err, "cannot write %s: %s", path, fault.Reason(err))
	}
	return id.String(), nil
}

// Path is the path of the directory.
func (d *Dir) Path() string { return d.path }

// NodeID names this node in rows and on containers; it stays the same across restarts.
func (d *Dir) NodeID() string { return d.nodeID }

// Close releases the lock. It is safe to call twice.
func (d *Dir) Close() error {
	if err := lockfile.Close(d.lock); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
