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
	"secbox/tree"
	"secbox/workspace"
)

const (
	toolsDir = "tools"
	toolName = "skill-creator"
)

// Tool is the installation's own skill: tools/skill-creator/<digest>/ below the workspace root, where docker can mount it and no project,
// agent or skill has a name that leads. It is safe for concurrent use.
type Tool struct {
	store  *Store
	folder workspace.Folder
	dir    *os.Root    // tools/skill-creator
	info   fs.FileInfo // of dir

	mu   sync.Mutex
	seen fs.FileInfo // of <digest>/ when its content was looked at last
}

// InstallTool sees to it that the tool lies whole in its place, and has all execs of workspaces mount it. What is there already is
// compared byte by byte, and replaced as a whole when it is not that, or more than that. Several nodes may do this at once. Other digests
// belong to nodes of another version and stay.
func (s *Store) InstallTool(f workspace.Folder) error {
	if !tree.IsDigest(f.Digest) {
		return fault.New(fault.Internal, "%q is no digest of a folder", tree.CutName(f.Digest, 80))
	}
	top, err := os.OpenRoot(s.workspace.Root())
	if err != nil {
		return tree.Failed(err, "the workspace root cannot be opened")
	}
	defer top.Close()
	dir, err := tree.MakeDown(top, toolsDir, toolName)
	if err != nil {
		return tree.Failed(err, "%s/%s in the workspace root is a link or cannot be made: remove what is in its place", toolsDir, toolName)
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

// install leaves what is as it should be, and else puts it there. Whoever mends the same at once may take ours away again and put the same
// in its place, so it is looked at once more.
func (t *Tool) install() error {
	fi, err := t.examine(true)
	for n := 0; err != nil && n < installTries; n++ {
		if err = t.put(); err == nil {
			fi, err = t.examine(false) // a file system that knows no permissions gives none
		}
	}
	t.seen = fi
	return err
}

const installTries = 8

// put writes the tool beside its place and exchanges it with what is there.
func (t *Tool) put() error {
	staging, err := tree.MakeDown(t.dir, stagingDir)
	if err != nil {
		return err
	}
	defer staging.Close()
	tree.RemoveOlder(staging, t.store.now().Add(-staleStaging))
	temp := t.store.workspace.TempName()
	remove := func(name string) { _, _ = tree.RemoveTree(context.Background(), staging, name) }
	defer remove(temp) // what was in its place, or what has not come to it
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
	if err != nil && !errors.Is(err, fs.ErrExist) { // another node's is as good
		return err
	}
	return tree.SyncDir(t.dir)
}

// examine compares what lies in the tool's place with what should, and says what directory that is. legibly asks for permissions too:
// a container's user must be able to read it.
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
		return fmt.Errorf("%q is not what core-api has put there", tree.CutName(path, 80))
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

// Check makes sure that docker's way to the tool is ours, all real directories, and says which directory it ends in. Another one than before,
// which a node may have put there that has mended it, is accepted when it has the same content.
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
	return tree.Failed(err, "%s/%s in the workspace root is not what core-api has put there, so it is not used: restart core-api, which mends it", toolsDir, toolName)
}

// Mount is the fixed mount of execs of workspaces.
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

// Tool is what InstallTool has installed; nil when there is none.
func (s *Store) Tool() *Tool { return s.tool.Load() }

// Digest names the tool's content.
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

// ToolPlace is the installation's tool as commands see it: its directory as this process sees it and as docker takes it.
type ToolPlace struct{ Path, Mount string }

// Place looks at the tool, as a mount of it does, and says where it lies.
func (t *Tool) Place() (ToolPlace, error) {
	m, err := t.Mount()
	if err != nil {
		return ToolPlace{}, err
	}
	return ToolPlace{Path: filepath.Join(t.store.workspace.Root(), toolsDir, toolName, t.folder.Digest), Mount: m.Source}, nil
}
