package settings

import (
	"secbox/fault"
	"secbox/workspace/diskspace"
)

// CheckStateDir refuses a state dir on a file system where SQLite's locks and memory maps, or
// fsync, are not reliable: NFS, SMB/CIFS, 9p (the host's disks in WSL and some VMs), AFS, Ceph,
// Coda, NCP, Lustre, GFS2, OCFS2, VirtualBox and VMware shared folders, and everything behind FUSE
// (sshfs, object stores, virtiofs, Docker Desktop's shares). If the directory does not exist, its
// nearest existing parent is checked. On macOS every mount that is not local is refused, on Windows
// every network drive and UNC path.
func CheckStateDir(dir string) error {
	at, err := diskspace.Existing(dir)
	if err != nil {
		return fault.Wrap(fault.InvalidSettings, err, "state_dir: cannot stat %s; use a directory that can be reached", dir)
	}
	kind, err := networkFS(at)
	if err != nil {
		return fault.Wrap(fault.InvalidSettings, err, "state_dir: cannot determine the file system of %s; use a directory on a local disk",
			dir)
	}
	return refusal(dir, kind)
}

// refusal is the error for a file system of that kind; nil for "".
func refusal(dir, kind string) error {
	if kind == "" {
		return nil
	}
	return fault.New(fault.InvalidSettings,
		"state_dir: %s is on %s, where locks and syncs of the audit database are not reliable; use a directory on a local disk "+
			"(--state-dir)", dir, kind)
}
