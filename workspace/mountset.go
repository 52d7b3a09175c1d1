package workspace

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/workspace/tree"
)

// MountSet is the directories that one exec's container mounts, prepared before the exec runs. A
// container may wait with them for minutes, so a MountSet remembers which directories they were.
type MountSet struct {
	Mounts []Mount

	project *Project
	execID  string
	seen    directories
}

// PrepareMounts makes artifacts/<exec_id>/ and returns the mounts of the exec's container. The
// project's directories must exist; see Workspace.Project.
func (p *Project) PrepareMounts(execID string, a Access) (*MountSet, error) {
	if err := p.NewArtifacts(execID); err != nil {
		return nil, err
	}
	s := &MountSet{project: p, execID: execID}
	var err error
	if s.Mounts, err = p.Mounts(execID, a); err == nil {
		s.seen, err = s.directories()
	}
	if err != nil {
		_ = p.DropUnused(execID)
		return nil, err
	}
	return s, nil
}

// Intact reports whether the directories are still the prepared ones. A directory that was removed
// and made again has the same path, but a waiting container would write into the removed one.
func (s *MountSet) Intact() bool {
	now, err := s.directories()
	return err == nil && now.equal(s.seen)
}

// Open opens the directories of Mounts, in their order, if they are still the prepared ones. The
// caller closes them.
func (s *MountSet) Open() (_ []*os.File, err error) {
	root, err := s.project.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var open []*os.File
	defer func() {
		if err != nil {
			for _, f := range open {
				f.Close()
			}
		}
	}()
	for _, m := range s.Mounts {
		f, err := s.project.openMount(root, m.Target, s.execID)
		if err != nil {
			return open, err
		}
		open = append(open, f)
	}
	// An open directory keeps its inode number: one that has the place and the number of the
	// prepared one now is the opened one.
	if !s.Intact() {
		return open, s.swapped(nil)
	}
	for i, m := range s.Mounts {
		n := s.index(m.Target)
		if fi, err := open[i].Stat(); err != nil || n >= len(s.seen.infos) || !os.SameFile(fi, s.seen.infos[n]) {
			return open, s.swapped(err)
		}
	}
	return open, nil
}

// Staging opens the project's directory for files that get their place when they are complete. No
// container mounts it.
func (s *MountSet) Staging() (*os.Root, error) {
	staging, err := host{s.project}.Staging()
	return staging, wrapFailed(err, "the project %s has no room to work in", s.project.id)
}

func (s *MountSet) swapped(err error) error {
	return fault.Wrap(fault.ProjectDamaged, errors.Join(err, tree.ErrSwapped),
		"a directory of project %s was removed or replaced while an exec was starting: run it again", s.project.id)
}

// openMount opens the directory that a target of Mounts stands for.
func (p *Project) openMount(root *os.Root, target, execID string) (*os.File, error) {
	if target == ToolTarget {
		tool := p.tool()
		if tool == nil {
			return nil, fault.New(fault.Internal, "the tool of users' workspaces is no longer installed")
		}
		return tool.Open()
	}
	name := strings.TrimPrefix(target, "/workspace/")
	dir, err := p.openDir(root, name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if name == artifactsDir {
		artifacts := dir
		if dir, err = p.openDir(artifacts, execID); err != nil {
			return nil, err
		}
		defer dir.Close()
	}
	return dir.Open(".")
}

// Drop removes the artifacts directory of an exec that never ran, if it is empty and still the
// prepared one: another node may have made a new one in its place. A missing one is not an error.
func (s *MountSet) Drop() error {
	if now, err := s.project.directories(s.names()[artifactsIndex]); err == nil && !now.equal(s.seen.at(artifactsIndex)) {
		return nil
	}
	return s.project.DropUnused(s.execID)
}

func (s *MountSet) directories() (directories, error) {
	seen, err := s.project.directories(s.names()...)
	if tool := s.project.tool(); tool != nil && err == nil {
		var fi fs.FileInfo
		if fi, err = tool.Check(); err == nil {
			seen.infos = append(seen.infos, fi)
		}
	}
	return seen, err
}

func (s *MountSet) names() []string {
	return []string{".", inputsDir, workDir, artifactsDir, artifactsDir + "/" + s.execID}
}

// artifactsIndex is the index of the exec's own directory among names.
const artifactsIndex = 4

// index is the index of a target's directory among directories.
func (s *MountSet) index(target string) int {
	names := s.names()
	switch name := strings.TrimPrefix(target, "/workspace/"); name {
	case ToolTarget:
		return len(names)
	case artifactsDir:
		return artifactsIndex
	default:
		return slices.Index(names, name)
	}
}

// directories identify directories beyond their paths. A mounted directory keeps its inode number;
// before a container has mounted it, a new directory may get the number of a removed one. So the
// creation time counts too, where the file system has one.
type directories struct {
	infos []fs.FileInfo
	made  []int64
}

func (d directories) equal(other directories) bool {
	return slices.Equal(d.made, other.made) && slices.EqualFunc(d.infos, other.infos, os.SameFile)
}

// at is the directory with an index.
func (d directories) at(i int) directories { return directories{d.infos[i : i+1], d.made[i : i+1]} }

// directories identifies directories of the project.
func (p *Project) directories(names ...string) (directories, error) {
	root, err := p.open()
	if err != nil {
		return directories{}, err
	}
	defer root.Close()
	var seen directories
	for _, name := range names {
		fi, err := root.Lstat(name)
		if err != nil {
			return directories{}, tree.Failed(err, "a directory of project %s is gone", p.id)
		}
		seen.infos = append(seen.infos, fi)
	}
	seen.made = tree.Births(root, names)
	return seen, nil
}
