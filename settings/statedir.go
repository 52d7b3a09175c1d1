package settings

import (
	"os"
	"path/filepath"

	"secbox/fault"
)

// CheckStateDir refuses a state dir on a file system where SQLite's locks and memory maps, or an fsync, cannot be relied on: NFS,
// SMB/CIFS, 9p (what WSL and some VMs show of their host's disks), AFS, Ceph, Coda, NCP, Lustre, GFS2, OCFS2, VirtualBox and VMware
// shared folders, and everything behind FUSE (sshfs, object stores, virtiofs, Docker Desktop's shares). The directory
// need not exist: then the nearest one above it is looked at. On macOS every mount that is not local is refused, on
// Windows every network drive and UNC path.
func CheckStateDir(dir string) error {
	at, err := existing(dir)
	if err != nil {
		return fault.Wrap(fault.InvalidSettings, err, "state_dir: %s cannot be looked at; give a directory that can be reached", dir)
	}
	kind, err := networkFS(at)
	if err != nil {
		return fault.Wrap(fault.InvalidSettings, err, "state_dir: the file system of %s cannot be found out; give a directory on a local disk", dir)
	}
	return refusal(dir, kind)
}

// refusal is the error about a file system of that kind, nil for none.
func refusal(dir, kind string) error {
	if kind == "" {
		return nil
	}
	return fault.New(fault.InvalidSettings,
		"state_dir: %s is on %s, where locks and syncs of the audit database cannot be relied on; give a directory on a local disk (--state-dir)", dir, kind)
}

// existing is the directory, or the nearest one above it that exists.
func existing(dir string) (string, error) {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		_, err := os.Stat(at)
		if err == nil || !os.IsNotExist(err) || at == filepath.Dir(at) {
			return at, err
		}
	}
}
