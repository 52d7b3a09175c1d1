package attach

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"secbox/internal/lockfile"
)

// lockSuffix ends the name of a base's lock file, beside the base.
const lockSuffix = ".lock"

// Open makes the base parent/name, detaches and removes what earlier processes have left in it, and
// in the bases beside it that no process uses, and tries all mount calls once. name is one path
// component. Only root can pass parent, which Open makes. lockfile.ErrLocked: another process uses
// the base. errors.ErrUnsupported: the kernel has no such calls, or refuses them to this process.
func Open(parent, name string) (*Base, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("mounts need root: %w", errors.ErrUnsupported)
	}
	if err := component(name); err != nil {
		return nil, err
	}
	parent, err := private(parent)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	b, err := lockBase(ctx, parent, name)
	if err != nil {
		return nil, err
	}
	removeLeftBases(parent, name)
	for _, step := range []func() error{b.clean, b.share, b.try} {
		if err := step(); err != nil {
			_ = b.Close()
			return nil, err
		}
	}
	return b, nil
}

// private makes a directory that only root can pass, and returns its path without links: mountinfo
// has such paths.
func private(dir string) (string, error) {
	failed := os.MkdirAll(dir, 0o700) // also if there is a file or a dangling link, for which Lstat finds the remedy
	fi, err := os.Lstat(dir)
	if err != nil {
		return "", cmp.Or(failed, err)
	}
	if owner := fi.Sys().(*syscall.Stat_t).Uid; !fi.IsDir() || fi.Mode().Perm() != 0o700 || owner != 0 {
		return "", fmt.Errorf("%s must be a directory of root with mode 0700: remove it, or change it with `chown root` and `chmod 0700`",
			dir)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// lockWait is how long Open waits for a process that removes what was left in the base.
const lockWait = 5 * time.Second

// lockBase locks the base until ctx ends.
func lockBase(ctx context.Context, parent, name string) (*Base, error) {
	b := &Base{dir: filepath.Join(parent, name)}
	for {
		lock, err := os.OpenFile(b.dir+lockSuffix, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := lockfile.Wait(ctx, lock); err != nil {
			lock.Close()
			if ctx.Err() != nil {
				err = lockfile.ErrLocked
			}
			return nil, fmt.Errorf("%s: %w", lock.Name(), err)
		}
		held, err := lock.Stat()
		if err != nil {
			_ = lockfile.Close(lock)
			return nil, err
		}
		now, err := os.Lstat(lock.Name())
		if err == nil && os.SameFile(held, now) {
			b.lock, b.close = lock, sync.OnceValue(b.end)
			return b, nil
		}
		_ = lockfile.Close(lock)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		} // else the process that held it has removed it
	}
}

// removeLeftBases removes the bases of processes that were killed and did not come back. Its
// failures are the next start's. A base without a lock file may be in use: it stays.
func removeLeftBases(parent, except string) {
	entries, _ := os.ReadDir(parent)
	for _, entry := range entries {
		name, is := strings.CutSuffix(entry.Name(), lockSuffix)
		if !is || name == except || component(name) != nil {
			continue
		}
		once, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
		if b, err := lockBase(once, parent, name); err == nil {
			_ = b.Close()
		}
		cancel()
	}
}

// share makes the directory a mount of its own and shares it.
func (b *Base) share() error {
	if err := os.Mkdir(b.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := unix.Mount(b.dir, b.dir, "", unix.MS_BIND, ""); err != nil {
		return refused("mount", err)
	}
	// Private first: else it would share its mounts with the mount that it was made from.
	for _, propagation := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
		if err := unix.Mount("", b.dir, "", propagation, ""); err != nil {
			return refused("mount", err)
		}
	}
	return nil
}

// try attaches a directory once.
func (b *Base) try() error {
	p, err := b.NewPoint("try")
	if err != nil {
		return err
	}
	from, err := os.Open(p.dir)
	if err != nil {
		return err
	}
	defer from.Close()
	return errors.Join(p.Attach(Dir{Name: "at", From: from}), p.Remove())
}

// Close detaches and removes everything. The containers must have ended.
// Safe to call twice.
func (b *Base) Close() error { return b.close() }

func (b *Base) end() error {
	err := b.clean()
	if err == nil {
		err = removeDir(b.dir)
	}
	if err == nil {
		_ = os.Remove(b.dir + lockSuffix)
	}
	return errors.Join(err, lockfile.Close(b.lock))
}

// clean unmounts the base and all below it, and removes the directories of points. It removes
// nothing while there is a mount.
func (b *Base) clean() error {
	for range 2 { // the second time finds none
		mounts, err := mountsBelow(b.dir)
		if err != nil {
			return err
		}
		if len(mounts) == 0 {
			return removeDirs(b.dir)
		}
		for _, at := range slices.Backward(mounts) {
			if err := unmount(at); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("directories are still mounted below %s: unmount them", b.dir)
}

// removeDirs removes the directories below dir, which has nothing else, except dir.
func removeDirs(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && path != dir && entry.IsDir() {
			dirs = append(dirs, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	for _, dir := range slices.Backward(dirs) {
		err = errors.Join(err, removeDir(dir))
	}
	return err
}

// mountsBelow lists the mount points at dir and below, in the order of their mounts.
func mountsBelow(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		if at := unescaped(fields[4]); at == dir || strings.HasPrefix(at, dir+"/") {
			found = append(found, at)
		}
	}
	return found, lines.Err()
}

// unescaped reverses the kernel's escapes: a backslash and three octal digits.
func unescaped(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '\\' && i+4 <= len(path) {
			if c, err := strconv.ParseUint(path[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(path[i])
	}
	return b.String()
}

func mount(at string, from *os.File, readOnly bool) error {
	const whole = unix.AT_EMPTY_PATH | unix.AT_RECURSIVE
	clone, err := unix.OpenTree(int(from.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|whole)
	if err != nil {
		return refused("open_tree", err)
	}
	defer unix.Close(clone)
	flags := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if readOnly {
		flags.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(clone, "", whole, &flags); err != nil {
		return refused("mount_setattr", err)
	}
	return refused("move_mount", unix.MoveMount(clone, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH))
}

func unmount(at string) error {
	err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // it is not, or no longer, a mount
		return nil
	}
	return os.NewSyscallError("umount "+at, err)
}

// refused returns the error of a mount call; it is errors.ErrUnsupported when the kernel has no
// such call or refuses it to this process.
func refused(call string, err error) error {
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%s: %w: %w", call, err, errors.ErrUnsupported)
	}
	return os.NewSyscallError(call, err)
}

func rmdir(dir string) error {
	if err := unix.Rmdir(dir); err != nil {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}
