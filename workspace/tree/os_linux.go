package tree

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// RenameNew renames if the new name is free; else fs.ErrExist.
func RenameNew(from *os.Root, old string, to *os.Root, name string) error {
	err := rename2(from, old, to, name, unix.RENAME_NOREPLACE)
	if errors.Is(err, errors.ErrUnsupported) {
		return renameChecked(from, old, to, name)
	}
	return err
}

// Exchange swaps two names; errors.ErrUnsupported where the file system cannot.
func Exchange(from *os.Root, old string, to *os.Root, name string) error {
	return rename2(from, old, to, name, unix.RENAME_EXCHANGE)
}

func rename2(from *os.Root, old string, to *os.Root, name string, flags uint) error {
	return betweenHandles(from, to, old, name, func(oldDir, newDir int) error {
		err := unix.Renameat2(oldDir, old, newDir, name, flags)
		if errors.Is(err, unix.EINVAL) {
			err = unix.EOPNOTSUPP // the file system does not know the flag
		}
		return err
	})
}

// Flush writes the whole file system of dir to the disk: one call, where syncing a thousand files
// would take a thousand disk flushes.
func Flush(dir *os.Root) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd())))
}

// cloner copies files' content, sharing the blocks where the file system can.
type cloner struct{ cannot bool }

func (c *cloner) copy(to, from *os.File) error {
	if !c.cannot {
		if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
			return nil
		}
		c.cannot = true // nor with the next file
	}
	_, err := io.Copy(to, from) // copy_file_range, where both are files
	return err
}

// Births returns the times at which directories were made, in nanoseconds; 0 where the file system
// does not know.
func Births(root *os.Root, names []string) []int64 {
	times := make([]int64, len(names))
	top, err := root.Open(".")
	if err != nil {
		return times
	}
	defer top.Close()
	for i, name := range names {
		var st unix.Statx_t
		err := unix.Statx(int(top.Fd()), name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC, unix.STATX_BTIME, &st)
		if err == nil && st.Mask&unix.STATX_BTIME != 0 {
			times[i] = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
		}
	}
	return times
}

func changeTime(st *syscall.Stat_t) int64 { return st.Ctim.Nano() }

// FlushTakesAll reports that Flush writes a whole file system.
const FlushTakesAll = true

// plainAttributes returns errNotCarried for a file or directory with extended attributes, such as
// an access list. SELinux labels are ignored: the system sets them again.
func plainAttributes(f *os.File) error {
	size, err := unix.Flistxattr(int(f.Fd()), nil)
	if err != nil || size == 0 {
		if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
			err = nil // there are none here
		}
		return os.NewSyscallError("flistxattr", err)
	}
	list := make([]byte, size)
	if size, err = unix.Flistxattr(int(f.Fd()), list); err != nil {
		return os.NewSyscallError("flistxattr", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list[:size]), "\x00"), "\x00") {
		if name != "security.selinux" && name != "" {
			return fmt.Errorf("%w: it has the extended attribute %.80q", errNotCarried, name)
		}
	}
	return nil
}

// otherMount reports whether the entry name of dir is the root of another mount than dir's mount. A
// bind mount of the same file system is another mount, too; only a kernel before 5.8 does not tell
// them apart.
func otherMount(dir *os.Root, name string) (bool, error) {
	top, err := dir.Open(".")
	if err != nil {
		return false, err
	}
	defer top.Close()
	var parent, entry unix.Statx_t
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
	err = errors.Join(unix.Statx(int(top.Fd()), ".", flags, unix.STATX_MNT_ID, &parent),
		unix.Statx(int(top.Fd()), name, flags, unix.STATX_MNT_ID, &entry))
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // by an old kernel or a container's filter of system calls
		return otherDevice(dir, name)
	}
	if err != nil {
		return false, os.NewSyscallError("statx", err)
	}
	if parent.Mask&entry.Mask&unix.STATX_MNT_ID != 0 {
		return parent.Mnt_id != entry.Mnt_id, nil
	}
	return parent.Dev_major != entry.Dev_major || parent.Dev_minor != entry.Dev_minor, nil
}
