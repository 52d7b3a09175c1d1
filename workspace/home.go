package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"

	"secbox/workspace/pack"
	"secbox/workspace/tree"
)

// A user's home is in the workspace's .home, which no exec sees.
//
//	.home/home            mounted by the sandbox's container
//	.home/saved.tar.zst   a verified pack of it: alone when the workspace is idle; beside the home while a container of another image tries the
//	                      home, or when packing was interrupted. It replaces a missing home
//
// All other files in it are leftovers of a save or a restore.
const (
	homesDir   = ".home"
	homeDir    = "home"
	savedFile  = "saved.tar.zst"
	savingFile = "saving.tar.zst"
	unpacked   = "unpacked"
	givenUp    = "given-up"
)

// Home is the home of a workspace's user in the sandbox's container.
type Home struct {
	Mount string // as docker takes it

	project *Project
	seen    fs.FileInfo
}

// Home returns the home and makes it if necessary. A link or file in its place is an error.
func (p *Project) Home() (*Home, error) {
	h := &Home{project: p}
	err := p.inHomes(func(homes *os.Root) error {
		if !isThere(homes, homeDir) && isThere(homes, savedFile) { // a restore was interrupted
			if err := p.restoreHome(context.Background(), homes); err != nil {
				return err
			}
		}
		err := p.w.owner().MakeDir(homes, homeDir)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := tree.RealDir(homes, homeDir); err != nil {
			return err
		}
		if err := p.w.owner().GiveBack(homes, homeDir); err != nil {
			return err
		}
		h.seen, err = homes.Lstat(homeDir)
		return err
	})
	if err != nil {
		return nil, tree.Failed(err, "the home of workspace %s cannot be used: remove the link or file at %s", p.id, path.Join(projectsDir, p.id, homesDir))
	}
	if h.Mount, err = p.w.opts.Adapter.DockerMount(projectsDir, p.id, homesDir, homeDir); err != nil {
		return nil, tree.Failed(err, "docker cannot take the path of the home")
	}
	return h, nil
}

// Intact reports whether the home is still the same directory.
func (h *Home) Intact() bool {
	intact := false
	err := h.project.inHomes(func(homes *os.Root) error {
		now, err := homes.Lstat(homeDir)
		intact = err == nil && os.SameFile(now, h.seen)
		return err
	})
	return err == nil && intact
}

// inHomes opens .home and makes it if necessary.
func (p *Project) inHomes(f func(homes *os.Root) error) error {
	root, err := p.open()
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Mkdir(homesDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	homes, _, err := tree.OpenDir(root, homesDir)
	if err != nil {
		return err
	}
	defer homes.Close()
	return f(homes)
}

// Save packs the home and verifies the pack. No process may run in the home meanwhile. fault.DiskFull when there is no room for the
// pack; a file that cannot be packed is an error that names it. After an error there is no pack.
func (h *Home) Save(ctx context.Context) error {
	err := h.project.inHomes(func(homes *os.Root) error { return saveHome(ctx, homes, func() bool { return false }) })
	return wrapFailed(err, "the home of workspace %s cannot be saved", h.project.id)
}

func saveHome(ctx context.Context, homes *os.Root, wanted func() bool) error {
	for _, name := range []string{savingFile, savedFile, unpacked, givenUp} {
		if _, err := tree.RemoveTree(ctx, homes, name); err != nil {
			return err
		}
	}
	_, err := writePack(ctx, homes, homeDir, savingFile, savedFile, nil, wanted)
	return err
}

// packHome replaces a home that is not empty with its pack. The caller holds the lock of the idle workspace, so no container has the
// home mounted. The next Home unpacks it.
func (p *Project) packHome(ctx context.Context, root *os.Root, wanted func() bool) error {
	homes, _, err := tree.OpenDir(root, homesDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer homes.Close()
	if !isThere(homes, homeDir) {
		return nil
	}
	if empty, err := emptyDir(homes, homeDir); empty || err != nil {
		return err
	}
	if err := saveHome(ctx, homes, wanted); err != nil {
		return err
	}
	err = tree.RenameNew(homes, homeDir, homes, givenUp)
	err = errors.Join(err, tree.SyncDir(homes))
	_, _ = tree.RemoveTree(ctx, homes, givenUp) // the rest is removed later
	return err
}

// Restore replaces the home with its saved pack. No process may run in it.
func (h *Home) Restore(ctx context.Context) error {
	err := h.project.inHomes(func(homes *os.Root) error { return h.project.restoreHome(ctx, homes) })
	return wrapFailed(err, "the home of workspace %s cannot be restored; its pack is %s", h.project.id,
		path.Join(projectsDir, h.project.id, homesDir, savedFile))
}

func (p *Project) restoreHome(ctx context.Context, homes *os.Root) error {
	for _, name := range []string{unpacked, givenUp} {
		if _, err := tree.RemoveTree(ctx, homes, name); err != nil {
			return err
		}
	}
	f, _, err := tree.OpenRegular(homes, savedFile)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := pack.Unpack(f, homes, unpacked); err != nil {
		return err
	}
	if isThere(homes, homeDir) {
		if err := tree.RenameNew(homes, homeDir, homes, givenUp); err != nil {
			return err
		}
	}
	if err := tree.RenameNew(homes, unpacked, homes, homeDir); err != nil {
		return err
	}
	_, _ = tree.RemoveTree(ctx, homes, givenUp) // the rest is removed later
	return errors.Join(tree.SyncDir(homes), homes.Remove(savedFile))
}

// Forget removes the saved pack.
func (h *Home) Forget() error {
	return h.project.inHomes(func(homes *os.Root) error {
		if err := homes.Remove(savedFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}
