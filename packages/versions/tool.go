package versions

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"secbox/fault"
	"secbox/workspace"
	"secbox/workspace/tree"
)

const (
	toolsDir = "tools"
	toolName = "skill-creator"
)

// Tool is the installation's own skill: tools/skill-creator/<digest>/ below the workspace root,
// where docker can mount it and no name of a project, agent or skill leads. It is safe for
// concurrent use.
type Tool struct {
	store  *Store
	folder workspace.Folder
	dir    *os.Root    // tools/skill-creator
	info   fs.FileInfo // of dir

	mu   sync.Mutex
	seen fs.FileInfo // <digest>/ when its content was last checked
}

// InstallTool makes sure that the tool is complete in its place, and that all execs of workspaces
// mount it. An existing directory is compared byte by byte, and replaced if it differs. Several
// nodes may do this at once. Other digests belong to nodes of other versions, and stay.
func (s *Store) InstallTool(f workspace.Folder) error {
	if !tree.IsDigest(f.Digest) {
		return fault.New(fault.Internal, "%q is no digest", tree.CutName(f.Digest, 80))
	}
	top, err := os.OpenRoot(s.workspace.Root())
	if err != nil {
		return tree.Failed(err, "the workspace root cannot be opened")
	}
	defer top.Close()
	dir, err := tree.MakeDown(top, toolsDir, toolName)
	if err != nil {
		return tree.Failed(err, "%s/%s in the workspace root is a link or cannot be made: remove it", toolsDir, toolName)
	}
	t := &Tool{store: s, folder: f, dir: dir}
	if t.info, err = dir.Stat("."); err == nil {
		err = t.install()
	}
	if err != nil {
		dir.Close()
		return tree.Failed(err, "%s/%s in the workspace root cannot be written", toolsDir, toolName)
	}
	old := s.tool.Swap(t)
	s.workspace.SetTool(t)
	if old != nil {
		old.dir.Close()
	}
	return nil
}

// install checks the tool and puts it in its place if needed. A concurrent repair may replace ours
// by an equal one, so the result is checked again.
func (t *Tool) install() error {
	fi, err := t.examine(true)
	for n := 0; err != nil && n < installTries; n++ {
		if err = t.put(); err == nil {
			fi, err = t.examine(false) // some file systems have no permissions
		}
	}
	t.seen = fi
	return err
}

const installTries = 8

// put writes the tool beside its place and exchanges it with the existing one.
func (t *Tool) put() error {
	staging, err := tree.MakeDown(t.dir, stagingDir)
	if err != nil {
		return err
	}
	defer staging.Close()
	tree.RemoveOlder(staging, t.store.now().Add(-staleStaging))
	temp := t.store.workspace.TempName()
	remove := func(name string) { _, _ = tree.RemoveTree(context.Background(), staging, name) }
	defer remove(temp) // the replaced one, or ours after an error
	if err := t.folder.CopyTo(staging, temp); err != nil {
		return err
	}
	if err := tree.Flush(staging); err != nil {
		return err
	}
	digest := t.folder.Digest
	err = tree.Exchange(staging, temp, t.dir, digest)
	if errors.Is(err, errors.ErrUnsupported) {
		swap := t.store.workspace.TempName()
		defer remove(swap)
		if err = tree.RenameNew(t.dir, digest, staging, swap); err == nil {
			err = tree.RenameNew(staging, temp, t.dir, digest)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = tree.RenameNew(staging, temp, t.dir, digest)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) { // another node's is equally good
		return err
	}
	return tree.SyncDir(t.dir)
}

// examine compares the tool on disk with its folder, and returns the stat data of its directory.
// With legibly it also checks that a container's user can read it.
func (t *Tool) examine(legibly bool) (fs.FileInfo, error) {
	root, fi, err := tree.OpenDir(t.dir, t.folder.Digest)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	want := make(map[string]*workspace.FolderFile, 2*len(t.folder.Files)) // nil: a directory
	for i, file := range t.folder.Files {
		want[file.Path] = &t.folder.Files[i]
		for _, above := range tree.Parents(file.Path) {
			want[above] = nil
		}
	}
	left := len(want)
	differs := func(path string) error {
		return fmt.Errorf("%q was changed", tree.CutName(path, 80))
	}
	if legibly && fi.Mode().Perm()&0o555 != 0o555 {
		return nil, differs(".")
	}
	bounds := tree.Bounds{Entries: len(want), Depth: tree.MaxDepth}
	err = tree.New(root).Walk(context.Background(), bounds, func(e tree.Entry) error {
		file, known := want[e.Path]
		needs := fs.FileMode(0o555)
		if file != nil {
			needs = 0o444
		}
		if left--; !known || e.Info.IsDir() != (file == nil) || legibly && e.Info.Mode().Perm()&needs != needs {
			return differs(e.Path)
		}
		if file == nil {
			return nil
		}
		content, err := e.Open()
		if err != nil {
			return err
		}
		defer content.Close()
		if file.Verify(content) != nil {
			return differs(e.Path)
		}
		return nil
	})
	if err == nil && left != 0 {
		err = differs(".")
	}
	return fi, err
}

// Check makes sure that the path that docker resolves leads through real directories to the tool,
// and returns the tool's directory. One that another node has repaired meanwhile is accepted if it
// has the same content.
func (t *Tool) Check() (fs.FileInfo, error) {
	tools := filepath.Join(t.store.workspace.Root(), toolsDir)
	for path, is := range map[string]fs.FileInfo{tools: nil, filepath.Join(tools, toolName): t.info} {
		if now, err := os.Lstat(path); err != nil || !now.IsDir() || is != nil && !os.SameFile(now, is) {
			return nil, t.swapped(err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now, err := t.dir.Lstat(t.folder.Digest)
	if err == nil && !os.SameFile(now, t.seen) {
		if now, err = t.examine(false); err == nil {
			t.seen = now
		}
	}
	if err != nil {
		return nil, t.swapped(err)
	}
	return now, nil
}

func (t *Tool) swapped(err error) error {
	return tree.Failed(err, "%s/%s in the workspace root was changed and is not used: restart core-api, which restores it", toolsDir,
		toolName)
}

// Mount returns the mount for execs of workspaces.
func (t *Tool) Mount() (workspace.Mount, error) {
	if _, err := t.Check(); err != nil {
		return workspace.Mount{}, err
	}
	source, err := t.store.options().Adapter.DockerMount(toolsDir, toolName, t.folder.Digest)
	if err != nil {
		return workspace.Mount{}, tree.Failed(err, "the path of %s/%s cannot be given to docker", toolsDir, toolName)
	}
	return workspace.Mount{Source: source, Target: workspace.ToolTarget, ReadOnly: true}, nil
}

// Open opens the tool's directory.
func (t *Tool) Open() (*os.File, error) {
	checked, err := t.Check()
	if err != nil {
		return nil, err
	}
	dir, opened, err := tree.OpenDir(t.dir, t.folder.Digest)
	if err != nil {
		return nil, t.swapped(err)
	}
	defer dir.Close()
	if !os.SameFile(checked, opened) {
		return nil, t.swapped(nil)
	}
	return dir.Open(".")
}

// Tool returns the installed tool; nil when there is none.
func (s *Store) Tool() *Tool { return s.tool.Load() }

// Digest returns the digest of the tool's content.
func (t *Tool) Digest() string { return t.folder.Digest }

// Tree opens the tool for reading.
func (t *Tool) Tree() (*tree.Tree, error) {
	if _, err := t.Check(); err != nil {
		return nil, err
	}
	root, _, err := tree.OpenDir(t.dir, t.folder.Digest)
	if err != nil {
		return nil, t.swapped(err)
	}
	return tree.New(root), nil
}

// ToolDir is the tool's directory: its path for this process, and for docker.
type ToolDir struct{ Path, Mount string }

// Dir checks the tool, as Mount does, and returns its directory.
func (t *Tool) Dir() (ToolDir, error) {
	m, err := t.Mount()
	if err != nil {
		return ToolDir{}, err
	}
	return ToolDir{Path: filepath.Join(t.store.workspace.Root(), toolsDir, toolName, t.folder.Digest), Mount: m.Source}, nil
}
