package workspace

import (
	"io/fs"
)

// ToolTarget is where the containers of workspaces find the installation's tool skill.
const ToolTarget = "/opt/skill-creator"

// Tool is the installation's tool skill, a directory outside all projects. Its methods are safe for concurrent use.
type Tool interface {
	// Check returns the tool's directory, after it has made sure that docker's way to it leads there and that nothing was changed.
	Check() (fs.FileInfo, error)
	// Mount checks the tool and returns its mount.
	Mount() (Mount, error)
}

// SetTool has the containers of users' workspaces mount the tool; nil: none.
func (w *Workspace) SetTool(t Tool) { w.tool.Store(&t) }

// tool is the installation's tool when the project is a user's workspace, whose containers have it; else nil.
func (p *Project) tool() Tool {
	if _, _, ok := SplitWorkspaceID(p.id); !ok {
		return nil
	}
	if t := p.w.tool.Load(); t != nil {
		return *t
	}
	return nil
}
