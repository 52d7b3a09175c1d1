//go:build unix

package pack

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// giveTo sets the owner of a file, if this process is root.
func giveTo(uid, gid int, chown func(uid, gid int) error) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return chown(uid, gid)
}

// setModified sets the time of an entry in dir, also of a link.
func setModified(dir *os.Root, name string, at time.Time) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	ts, err := unix.TimeToTimespec(at)
	if err != nil {
		return err
	}
	err = unix.UtimesNanoAt(int(f.Fd()), name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
	return os.NewSyscallError("utimensat", err)
}

func hasSeparator(name string) bool { return strings.Contains(name, "/") }
