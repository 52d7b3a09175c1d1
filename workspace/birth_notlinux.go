//go:build !linux

package workspace

import "os"

func births(_ *os.Root, names []string) []int64 { return make([]int64, len(names)) }
