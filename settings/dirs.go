package settings

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"secbox/fault"
)

// home determines the default directories.
type home struct {
	goos string
	root bool
	env  map[string]string
}

// fillDirs sets the directories that are not configured, and cleans the others. They stay empty
// when the environment does not name the user's folders.
func fillDirs(s *Settings, h home) {
	if s.StateDir == "" {
		s.StateDir = h.stateDir()
	}
	if s.Sandbox.WorkspaceRoot == "" {
		s.Sandbox.WorkspaceRoot = h.workspaceRoot()
	}
	// Clean, since the kernel and this package would resolve a ".." after a link differently.
	for _, dir := range []*string{&s.StateDir, &s.Sandbox.WorkspaceRoot, &s.Sandbox.SkillsDir} {
		if filepath.IsAbs(*dir) {
			*dir = filepath.Clean(*dir)
		}
	}
}

func (h home) stateDir() string {
	user := h.env["HOME"]
	switch {
	case h.goos == "windows":
		return below(h.env["LOCALAPPDATA"], `\secbox`)
	case h.root:
		return "/var/lib/secbox"
	case h.goos == "darwin":
		return below(user, "/Library/Application Support/secbox")
	case path.IsAbs(h.env["XDG_STATE_HOME"]): // its specification says to ignore a relative one
		return path.Join(h.env["XDG_STATE_HOME"], "secbox")
	}
	return below(user, "/.local/state/secbox")
}

func (h home) workspaceRoot() string {
	switch {
	case h.goos == "windows":
		return below(h.env["USERPROFILE"], `\secbox-workspace`)
	case h.root:
		return "/var/lib/secbox-workspace" // beside the state dir, never in it
	}
	return below(h.env["HOME"], "/secbox-workspace")
}

// below appends rest to the folder; empty when the folder is not known.
func below(folder, rest string) string {
	if folder == "" {
		return ""
	}
	return strings.TrimRight(folder, `/\`) + rest
}

// CheckApart makes sure that neither directory is in the other, by name or through links, so that
// no container can be given private files of core-api. Neither needs to exist yet; call it again
// once both do, since a link could have been created meanwhile.
func CheckApart(stateDir, workspaceRoot string) error {
	state, err := resolve(stateDir)
	if err != nil {
		return unreachable("state_dir", stateDir, err)
	}
	workspace, err := resolve(workspaceRoot)
	if err != nil {
		return unreachable("sandbox.workspace_root", workspaceRoot, err)
	}
	switch {
	case within(state, workspace) && within(workspace, state):
		return fault.New(fault.InvalidSettings, "state_dir %s and the workspace root %s are one directory; containers would see the "+
			"audit database: choose two separate directories", stateDir, workspaceRoot)
	case within(state, workspace):
		return fault.New(fault.InvalidSettings, "state_dir %s is under the workspace root %s; containers could be given the audit "+
			"database: choose two separate directories", stateDir, workspaceRoot)
	case within(workspace, state):
		return fault.New(fault.InvalidSettings, "the workspace root %s is under state_dir %s; containers could be given its other files: "+
			"choose two separate directories", workspaceRoot, stateDir)
	}
	return nil
}

// unreachable is the error for a directory whose links cannot be followed.
func unreachable(key, dir string, err error) error {
	bad := fault.Field{Field: key, Reason: dir + " cannot be reached: " + fault.Reason(err) +
		"; use a directory that can be reached or created"}
	return &fault.Error{Code: fault.InvalidSettings, Message: bad.Field + ": " + bad.Reason, Fields: []fault.Field{bad}, Err: err}
}

// CheckSkillsDir makes sure that sandbox.skills_dir is separate from the workspace root, where
// containers write, and from the state dir, whose files no skill may bring into a container. None
// of them needs to exist yet.
func CheckSkillsDir(skillsDir, stateDir, workspaceRoot string) error {
	skills, err := resolve(skillsDir)
	if err != nil {
		return unreachable("sandbox.skills_dir", skillsDir, err)
	}
	for _, other := range []struct{ name, dir, why string }{
		{"the workspace root", workspaceRoot, "a container could write itself a skill"},
		{"state_dir", stateDir, "a skill could bring its files into a container"},
	} {
		dir, err := resolve(other.dir)
		if err != nil {
			return fault.Wrap(fault.InvalidSettings, err, "cannot resolve %s %s; use a directory that can be reached", other.name,
				other.dir)
		}
		if within(skills, dir) || within(dir, skills) {
			return fault.New(fault.InvalidSettings, "sandbox.skills_dir %s and %s %s overlap, so %s: choose two separate directories",
				skillsDir, other.name, other.dir, other.why)
		}
	}
	return nil
}

// resolve follows the links of as much of the path as exists, and cleans the rest.
func resolve(dir string) (string, error) {
	dir = filepath.Clean(dir)
	rest := ""
	for at := dir; ; {
		real, err := filepath.EvalSymlinks(at)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if info, err := os.Lstat(at); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return "", errors.New(at + " is a dangling link") // its target could be created anywhere
		}
		parent := filepath.Dir(at)
		if parent == at {
			return dir, nil
		}
		rest = filepath.Join(filepath.Base(at), rest)
		at = parent
	}
}

// within reports whether dir is the other one or is under it: by name, and where they exist by
// identity, which also finds names that differ only by case, and bind mounts of the whole
// directory.
func within(dir, other string) bool {
	if rel, err := filepath.Rel(other, dir); err == nil && filepath.IsLocal(rel) {
		return true
	}
	otherInfo, err := os.Stat(other)
	if err != nil {
		return false
	}
	for at := dir; ; at = filepath.Dir(at) {
		if info, err := os.Stat(at); err == nil && os.SameFile(info, otherInfo) {
			return true
		}
		if at == filepath.Dir(at) {
			return false
		}
	}
}
