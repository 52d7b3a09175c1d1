package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"secbox/engine/attach"
)

// workspaceTarget is the directory of a container that has those of its project.
const workspaceTarget = "/workspace"

// points are the mounts of a container that can serve any project: the directories of an exec are attached at them when it takes the container.
type points struct {
	targets []string // in the container
	at      []*attach.Point
	log     *slog.Logger
}

// newPoints makes the points of a container that needs these targets beside /workspace. Like the image, /workspace has the project's directories,
// empty.
func newPoints(base *attach.Base, id string, targets []string, log *slog.Logger) (*points, error) {
	targets = append([]string{workspaceTarget}, targets...)
	p := &points{targets: targets, log: log}
	for i, target := range targets {
		var dirs []string
		if target == workspaceTarget {
			dirs = []string{"inputs", "work", "artifacts"}
		}
		point, err := base.NewPoint(fmt.Sprintf("%s-%d", id, i), dirs...)
		if err != nil {
			p.remove()
			return nil, err
		}
		p.at = append(p.at, point)
	}
	return p, nil
}

// arguments are the docker arguments of the mounts.
func (p *points) arguments() (args []string) {
	for i, point := range p.at {
		args = append(args, "--mount", "type=bind,source="+point.Path()+",target="+p.targets[i]+",readonly,bind-propagation=rslave")
	}
	return args
}

// attach attaches the directories of an exec. After an error it has attached none.
func (p *points) attach(set MountSet) error {
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
	for i, target := range p.targets {
		var dirs []attach.Dir
		for n, m := range set.Mounts {
			if m.Target == target {
				dirs = append(dirs, attach.Dir{From: open[n], ReadOnly: m.ReadOnly})
			} else if name, below := strings.CutPrefix(m.Target, target+"/"); below {
				dirs = append(dirs, attach.Dir{Name: name, From: open[n], ReadOnly: m.ReadOnly})
			}
		}
		if len(dirs) == 0 {
			continue
		}
		if err := p.at[i].Attach(dirs...); err != nil {
			p.detach()
			return err
		}
	}
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// detach takes the exec's directories away from the container, whatever its state. It must precede every read of what the job has left.
func (p *points) detach() {
	if p == nil {
		return
	}
	for _, point := range p.at {
		if err := point.Detach(); err != nil {
			p.log.Error("a directory cannot be detached from a container; the next start tries again", "error", err)
		}
	}
}

// remove ends the use of the points. The container is gone, or will be removed.
func (p *points) remove() {
	if p == nil {
		return
	}
	for _, point := range p.at {
		if err := point.Remove(); err != nil {
			p.log.Error("the mounts of a container cannot be removed; the next start tries again", "error", err)
		}
	}
}
