package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"

	"secbox/tree"
	"secbox/tree/pack"
)

// A user's home lies beside work/, in the workspace's .home, which no exec sees.
//
//	.home/home            what the container of the sandbox mounts
//	.home/saved.tar.zst   a pack of it, verified: alone when the workspace is idle, and with the home while a container of another image
//	                      tries it, or when packing an idle one was cut short. It takes the home's place where there is none
//
// Whatever else lies there is litter of a save or a restore.
const (
	homesDir   = ".home"
	homeDir    = "home"
	savedFile  = "saved.tar.zst"
	savingFile = "saving.tar.zst"
	unpacked   = "unpacked"
	givenUp    = "given-up"
)

// Home is the home of a workspace's user, as the sandbox's container has it.
type Home struct {
	Mount string // as docker is told

	project *Project
	seen    fs.FileInfo
}

// Home makes the home where there is none, and says where it lies. What lies in its place and is no directory is an error, and so is a link.
func (p *Project) Home() (*Home, error) {
	h := &Home{project: p}
	err := p.inHomes(func(homes *os.Root) error {
		if !isThere(homes, homeDir) && isThere(homes, savedFile) { // a restore was cut short
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
		return nil, tree.Failed(err, "the home of workspace %s cannot be used: remove what is in the place of %s", p.id, path.Join(projectsDir, p.id, homesDir))
	}
	if h.Mount, err = p.w.opts.Adapter.DockerMount(projectsDir, p.id, homesDir, homeDir); err != nil {
		return nil, tree.Failed(err, "the home's path cannot be given to docker")
	}
	return h, nil
}

// Intact reports whether the home is still the directory that it was.
func (h *Home) Intact() bool {
	intact := false
	err := h.project.inHomes(func(homes *os.Root) error {
		now, err := homes.Lstat(homeDir)
		intact = err == nil && os.SameFile(now, h.seen)
		return err
	})
	return err == nil && intact
}

// inHomes opens .home, which is made when it is missing.
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

// Save packs the home, beside it, and reads the pack again. Nothing may run in the home meanwhile. fault.DiskFull when there is no room for
// it; then, as after any error, there is none. A home that holds what no pack can is an error that names it.
func (h *Home) Save(ctx context.Context) error {
	err := h.project.inHomes(func(homes *os.Root) error { return saveHome(ctx, homes, func() bool { return false }) })
	return failedOr(err, "the home of workspace %s cannot be saved", h.project.id)
}

func saveHome(ctx context.Context, homes *os.Root, wanted func() bool) error {
	for _, name := range []string{savingFile, savedFile, unpacked, givenUp} {
		if _, err := tree.RemoveTree(ctx, homes, name); err != nil {
			return err
		}
	}
	dir, _, err := tree.OpenDir(homes, homeDir)
	if err != nil {
		return err
	}
	home := tree.New(dir)
	defer home.Close()
	f, err := homes.OpenFile(savingFile, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = pack.Write(ctx, home, f, nil, wanted)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = tree.RenameNew(homes, savingFile, homes, savedFile)
	}
	if err != nil {
		_ = homes.Remove(savingFile)
	}
	return err
}

// packHome leaves a pack in the place of the home, if there is one with something in it. The lock of an idle workspace is held, so no
// container has it. The next Home brings it back.
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
	_, _ = tree.RemoveTree(ctx, homes, givenUp) // what stays is litter the next time
	return err
}

// Restore puts what was saved in the place of the home. Nothing may run in it.
func (h *Home) Restore(ctx context.Context) error {
	err := h.project.inHomes(func(homes *os.Root) error { return h.project.restoreHome(ctx, homes) })
	return failedOr(err, "the home of workspace %s cannot be put back; what was saved lies in %s", h.project.id,
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
	_, _ = tree.RemoveTree(ctx, homes, givenUp) // or the next one does
	return errors.Join(tree.SyncDir(homes), homes.Remove(savedFile))
}

// Forget removes what was saved.
func (h *Home) Forget() error {
	return h.project.inHomes(func(homes *os.Root) error {
		if err := homes.Remove(savedFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}
