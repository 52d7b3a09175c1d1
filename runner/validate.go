package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"secbox/audit"
	"secbox/engine/initproto"
	"secbox/fault"
	"secbox/workspace"
)

// The directories of the project, in a container.
const (
	inputsDir    = "/workspace/inputs"
	workDir      = "/workspace/work"
	artifactsDir = "/workspace/artifacts"
)

// Bounds of a command, in bytes. Linux allows 128 KiB for one argument or variable with its NUL
// (MAX_ARG_STRLEN), and a quarter of the 8 MiB stack for all of them, pointers included.
const (
	MaxArg     = 128<<10 - 1
	maxCommand = 1536 << 10
	maxStdin   = 32 << 20
	maxLabel   = 255 // of ids that clients choose freely
	maxPath    = 4096
)

// refusedEnv are prefixes of names that platforms use for their secrets and addresses.
var refusedEnv = []string{"KUBERNETES_", "SERVICE_", "SECRET_"}

// normalise checks all of a request that can be checked without disk, database or engine, and fills
// in the fields that follow from others. Its error names every wrong field.
func normalise(req Request) (Request, error) {
	var bad problems
	named := "project_id" // the field with the project
	if req.ProjectID == "" && req.ConversationID != "" {
		req.ProjectID, named = req.ConversationID, "conversation_id"
	}
	if req.ProjectID == "" {
		bad.Add("project_id", "is missing; name a project, or give a conversation_id to serve as one")
	} else if err := workspace.CheckProjectID(req.ProjectID); err != nil {
		for _, f := range fault.From(err).Fields {
			bad.Add(named, "%s", f.Reason)
		}
	}
	for field, value := range map[string]string{
		"conversation_id": req.ConversationID, "user_id": req.UserID, "task_ref.task_id": req.TaskID,
		"skill_id": req.SkillID, "image": req.Image,
	} {
		bad.label(field, value)
	}
	bad.owner(&req)
	bad.command(req)
	bad.context(req)
	bad.terminal(req)
	bad.env(req.Command.Env)
	if cwd, err := req.Command.cleanCwd(); err != nil {
		bad.Add("exec.cwd", "%s", err)
	} else {
		req.Command.Cwd = cwd
	}
	bad.inputs(&req)
	if req.Image != "" {
		if req.Overrides.Image != nil && *req.Overrides.Image != req.Image {
			bad.Add("image", "differs from policy_overrides.image; give one of them")
		}
		req.Overrides.Image = &req.Image
	}
	return req, bad.Err()
}

// owner derives agent and user from a workspace's id; if the request names them, they must agree.
func (p *problems) owner(req *Request) {
	agent, user, ok := workspace.SplitWorkspaceID(req.ProjectID)
	if !ok {
		return
	}
	if req.UserID != "" && req.UserID != user {
		p.Add("user_id", "is %q, but the project is the workspace of user %q", req.UserID, user)
	}
	if req.AgentID != "" && req.AgentID != agent {
		p.Add("agent_id", "is %q, but the project is a workspace of agent %q", req.AgentID, agent)
	}
	req.AgentID, req.UserID = agent, user
}

// inputs cleans the paths of inputs and refuses paths that no project can have.
func (p *problems) inputs(req *Request) {
	paths := make([]string, len(req.Inputs))
	for i := range req.Inputs {
		paths[i] = req.Inputs[i].Path
	}
	clean, err := workspace.CheckInputs(paths)
	if err != nil {
		p.Merge(err)
		return
	}
	req.Inputs = slices.Clone(req.Inputs)
	for i := range clean {
		req.Inputs[i].Path = clean[i]
	}
}

func (p *problems) command(req Request) {
	c := req.Command
	switch {
	case req.Skill != nil: // the manifest has the command, and was checked when it was loaded
	case c.Kind == KindArgv && c.Name != "":
	case c.Kind == KindShell && c.Name != "bash":
		p.Add("exec.command", "is %q; kind shell runs \"bash\"", c.Name)
	case c.Kind == KindPython && c.Name != "python":
		p.Add("exec.command", "is %q; kind python runs \"python\"", c.Name)
	case c.Kind == KindShell:
		if len(c.Args) < 2 || c.Args[0] != "-lc" && c.Args[0] != "-c" {
			p.Add("exec.args", `must be ["-lc", SCRIPT, …] or ["-c", SCRIPT, …] for kind shell; or give exec.script alone`)
		}
	case c.Kind == KindPython:
		p.pythonArgs(c.Args)
	default:
		p.Add("exec.kind", "is %q; allowed are shell and python", c.Kind)
	}
	total := len(c.Name)
	for i, arg := range c.Args {
		total += len(arg) + 9
		switch field := fmt.Sprintf("exec.args[%d]", i); {
		case strings.ContainsRune(arg, 0):
			p.Add(field, "contains a NUL, which no argument can")
		case len(arg) > MaxArg:
			p.Add(field, "has %d bytes; an argument takes at most %d: put it into an input file", len(arg), MaxArg)
		}
	}
	for name, value := range c.Env {
		total += len(name) + len(value) + 10
	}
	if total > maxCommand {
		p.Add("exec", "arguments and environment have %d bytes together, at most %d are possible: use input files", total, maxCommand)
	}
	if len(c.Stdin) > maxStdin {
		p.Add("exec.stdin", "has %d bytes, at most %d are allowed: use an input file", len(c.Stdin), maxStdin)
	}
}

// context checks the command of an interpreter.
func (p *problems) context(req Request) {
	c := req.Command
	switch {
	case c.Context == "":
	case req.SessionID == "":
		p.Add("exec.context", "needs a session_id; contexts are a session's")
	case req.Background:
		p.Add("exec.context", "cannot be combined with background; the execs of a context take turns")
	case len(c.Args) != 2 || c.Args[0] != "-c" && c.Args[0] != "-lc" && c.Args[0] != CodeFile:
		p.Add("exec.context", "needs exec.code or exec.script alone")
	case c.Cwd != "" || len(c.Env) > 0 || len(c.Stdin) > 0:
		p.Add("exec.context", "cannot be combined with cwd, env and stdin, which a context keeps; set them in the code")
	}
	p.label("exec.context", c.Context)
}

func (p *problems) terminal(req Request) {
	c := req.Command
	switch {
	case c.Terminal == nil:
		return
	case c.Context != "":
		p.Add("exec.tty", "cannot be combined with context, whose interpreter has no terminal")
	case len(c.Stdin) > 0:
		p.Add("exec.tty", "cannot be combined with stdin; type it into the terminal")
	}
	if !c.Terminal.Valid() {
		p.Add("exec.tty", "must have cols and rows from 1 to %d", initproto.MaxTerminal)
	}
	switch c.Terminal.Record {
	case "", audit.RecordAll, audit.RecordOutput:
	default:
		p.Add("exec.tty_record", "must be %s or %s", audit.RecordAll, audit.RecordOutput)
	}
}

func (p *problems) pythonArgs(args []string) {
	if len(args) >= 2 && (args[0] == "-c" || args[0] == CodeFile) {
		return
	}
	if len(args) >= 1 && strings.HasPrefix(args[0], "/workspace/") {
		if _, err := cleanCwd(args[0]); err == nil && path.Clean(args[0]) == args[0] {
			return
		}
	}
	p.Add("exec.args", `must be ["-c", CODE, …] or ["/workspace/inputs/FILE.py", …] for kind python; or give exec.code alone`)
}

func (p *problems) env(env map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		field := "exec.env." + name
		switch {
		case name == "":
			p.Add("exec.env", "has a variable without a name")
		case strings.ContainsAny(name, "=\x00"):
			p.Add(field, "a variable's name cannot contain '=' or a NUL")
		case len(name) > maxLabel:
			p.Add("exec.env", "a variable's name has %d bytes, at most %d are allowed", len(name), maxLabel)
		case strings.ContainsRune(env[name], 0):
			p.Add(field, "the value contains a NUL, which no variable can")
		case len(name)+len(env[name])+1 > MaxArg:
			p.Add(field, "has %d bytes; a variable takes at most %d: use an input file", len(name)+len(env[name])+1, MaxArg)
		}
		for _, prefix := range refusedEnv {
			if strings.HasPrefix(strings.ToUpper(name), prefix) {
				p.Add(field, "names that begin with %s are refused; choose another", prefix)
			}
		}
	}
}

// cleanCwd is cleanCwd for the command. Only KindArgv may name the installation's tool, which is
// mounted into workspaces only.
func (c Command) cleanCwd() (string, error) {
	if c.Kind == KindArgv && c.Cwd == workspace.ToolTarget {
		return c.Cwd, nil
	}
	return cleanCwd(c.Cwd)
}

// cleanCwd returns the working directory in its shortest form; empty is work/.
func cleanCwd(cwd string) (string, error) {
	if cwd == "" {
		return workDir, nil
	}
	clean := path.Clean(cwd)
	inside := false
	for _, dir := range []string{workDir, inputsDir, artifactsDir} {
		inside = inside || clean == dir || strings.HasPrefix(clean, dir+"/")
	}
	switch {
	case strings.ContainsRune(cwd, 0):
		return "", fmt.Errorf("contains a NUL")
	case len(cwd) > maxPath:
		return "", fmt.Errorf("has %d bytes, at most %d are possible", len(cwd), maxPath)
	case !inside:
		return "", fmt.Errorf("is not under %s, %s or %s", workDir, inputsDir, artifactsDir)
	}
	return clean, nil
}

// digests are the inputs as the record has them.
func digests(inputs []Input) []audit.Input {
	out := make([]audit.Input, len(inputs))
	for i, in := range inputs {
		sum := sha256.Sum256(in.Content)
		out[i] = audit.Input{Path: in.Path, Size: int64(len(in.Content)), SHA256: hex.EncodeToString(sum[:])}
		if in.Executable {
			out[i].Mode = audit.ModeExecutable
		}
	}
	return out
}

// problems collects the wrong fields of a request.
type problems struct{ fault.Fields }

// label checks an id that only the client knows the meaning of.
func (p *problems) label(field, value string) {
	switch {
	case len(value) > maxLabel:
		p.Add(field, "has %d bytes, at most %d are allowed", len(value), maxLabel)
	case !utf8.ValidString(value) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		p.Add(field, "contains control characters or broken UTF-8")
	}
}
