package tree

import (
	"errors"
	"io"
	"os"

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

// Flush writes the whole file system of dir to the disk: one call, where syncing a thousand files would take a thousand disk
// flushes.
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
