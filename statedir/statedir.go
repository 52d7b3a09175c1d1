// Package statedir is the directory where core-api keeps what no container may see, and the claim of one process on it.
//
// The directory is private to its owner (0700) and holds the embedded database, captured output, the spool of records, and the node's
// id. Whoever opens it holds it until Close or death: two processes on one state dir would end each other's execs.
package statedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"secbox/fault"
)

const (
	lockFile = "node.lock"
	idFile   = "node_id"
)

// Dir is a state dir that this process holds.
type Dir struct {
	path   string
	nodeID string
	lock   *os.File
}

// Open makes the directory when it is missing, claims it, and reads or makes the node's id. fault.StateDirInUse when another process
// holds it.
func Open(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fault.Wrap(fault.InvalidSettings, err, "state_dir %s cannot be made: %s; choose another with --state-dir", path, fault.Reason(err))
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return nil, fault.Wrap(fault.InvalidSettings, err, "state_dir %s cannot be made private: %s; it must belong to the user that runs core-api", path, fault.Reason(err))
	}
	lock, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.InvalidSettings, err, "state_dir %s cannot be written: %s; choose another with --state-dir", path, fault.Reason(err))
	}
	if err := tryLock(lock); err != nil {
		_ = lock.Close()
		if errors.Is(err, errHeld) {
			return nil, fault.Wrap(fault.StateDirInUse, err, "another core-api holds the state dir %s; stop it, or give this one its own --state-dir", path)
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

// nodeID reads the node's id or makes it.
func nodeID(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err == nil {
		id, err := uuid.Parse(strings.TrimSpace(string(content)))
		if err != nil {
			return "", fault.Wrap(fault.InvalidSettings, err, "%s is damaged; restore it, or remove it to become a new node", path)
		}
		return id.String(), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fault.Wrap(fault.InvalidSettings, err, "%s cannot be read: %s", path, fault.Reason(err))
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", fault.Wrap(fault.Internal, err, "no node id could be made")
	}
	temp := path + ".new"
	if err := os.WriteFile(temp, []byte(id.String()+"\n"), 0o600); err != nil {
		return "", fault.Wrap(fault.InvalidSettings, err, "%s cannot be written: %s", temp, fault.Reason(err))
	}
	if err := os.Rename(temp, path); err != nil {
		return "", fault.Wrap(fault.InvalidSettings, err, "%s cannot be written: %s", path, fault.Reason(err))
	}
	return id.String(), nil
}

// Path is the directory.
func (d *Dir) Path() string { return d.path }

// NodeID names this node in rows and on containers; it stays the same across restarts.
func (d *Dir) NodeID() string { return d.nodeID }

// Close gives the claim up. Safe to call twice.
func (d *Dir) Close() error {
	if err := d.lock.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// errHeld says that another process has the lock.
var errHeld = errors.New("locked by another process")
