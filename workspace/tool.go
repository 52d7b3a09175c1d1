package workspace

import (
	"io/fs"
	"os"
)

// ToolTarget is the path of the installation's tool skill in the containers of users' workspaces.
const ToolTarget = "/opt/skill-creator"

// Tool is the installation's tool skill, a directory outside all projects. Its methods are safe for
// concurrent use.
type Tool interface {
	// Check returns the tool's directory, if docker's path leads to it and nothing in it was
	// changed.
	Check() (fs.FileInfo, error)
	// Mount checks the tool and returns its mount.
	Mount() (Mount, error)
	// Open checks the tool and opens its directory.
	Open() (*os.File, error)
}

// SetTool mounts the tool in the containers of users' workspaces; nil: none.
func (w *Workspace) SetTool(t Tool) { w.tool.Store(&t) }

// tool returns the tool if the project is a user's workspace; else nil.
func (p *Project) tool() Tool {
	if _, _, ok := SplitWorkspaceID(p.id); !ok {
		return nil
	}
	if t := p.w.tool.Load(); t != nil {
		return *t
	}
	return nil
}
