//go:build unix

package pack_test

import "secbox/workspace/tree/treetest"

var (
	must  = treetest.Must
	write = treetest.Write
	read  = treetest.Read
)
