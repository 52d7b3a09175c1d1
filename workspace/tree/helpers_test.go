//go:build unix

package tree_test

import (
	"context"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"secbox/workspace/tree"
	"secbox/workspace/tree/treetest"
)

var (
	must     = treetest.Must
	write    = treetest.Write
	read     = treetest.Read
	gone     = treetest.Gone
	deadline = treetest.Deadline
	inMemory = treetest.InMemory
	nest     = treetest.Nest
	fill     = treetest.Fill
	count    = treetest.Count
)

func TestAsAnOrdinaryUser(t *testing.T) {
	treetest.AsUser(t, "^Test(RemovalSparesMounts|RemovalSparesMountedFiles)$", "TestRemoveTree") // only root mounts
}

// openTree opens a directory as a tree that can be changed.
func openTree(t *testing.T, dir string) *tree.Tree {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must(t, err)
	opened := tree.NewIn(root, &host{staging: t.TempDir()})
	t.Cleanup(func() { opened.Close() })
	return opened
}

// host is a tree.Host without commands or other editors.
type host struct {
	staging string
	names   atomic.Int64
}

func (h *host) Staging() (*os.Root, error)              { return os.OpenRoot(h.staging) }
func (h *host) TempName() string                        { return strconv.FormatInt(h.names.Add(1), 10) }
func (*host) Still() func() bool                        { return func() bool { return true } }
func (*host) LockEdits(context.Context) (func(), error) { return func() {}, nil }
func (*host) Traits() tree.Traits                       { return tree.Traits{Now: time.Now} }
