//go:build !linux

package tree

import "os"

func Births(_ *os.Root, names []string) []int64 { return make([]int64, len(names)) }
