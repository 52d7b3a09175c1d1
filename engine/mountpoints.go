package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"secbox/engine/attach"
)

// workspaceTarget is the directory of a container in which the project's directories are.
const workspaceTarget = "/workspace"

// mountPoints are the mounts of a container that can serve any project: the directories of an exec
// are attached at them when it takes the container.
type mountPoints struct {
	targets []string // in the container
	at      []*attach.Point
	log     *slog.Logger
}

// newMountPoints makes the points of a container that needs these targets beside /workspace. Like
// the image, /workspace has the project's directories, empty, and all belong to the user.
func newMountPoints(base *attach.Base, id, user string, targets []string, log *slog.Logger) (*mountPoints, error) {
	targets = append([]string{workspaceTarget}, targets...)
	p := &mountPoints{targets: targets, log: log}
	for i, target := range targets {
		var dirs []string
		if target == workspaceTarget {
			dirs = []string{"inputs", "work", "artifacts"}
		}
		point, err := base.NewPoint(fmt.Sprintf("%s-%d", id, i), dirs...)
		if err == nil {
			p.at = append(p.at, point)
			if target == workspaceTarget {
				err = giveTo(user, point.Path(), dirs...)
			}
		}
		if err != nil {
			p.remove()
			return nil, err
		}
	}
	return p, nil
}

// giveTo makes dir and these directories in it the user's, uid:gid.
func giveTo(user, dir string, names ...string) error {
	uid, gid, _ := strings.Cut(user, ":")
	u, err := strconv.Atoi(uid)
	if err != nil {
		return fmt.Errorf("the user %q must be a number", user)
	}
	g, err := strconv.Atoi(gid)
	if err != nil {
		g = -1
	}
	for _, name := range append(names, "") {
		if err := os.Chown(filepath.Join(dir, name), u, g); err != nil {
			return err
		}
	}
	return nil
}

// arguments are the docker arguments of the mounts.
func (p *mountPoints) arguments() (args []string) {
	for i, point := range p.at {
		args = append(args, "--mount", "type=bind,source="+point.Path()+",target="+p.targets[i]+",readonly,bind-propagation=rslave")
	}
	return args
}

// attach attaches the directories of an exec. After an error none is attached, unless detach fails,
// too.
func (p *mountPoints) attach(set MountSet) error {
	if len(set.Mounts) == 0 {
		return nil
	}
	if set.Open == nil {
		return errors.New("they can be mounted only when a container is started")
	}
	open, err := set.Open()
	if err != nil {
		return err
	}
	defer closeAll(open)
	dirs, err := p.dirs(set.Mounts, open)
	if err != nil {
		return err
	}
	for i, point := range p.at {
		if len(dirs[i]) == 0 {
			continue
		}
		if err := point.Attach(dirs[i]...); err != nil {
			p.detach()
			return err
		}
	}
	return nil
}

// dirs are the directories of mounts for each of the points.
func (p *mountPoints) dirs(mounts []Mount, open []*os.File) ([][]attach.Dir, error) {
	dirs := make([][]attach.Dir, len(p.at))
	for n, m := range mounts {
		i := slices.IndexFunc(p.targets, func(target string) bool { return strings.HasPrefix(m.Target+"/", target+"/") })
		if i < 0 {
			return nil, fmt.Errorf("the container has no point for %s", m.Target)
		}
		name := strings.TrimPrefix(strings.TrimPrefix(m.Target, p.targets[i]), "/")
		dirs[i] = append(dirs[i], attach.Dir{Name: name, From: open[n], ReadOnly: m.ReadOnly})
	}
	return dirs, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// detach takes the exec's directories away from the container, whatever its state. It must precede
// every read of what the job has left. It reports whether none is attached now.
func (p *mountPoints) detach() bool {
	if p == nil {
		return true
	}
	detached := true
	for _, point := range p.at {
		if err := point.Detach(); err != nil {
			detached = false
			p.log.Error("a directory cannot be detached from a container; the next start tries again", "error", err)
		}
	}
	return detached
}

// remove ends the use of the points. The container is gone, or will be removed.
func (p *mountPoints) remove() {
	if p == nil {
		return
	}
	for _, point := range p.at {
		if err := point.Remove(); err != nil {
			p.log.Error("the mounts of a container cannot be removed; the next start tries again", "error", err)
		}
	}
}
