//go:build !linux

package tree

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
)

func RenameNew(from *os.Root, old string, to *os.Root, name string) error {
	return renameChecked(from, old, to, name)
}

func Exchange(*os.Root, string, *os.Root, string) error { return errors.ErrUnsupported }

// Flush syncs every file in dir.
func Flush(dir *os.Root) error {
	t := &Tree{root: dir}
	err := t.Walk(context.Background(), Bounds{Entries: math.MaxInt, Depth: MaxDepth}, func(e Entry) error {
		if e.Info.IsDir() {
			below, _, err := OpenDir(e.dir, e.Info.Name())
			if err != nil {
				return err
			}
			defer below.Close()
			return SyncDir(below)
		}
		f, err := e.dir.OpenFile(e.Info.Name(), os.O_RDWR, 0) // Windows syncs only files open for writing
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
	return errors.Join(err, SyncDir(dir))
}

type cloner struct{}

func (c *cloner) copy(to, from *os.File) error {
	_, err := io.Copy(to, from)
	return err
}

// Births returns zeros: the times at which directories were made are read on Linux only.
func Births(_ *os.Root, names []string) []int64 { return make([]int64, len(names)) }

// FlushTakesAll reports that Flush writes a whole file system.
const FlushTakesAll = false

// plainAttributes accepts every file: other systems put attributes on all of them.
func plainAttributes(*os.File) error { return nil }
