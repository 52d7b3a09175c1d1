// Package invoke runs a skill as an exec: what goes in is validated before anything starts, what comes out before the row is closed.
//
// By the convention of design 4.1 the input lies at $SKILL_INPUT, the output is expected at $SKILL_OUTPUT, and the skill's own folder is
// at $SKILL_DIR, read-only. The package knows no HTTP and no MCP; api and mcpserver both call it.
package invoke

import (
	"context"
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/policy"
	"secbox/runner"
	"secbox/skills"
	"secbox/workspace"
)

// Runner runs one exec to its closed row; see runner.Runner.
type Runner interface {
	Run(ctx context.Context, req runner.Request) (runner.Result, error)
}

// Catalog is where skills are found; see skills.Catalog.
type Catalog interface {
	Now() *skills.Snapshot
	Reload() (changed bool)
}

// Packages are the skills that users' packages carry; see library.Library.
type Packages interface {
	// Tool returns the skill of the workspace with this project id, ready to run: its folder lies in the project's inputs.
	// fault.UnknownSkill, fault.SkillChanged. It may be asked for any project; one that is no workspace has no skills.
	Tool(ctx context.Context, projectID, skillID string) (*skills.Skill, error)
}

// Request is one invoke as its caller asked for it: decoded, its caller known and allowed to use the project, and nothing else checked.
type Request struct {
	SkillID        string
	ProjectID      string // empty: ConversationID serves
	ConversationID string
	AgentID        string
	UserID         string
	TaskID         string
	Inputs         json.RawMessage // what interface.inputs describes; empty: {}
	Files          []runner.Input  // for inputs/
	Overrides      policy.Layer

	RequestedBy    string
	IdempotencyKey string
	Digest         string // sha256 of the request as it was sent

	// OnOpen is told the exec's id once its row is open, before it runs: what a caller needs to watch or cancel it. Nil: not called.
	OnOpen func(execID string)
}

// Result is the exec and what the skill returned.
type Result struct {
	Exec    runner.Result
	Skill   *skills.Skill
	Outputs json.RawMessage // validated by interface.outputs; nil when the exec left none that is valid
}

// Invoker invokes skills. It is safe for concurrent use.
type Invoker struct {
	catalog  Catalog
	packages Packages // nil: none
	runner   Runner
}

// New makes an Invoker of what is in the catalog.
func New(catalog Catalog, runner Runner) *Invoker { return &Invoker{catalog: catalog, runner: runner} }

// WithPackages makes one that also knows the packages of users.
func (i *Invoker) WithPackages(packages Packages) *Invoker {
	return &Invoker{i.catalog, packages, i.runner}
}

// Invoke runs a skill to its closed row and returns its result, whatever the exit code. An error is a *fault.Error and means that the
// skill did not run: fault.UnknownSkill, fault.InvalidInputs, fault.SkillChanged, or what runner.Run returns. The end of ctx ends the
// validation of the inputs, and nothing after it.
func (i *Invoker) Invoke(ctx context.Context, req Request) (Result, error) {
	for try := 1; ; try++ {
		skill, err := i.find(ctx, req)
		if err != nil {
			return Result{}, err
		}
		result, err := i.invoke(ctx, skill, req)
		if try == tries || !fault.Is(err, fault.SkillChanged) {
			return result, err
		}
		i.catalog.Reload() // or somebody else has, in the meantime
		if now, gone := i.catalog.Now().Get(req.SkillID); gone == nil && now.Digest == skill.Digest {
			return result, err // what is read is not what lies there, and trying again does not change that
		}
	}
}

// find takes the skill from the catalog, and what the catalog does not have from the packages of the user whose workspace it is.
func (i *Invoker) find(ctx context.Context, req Request) (*skills.Skill, error) {
	skill, err := i.catalog.Now().Get(req.SkillID)
	project := req.ProjectID
	if project == "" {
		project = req.ConversationID
	}
	if _, _, isWorkspace := workspace.SplitWorkspaceID(project); err == nil || i.packages == nil || !isWorkspace {
		return skill, err
	}
	return i.packages.Tool(context.WithoutCancel(ctx), project, req.SkillID)
}

// tries is how often an invoke begins anew with a skill that is replaced under its hands.
const tries = 3

func (i *Invoker) invoke(ctx context.Context, skill *skills.Skill, req Request) (Result, error) {
	if len(req.Inputs) == 0 {
		req.Inputs = json.RawMessage("{}")
	}
	if err := skill.CheckInputs(ctx, req.Inputs); err != nil {
		return Result{}, err
	}
	argv := commandOf(skill)
	res, err := i.runner.Run(ctx, runner.Request{
		ProjectID: req.ProjectID, ConversationID: req.ConversationID, AgentID: req.AgentID, UserID: req.UserID, SkillID: skill.ID(),
		TaskID: req.TaskID, Command: runner.Command{Name: argv[0], Args: argv[1:]}, Inputs: req.Files, Overrides: req.Overrides,
		Skill: &runner.Skill{
			Layer: skill.Manifest.Layer(), Folder: FolderOf(skill), Input: req.Inputs, MaxOutput: skills.MaxOutputBytes,
			Accept: func(ctx context.Context, output []byte) ([]byte, error) { return skill.CheckOutputs(ctx, output) },
		},
		OnOpen: req.OnOpen, RequestedBy: req.RequestedBy, IdempotencyKey: req.IdempotencyKey, Digest: req.Digest,
	})
	if err != nil {
		return Result{}, inCallersWords(err)
	}
	return Result{Exec: res, Skill: skill, Outputs: res.Output}, nil
}

// commandOf is the manifest's entrypoint as the container runs it. Python is isolated from what lies in work/: otherwise a json.py that an
// earlier exec left there would be imported in the place of Python's own.
func commandOf(skill *skills.Skill) []string {
	entrypoint := skill.Manifest.Runtime.Entrypoint
	dir := runner.SkillDir(skill.Digest)
	argv := make([]string, 0, len(entrypoint)+1)
	for n, arg := range entrypoint {
		if file, ok := strings.CutPrefix(arg, "./"); ok {
			arg = dir + "/" + path.Clean(file)
		}
		argv = append(argv, arg)
		if n == 0 && python.MatchString(path.Base(arg)) {
			argv = append(argv, "-I")
		}
	}
	return argv
}

var python = regexp.MustCompile(`^python[0-9.]*$`)

// FolderOf is a skill's folder as a workspace takes it.
func FolderOf(skill *skills.Skill) workspace.Folder {
	f := workspace.Folder{Digest: skill.Digest, FS: skill.FS(), Files: make([]workspace.FolderFile, len(skill.Files))}
	for n, file := range skill.Files {
		f.Files[n] = workspace.FolderFile(file)
	}
	return f
}

// inCallersWords renames the fields that are called otherwise in an invoke: an exec's inputs are its files.
func inCallersWords(err error) error {
	const theirs, ours = "inputs[", "files["
	e := *fault.From(err)
	e.Fields = slices.Clone(e.Fields)
	for n, field := range e.Fields {
		if rest, ok := strings.CutPrefix(field.Field, theirs); ok {
			e.Fields[n].Field = ours + rest
		}
	}
	if rest, ok := strings.CutPrefix(e.Message, theirs); ok {
		e.Message = ours + rest
	}
	return &e
}
