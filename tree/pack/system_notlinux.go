//go:build !linux

package pack

import (
	"io/fs"
	"os"
)

// dataOf knows of no holes: a sparse file is stored whole, and small all the same.
func dataOf(*os.File, fs.FileInfo) ([]extent, bool) { return nil, false }
