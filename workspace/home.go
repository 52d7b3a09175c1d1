package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"

	"secbox/workspace/tree"
)

// A user's home is in the workspace's .home, which no exec sees.
const (
	homesDir = ".home"
	homeDir  = "home" // mounted by the sandbox's container
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
		if !isThere(homes, homeDir) {
			if err := p.Unpack(context.Background()); err != nil {
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
		return nil, tree.Failed(err, "the home of workspace %s cannot be used: remove the link or file at %s", p.id,
			path.Join(projectsDir, p.id, homesDir))
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
