package sandboxtest

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"secbox/sandbox"
)

// Directory implements sandbox.Directories: all users work in the same directory.
type Directory string

// Open implements sandbox.Directories.
func (d Directory) Open(context.Context, sandbox.User) (*sandbox.Directory, error) {
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return nil, err
	}
	edits, _ := edits.LoadOrStore(string(d), &sync.Mutex{})
	return &sandbox.Directory{
		Root: root, Path: string(d), Mount: string(d), UID: -1, GID: -1,
		LockEdits: func(context.Context) (func(), error) {
			edits.(*sync.Mutex).Lock()
			return edits.(*sync.Mutex).Unlock, nil
		},
		Intact: func() bool { return true }, Close: func() { root.Close() },
	}, nil
}

// edits has a mutex for each Directory.
var edits sync.Map

// PerUser implements sandbox.Directories: each user has a directory in this one.
type PerUser string

// Open implements sandbox.Directories.
func (p PerUser) Open(ctx context.Context, u sandbox.User) (*sandbox.Directory, error) {
	dir := filepath.Join(string(p), u.ProjectID())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return Directory(dir).Open(ctx, u)
}
