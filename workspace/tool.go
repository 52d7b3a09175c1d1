package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"secbox/fault"
)

const (
	toolsDir = "tools"
	toolName = "skill-creator"

	// ToolTarget is where the containers of workspaces find the installation's tool skill.
	ToolTarget = "/opt/" + toolName
)

// Tool is the installation's own skill: tools/skill-creator/<digest>/ below the workspace root, where docker can mount it and no project,
// agent or skill has a name that leads. It is safe for concurrent use.
type Tool struct {
	w      *Workspace
	folder Folder
	dir    *os.Root    // tools/skill-creator
	info   fs.FileInfo // of dir

	mu   sync.Mutex
	seen fs.FileInfo // of <digest>/ when its content was looked at last
}

// InstallTool sees to it that the tool lies whole in its place, and has all execs of workspaces mount it. What is there already is
// compared byte by byte, and replaced as a whole when it is not that, or more than that. Several nodes may do this at once. Other digests
// belong to nodes of another version and stay.
func (w *Workspace) InstallTool(f Folder) error {
	if !isDigest(f.Digest) {
		return fault.New(fault.Internal, "%q is no digest of a folder", cutName(f.Digest, 80))
	}
	top, err := os.OpenRoot(w.Root())
	if err != nil {
		return failed(err, "the workspace root cannot be opened")
	}
	defer top.Close()
	dir, err := makeDown(top, toolsDir, toolName)
	if err != nil {
		return failed(err, "%s/%s in the workspace root is a link or cannot be made: remove what is in its place", toolsDir, toolName)
	}
	t := &Tool{w: w, folder: f, dir: dir}
	if t.info, err = dir.Stat("."); err == nil {
		err = t.install()
	}
	if err != nil {
		dir.Close()
		return failed(err, "%s/%s in the workspace root cannot be written", toolsDir, toolName)
	}
	if old := w.tool.Swap(t); old != nil {
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
	staging, err := makeDown(t.dir, stagingDir)
	if err != nil {
		return err
	}
	defer staging.Close()
	t.w.removeOlder(staging, staleStaging)
	temp := t.w.fresh()
	remove := func(name string) { _, _ = RemoveTree(context.Background(), staging, name) }
	defer remove(temp) // what was in its place, or what has not come to it
	if err := copyFolder(staging, temp, t.folder); err != nil {
		return err
	}
	if err := flush(staging); err != nil {
		return err
	}
	digest := t.folder.Digest
	err = exchange(staging, temp, t.dir, digest)
	if errors.Is(err, errors.ErrUnsupported) {
		swap := t.w.fresh()
		defer remove(swap)
		if err = renameNew(t.dir, digest, staging, swap); err == nil {
			err = renameNew(staging, temp, t.dir, digest)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = renameNew(staging, temp, t.dir, digest)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) { // another node's is as good
		return err
	}
	return syncDir(t.dir)
}

// examine compares what lies in the tool's place with what should, and says what directory that is. legibly asks for permissions too:
// a container's user must be able to read it.
func (t *Tool) examine(legibly bool) (fs.FileInfo, error) {
	root, fi, err := openDir(t.dir, t.folder.Digest)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	want := make(map[string]*FolderFile, 2*len(t.folder.Files)) // nil: a directory
	for i, file := range t.folder.Files {
		want[file.Path] = &t.folder.Files[i]
		for _, above := range parents(file.Path) {
			want[above] = nil
		}
	}
	left := len(want)
	differs := func(path string) error { return fmt.Errorf("%q is not what core-api has put there", cutName(path, 80)) }
	if legibly && fi.Mode().Perm()&0o555 != 0o555 {
		return nil, differs(".")
	}
	bounds := Bounds{Entries: len(want), Depth: maxDepth}
	err = (&Tree{root: root}).Walk(context.Background(), bounds, func(e Entry) error {
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
		if copyChecked(io.Discard, content, *file) != nil {
			return differs(e.Path)
		}
		return nil
	})
	if err == nil && left != 0 {
		err = differs(".")
	}
	return fi, err
}

// look makes sure that docker's way to the tool is ours, all real directories, and says which directory it ends in. Another one than before,
// which a node may have put there that has mended it, is accepted when it has the same content.
func (t *Tool) look() (fs.FileInfo, error) {
	tools := filepath.Join(t.w.Root(), toolsDir)
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
	return failed(err, "%s/%s in the workspace root is not what core-api has put there, so it is not used: restart core-api, which mends it", toolsDir, toolName)
}

// mount is the fixed mount of execs of workspaces.
func (t *Tool) mount() (Mount, error) {
	if _, err := t.look(); err != nil {
		return Mount{}, err
	}
	source, err := t.w.opts.Adapter.DockerMount(toolsDir, toolName, t.folder.Digest)
	if err != nil {
		return Mount{}, failed(err, "the path of %s/%s cannot be given to docker", toolsDir, toolName)
	}
	return Mount{Source: source, Target: ToolTarget, ReadOnly: true}, nil
}

// Tool is what InstallTool has installed; nil when there is none.
func (w *Workspace) Tool() *Tool { return w.tool.Load() }

// Digest names the tool's content.
func (t *Tool) Digest() string { return t.folder.Digest }

// Tree opens the tool for reading.
func (t *Tool) Tree() (*Tree, error) {
	if _, err := t.look(); err != nil {
		return nil, err
	}
	root, _, err := openDir(t.dir, t.folder.Digest)
	if err != nil {
		return nil, t.swapped(err)
	}
	return &Tree{root: root}, nil
}

// tool is the installation's tool when the project is a workspace, whose containers have it; else nil.
func (p *Project) tool() *Tool {
	if _, _, ok := SplitWorkspaceID(p.id); !ok {
		return nil
	}
	return p.w.Tool()
}
