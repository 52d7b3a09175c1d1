package workspace

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"secbox/fault"
	"secbox/pathadapter"
	"secbox/workspace/diskspace"
	"secbox/workspace/tree"
)

// Names of directories. Containers see inputs, work and artifacts, and the installation's tool.
const (
	projectsDir  = "projects"
	inputsDir    = "inputs"
	workDir      = "work"
	artifactsDir = "artifacts"
	stagingDir   = ".staging" // beside them, on the same file system, never mounted: where inputs are written before their rename
)

// Options configure a Workspace.
type Options struct {
	Adapter pathadapter.Adapter

	// UID and GID own work/ and artifacts/<exec_id>/: the containers' user. They matter if core-api
	// is root, which alone can change owners. -1: files keep core-api's user.
	UID, GID int

	Now func() time.Time // nil: time.Now

	// MarkEvery is how often the last use of a workspace is written to the disk; 0: every 5
	// minutes. A workspace is idle that much later.
	MarkEvery time.Duration
}

// Workspace is the workspace root. It is safe for concurrent use.
type Workspace struct {
	opts     Options
	projects *os.Root    // <root>/projects
	info     fs.FileInfo // of projects, to notice that the root was replaced

	caseBlind bool // the file system treats A and a as one name

	nonce   string // makes temporary names unique among processes
	counter atomic.Uint64

	creating sync.Mutex // held while a project is made, so that names that differ by case exclude each other

	mu    sync.Mutex
	known map[string]*projectState

	tool atomic.Pointer[Tool] // nil until it is installed

	intact intactFiles // artifacts known to match their manifest
}

// projectState is what this process remembers about a project; it is never dropped.
type projectState struct {
	mu    sync.Mutex
	uses  map[string]*inputUse // by folded path: the inputs of running execs
	swept bool                 // .staging was swept after start

	folders          map[string]fs.FileInfo // checked skill folders, by digest
	sweptSkillInputs bool                   // inputs of invokes were swept after start

	marking sync.Mutex
	marked  time.Time // when this process last wrote the time of use
	settled time.Time // the last use before a call of IfIdle that succeeded

	editing chan struct{} // capacity 1: held by the editor of files in work/
	execs   atomic.Int32  // running commands
	begun   atomic.Int64  // commands started so far
}

// Open makes <root>/projects where it is missing. Its errors carry fault.InvalidSettings when the
// root cannot be used.
func Open(opts Options) (*Workspace, error) {
	root := opts.Adapter.NativeRoot()
	if root == "" {
		return nil, fault.New(fault.InvalidSettings, "sandbox.workspace_root is not set: set it to an absolute directory")
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.MarkEvery == 0 {
		opts.MarkEvery = 5 * time.Minute
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, unusable(root, "cannot be made", err)
	}
	top, err := os.OpenRoot(root)
	if err != nil {
		return nil, unusable(root, "cannot be opened", err)
	}
	defer top.Close()
	if err := tree.MakeDir(top, projectsDir); err != nil {
		return nil, unusable(root, "is not writable", err)
	}
	if opts.UID > 0 {
		tree.KeepPrivate(top, projectsDir)
	}
	projects, info, err := tree.OpenDir(top, projectsDir)
	if err != nil {
		return nil, unusable(root, "has no usable directory projects", err)
	}
	w := &Workspace{
		opts: opts, projects: projects, info: info, nonce: rand.Text(), known: map[string]*projectState{}, intact: newIntactFiles(),
	}
	if other, err := top.Lstat(strings.ToUpper(projectsDir)); err == nil && os.SameFile(info, other) {
		w.caseBlind = true
	}
	if err := w.Writable(); err != nil {
		projects.Close()
		return nil, unusable(root, "is not writable", err)
	}
	return w, nil
}

// Close closes the handle on the root. Projects must not be used afterwards.
func (w *Workspace) Close() error {
	return w.projects.Close()
}

func (w *Workspace) owner() tree.Owner { return tree.Owner{UID: w.opts.UID, GID: w.opts.GID} }

// Options are those that the workspace was opened with, defaults filled in.
func (w *Workspace) Options() Options { return w.opts }

// CaseBlind reports whether the root's file system treats A and a as one name.
func (w *Workspace) CaseBlind() bool { return w.caseBlind }

// Root is the workspace root as this process sees it.
func (w *Workspace) Root() string { return w.opts.Adapter.NativeRoot() }

// Writable creates and removes a small file under the root.
func (w *Workspace) Writable() error {
	name := ".probe-" + w.TempName()
	f, err := w.projects.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = f.Write([]byte{'\n'})
		err = errors.Join(err, f.Close(), w.projects.Remove(name))
	}
	return wrapFailed(err, "the workspace root is not writable: check its owner, its mode and the free space")
}

// Free is the room on the file system of the root.
func (w *Workspace) Free() (diskspace.Space, error) {
	free, err := diskspace.Free(w.Root())
	return free, wrapFailed(err, "cannot read the free space of the workspace root")
}

// Project returns the project with this id and makes its missing directories. Errors:
// fault.InvalidRequest for the id, fault.ProjectNameConflict when it differs from another only by
// case, fault.DiskFull.
func (w *Workspace) Project(id string) (*Project, error) {
	if err := CheckProjectID(id); err != nil {
		return nil, err
	}
	p := &Project{w: w, id: id, state: w.state(id)}
	if w.caseBlind || !w.exists(id) {
		if err := w.create(id); err != nil {
			return nil, err
		}
	}
	p.mark()
	if err := p.prepare(); err != nil {
		return nil, err
	}
	return p, nil
}

// Existing returns a project for reading and makes nothing. For a missing project the error is
// fault.UnknownArtifact around fs.ErrNotExist: callers have a record of an exec, so its directory
// was removed.
func (w *Workspace) Existing(id string) (*Project, error) {
	if err := CheckProjectID(id); err != nil {
		return nil, err
	}
	if !w.exists(id) || w.caseBlind && !w.spelled(id) {
		return nil, fault.Wrap(fault.UnknownArtifact, fs.ErrNotExist, "the project's directory is gone")
	}
	return &Project{w: w, id: id, state: w.state(id)}, nil
}

// checkRoot returns the path of projects/. Commands and docker use the path and this package a
// handle, so both must be the same directory.
func (w *Workspace) checkRoot() (path string, err error) {
	if path, err = w.opts.Adapter.Native(projectsDir); err != nil {
		return "", tree.Failed(err, "the workspace root cannot be used")
	}
	if now, err := os.Lstat(path); err != nil || !now.IsDir() || !os.SameFile(now, w.info) {
		return "", tree.Failed(err, "%s is not the directory that it was when core-api started: restart core-api", path)
	}
	return path, nil
}

func (w *Workspace) exists(id string) bool {
	_, err := w.projects.Lstat(id)
	return err == nil
}

// spelled reports whether a directory has exactly this name; on a case-blind file system Lstat
// accepts other spellings.
func (w *Workspace) spelled(id string) bool {
	found := false
	_ = tree.EachName(w.projects, func(name string) error {
		found = found || name == id
		return nil
	})
	return found
}

func (w *Workspace) create(id string) error {
	w.creating.Lock()
	defer w.creating.Unlock()
	return MakeNamed(w.projects, id, "project_id", "a project", w.caseBlind)
}

func (w *Workspace) state(id string) *projectState {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.known[id]
	if s == nil {
		s = &projectState{uses: map[string]*inputUse{}, editing: make(chan struct{}, 1)}
		w.known[id] = s
	}
	return s
}

// TempName returns a name that no other process uses.
func (w *Workspace) TempName() string {
	return w.nonce + "-" + strconv.FormatUint(w.counter.Add(1), 36)
}

func unusable(root, what string, err error) error {
	if err != nil {
		what += " (" + fault.Reason(err) + ")"
	}
	return fault.Wrap(fault.InvalidSettings, err,
		"the workspace root %s %s: make it a directory that the user running core-api may write, or choose another", root, what)
}

// damaged wraps an error about a project's directory: fault.ProjectDamaged for a link or file in
// its place, which the user must remove.
func damaged(err error, format string, args ...any) error {
	if errors.Is(err, tree.ErrNotDir) {
		return fault.Wrap(fault.ProjectDamaged, err, format, args...)
	}
	return tree.Failed(err, format, args...)
}

// WorkspaceUsers returns the users that have a workspace, by agent.
func (w *Workspace) WorkspaceUsers() (map[string][]string, error) {
	users := map[string][]string{}
	err := tree.EachName(w.projects, func(name string) error {
		if agent, user, ok := SplitWorkspaceID(name); ok && CheckProjectID(name) == nil {
			users[agent] = append(users[agent], user)
		}
		return nil
	})
	if err != nil {
		return nil, tree.Failed(err, "the projects cannot be listed")
	}
	for _, of := range users {
		slices.Sort(of)
	}
	return users, nil
}
