package server

import (
	"context"
	"io/fs"
	"time"

	"secbox/fault"
	"secbox/internal/buildinfo"
	"secbox/mcp/tools"
	"secbox/packages/archive"
	"secbox/packages/catalog"
	"secbox/packages/library"
	"secbox/policy"
	"secbox/runner/lifecycle"
	"secbox/sandbox"
	"secbox/sandbox/docker"
	"secbox/sandbox/files"
	"secbox/sandbox/none"
	"secbox/sandbox/record"
	"secbox/sandbox/remote"
	"secbox/sandbox/remote/relay"
	"secbox/skills"
	"secbox/workspace"
)

// sandboxes are the users' sandboxes: a record of every command around the router.
type sandboxes struct {
	*record.Recorder
	router   *sandbox.Router
	machines *relay.Machines
}

func (s *sandboxes) Chosen(ctx context.Context, userID string) (sandbox.Choice, error) {
	return s.router.Chosen(ctx, userID)
}

func (s *sandboxes) Choose(ctx context.Context, choice sandbox.Choice) (sandbox.Choice, error) {
	return s.router.Choose(ctx, choice)
}

func (s *sandboxes) Backends() []string { return s.router.Backends() }

// newSandboxes enables the backends docker and remote, and none if the settings allow it.
func (s *Server) newSandboxes(observer lifecycle.Observer) (*sandboxes, error) {
	cfg := s.settings.Sandboxes
	tool, err := s.deps.versions.Tool().Dir()
	if err != nil {
		return nil, err
	}
	readOnly := []sandbox.ReadOnlyRoot{{
		Path: workspace.ToolTarget, Link: sandbox.Root + "/" + library.ToolLink, Dir: tool.Path,
		Mount: tool.Mount,
	}}
	all := &sandboxes{}
	connected := relay.Config{NodeID: s.state.NodeID(), Config: remote.Config{
		Log: s.log, Now: time.Now, Version: buildinfo.Version, Valid: s.tokens.Valid,
		Heartbeat: seconds(cfg.HeartbeatSeconds), Grace: seconds(cfg.RunnerGraceSeconds),
		Late: func(ctx context.Context, user sandbox.User, execID string, result sandbox.ExecResult) error {
			return all.Late(ctx, user, execID, result)
		},
		ReadOnlyRoots: []string{workspace.ToolTarget},
	}}
	if s.peers != nil { // a nil *peer.Peers in an interface would not be nil
		connected.Peers, connected.OnRecord = s.peers, s.onRecord
	}
	all.machines = relay.New(connected)
	backends := []sandbox.Backend{
		docker.New(docker.Config{
			Directories: withSkills{s, workspace.ToolTarget}, Workspace: s.workspace, Engine: s.cold, Images: s.deps.Own,
			Container: s.userContainer, Disk: s.disk, IdleFor: seconds(cfg.IdleSeconds), Max: cfg.MaxContainers,
			MaxPerToken: cfg.MaxContainersPerToken, ReadOnlyRoots: readOnly, Log: s.log, Now: time.Now,
		}),
		all.machines,
	}
	if cfg.None {
		backends = append(backends, none.New(none.Config{
			Directories: withSkills{s, tool.Path}, ReadOnly: readOnly, Environ: s.environ,
			Room: s.disk.Room,
		}))
		s.log.Warn("the sandbox backend none is allowed: users who choose it run commands on this machine, as the user that runs core-api")
	}
	if all.router, err = sandbox.NewRouter(sandbox.RouterConfig{
		Backends: backends, Default: cfg.Backend,
		Choices: s.db.Sandboxes(),
	}); err != nil {
		return nil, err
	}
	all.Recorder = record.New(record.Config{
		Sandbox: all.router, Log: s.audit, Policy: s.deps.policy, Host: s.checker.Host, NodeID: s.state.NodeID(), Key: s.key, Now: time.Now,
		NewID:  NewID,
		Logger: s.log, Observer: observer, Tracer: s.tracer, Network: s.network,
		Changed: func(c sandbox.Change) {
			if catalog.Holds(c.Path) {
				s.catalog.InvalidateCache(c.User)
			}
		},
		Enter: func(ctx context.Context, l sandbox.Location) (func(), error) {
			traits := sandbox.TraitsOf(l.Backend)
			if traits.UserMachine {
				return func() {}, nil
			}
			project, err := s.workspace.Project(l.User.ProjectID())
			if err != nil {
				return nil, err
			}
			leave := project.BeginExec()
			if !traits.Unconfined { // its directory is opened for a container, not for every command
				err = s.materialise(ctx, l.User.ProjectID())
			}
			if err != nil {
				leave()
				return nil, err
			}
			return leave, nil
		},
	})
	return all, nil
}

// withSkills opens users' workspaces with all skills of the user in them.
type withSkills struct {
	server  *Server
	toolDir string // where commands of the sandbox find the installation's own skill
}

// Open implements sandbox.Directories.
func (w withSkills) Open(ctx context.Context, user sandbox.User) (*sandbox.Directory, error) {
	dir, err := files.Workspaces{Workspace: w.server.workspace}.Open(ctx, user)
	if err != nil {
		return nil, err
	}
	if err := w.server.library.MaterialiseAll(ctx, library.Owner{AgentID: user.AgentID, UserID: user.ID}, w.toolDir); err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// userContainer describes a user's container: it has the policy of an exec without overrides.
func (s *Server) userContainer() docker.Container {
	snapshot, err := s.deps.policy.Resolve(nil, policy.Layer{}, s.checker.Host())
	v := snapshot.Values
	if err != nil { // cannot happen: the settings were checked against their ceilings
		s.log.Error("cannot resolve the policy of users' containers", "error", err)
		v = policy.Defaults()
	}
	c := docker.Container{
		Image: v.Image, Limits: v.ContainerLimits, User: s.deps.User, Runtime: v.Runtime,
	}
	switch work := v.MountModes().Work; work {
	case policy.ReadWrite:
	case policy.ReadOnly:
		c.ReadOnly = true
	default:
		c.Refused = fault.New(fault.PolicyDenied,
			"the policy in the settings hides the workspace from every command: add %s to fs.read or fs.write", policy.PatternWork)
	}
	return c
}

// toolSession begins the work of an agent's session in a user's sandbox; nil when the project is
// not a user's workspace.
func (s *Server) toolSession(projectID string) *tools.Session {
	agent, user, ok := workspace.SplitWorkspaceID(projectID)
	if !ok {
		return nil
	}
	of := sandbox.User{AgentID: agent, ID: user}
	return tools.NewSession(s.sandboxes.Recorder, of, catalogSkills{s.deps.skills, s.creator}).WithRegistry(s.published, s.catalog).
		WithPackages(userSkills{s.library, library.Owner{AgentID: agent, UserID: user}}).
		WithResults(s.results.Begin(of)).WithFeishu(s.feishu)
}

// userSkills are a user's packages on this side.
type userSkills struct {
	library *library.Library
	owner   library.Owner
}

// Files implements tools.Packages.
func (u userSkills) Files(ctx context.Context, skill string) ([]string, error) {
	list, err := u.library.Files(ctx, u.owner, skill)
	return list, missing(err)
}

// Read implements tools.Packages.
func (u userSkills) Read(ctx context.Context, skill, file string) ([]byte, error) {
	content, err := u.library.Read(ctx, u.owner, skill, file)
	return content, missing(err)
}

// missing returns fs.ErrNotExist for a skill or a file that does not exist.
func missing(err error) error {
	if fault.Is(err, fault.UnknownSkill) || fault.Is(err, fault.UnknownFile) {
		return fs.ErrNotExist
	}
	return err
}

// catalogSkills are the skills that agents can read: the catalog's skills, and skill-creator.
type catalogSkills struct {
	catalog *skills.Catalog
	creator fs.FS
}

// Names returns the ids of the skills.
func (c catalogSkills) Names() (ids []string) {
	for _, skill := range c.catalog.Now().Skills() {
		ids = append(ids, skill.ID())
	}
	return append(ids, archive.ReservedID)
}

// Open returns the folder of a skill; nil: there is none with this id.
func (c catalogSkills) Open(id string) fs.FS {
	if id == archive.ReservedID {
		return c.creator
	}
	skill, err := c.catalog.Now().Get(id)
	if err != nil {
		return nil
	}
	return skill.FS()
}
