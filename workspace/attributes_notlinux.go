//go:build !linux

package workspace

import (
	"io/fs"
	"os"
)

// flushTakesAll says that flush writes a whole file system.
const flushTakesAll = false

// plainAttributes takes everything: other systems put attributes of their own on every file.
func plainAttributes(*os.File) error { return nil }

// dataOf knows of no holes: a sparse file is stored whole, and small all the same.
func dataOf(*os.File, fs.FileInfo) ([]extent, bool) { return nil, false }
