package settings

import "golang.org/x/sys/unix"

// magics of statfs(2), from linux/magic.h and the drivers that are not in it.
var magics = map[uint32]string{
	unix.NFS_SUPER_MAGIC:   "NFS",
	unix.SMB_SUPER_MAGIC:   "SMB",
	unix.CIFS_SUPER_MAGIC:  "CIFS",
	unix.SMB2_SUPER_MAGIC:  "SMB",
	unix.V9FS_MAGIC:        "9p (a disk of the host's, such as /mnt/c under WSL)",
	unix.AFS_SUPER_MAGIC:   "AFS",
	unix.AFS_FS_MAGIC:      "AFS",
	unix.CEPH_SUPER_MAGIC:  "Ceph",
	unix.CODA_SUPER_MAGIC:  "Coda",
	unix.NCP_SUPER_MAGIC:   "NCP",
	unix.FUSE_SUPER_MAGIC:  "FUSE",
	unix.OCFS2_SUPER_MAGIC: "OCFS2",
	0x01161970:             "GFS2",
	0x0BD00BD0:             "Lustre",
	0x786F4256:             "a VirtualBox shared folder",
	0xBACBACBC:             "a VMware shared folder",
	0x53464846:             "drvfs (a Windows disk under WSL 1)",
}

// networkFS names the file system that dir is on when it is one of those that are refused, else "".
func networkFS(dir string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", err
	}
	return magics[uint32(st.Type)], nil //nolint:gosec // its type depends on the machine; magics have 32 bits
}
