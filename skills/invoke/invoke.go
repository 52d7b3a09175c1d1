// Package invoke runs a skill as an exec: it validates the inputs before anything starts, and the
// outputs before the row is closed.
//
// The input is at $SKILL_INPUT, the output is expected at $SKILL_OUTPUT, and the skill's own folder
// is at $SKILL_DIR, read-only. The package must not know HTTP or MCP; api and mcpserver both call
// it.
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

// Catalog has the skills of the installation; see skills.Catalog.
type Catalog interface {
	Now() *skills.Snapshot
	Reload() (changed bool)
}

// Packages has the skills in users' packages; see library.Library.
type Packages interface {
	// Tool returns a skill of the workspace with this project id, ready to run: its folder is in
	// the project's inputs. Errors: fault.UnknownSkill, also for projects that are not workspaces,
	// and fault.SkillChanged.
	Tool(ctx context.Context, projectID, skillID string) (*skills.Skill, error)
}

// Request is a decoded invoke of an authorised caller; nothing else is checked.
type Request struct {
	SkillID        string
	ProjectID      string // empty: ConversationID
	ConversationID string
	SessionID      string // a session of the project; empty: it gets a container of its own
	AgentID        string
	UserID         string
	TaskID         string
	Inputs         json.RawMessage // as interface.inputs describes them; empty: {}
	Files          []runner.Input  // for inputs/
	Overrides      policy.Layer

	Queue *runner.Queueing // not nil for an asynchronous exec; then the result has only its record, as it waits

	CallbackURL    string // see runner.Request
	RequestedBy    string
	IdempotencyKey string
	Digest         string // sha256 of the request as it was sent

	// OnOpen gets the exec's id after its row is opened and before it runs, so that the caller can
	// watch or cancel it. Nil: not called.
	OnOpen func(execID string)

	OnReplay func(execID string) // see runner.Request; may be nil
}

// Result is the exec and the skill's outputs.
type Result struct {
	Exec    runner.Result
	Skill   *skills.Skill
	Outputs json.RawMessage // validated by interface.outputs; nil when the exec wrote no valid ones
}

// Invoker invokes skills. It is safe for concurrent use.
type Invoker struct {
	catalog  Catalog
	packages Packages // nil: none
	runner   Runner
}

// New returns an Invoker for the skills of the catalog.
func New(catalog Catalog, runner Runner) *Invoker { return &Invoker{catalog: catalog, runner: runner} }

// WithPackages returns an Invoker that also finds the packages of users.
func (i *Invoker) WithPackages(packages Packages) *Invoker {
	return &Invoker{i.catalog, packages, i.runner}
}

// Invoke runs a skill to its closed row and returns its result, with any exit code. A *fault.Error
// means that the skill did not run: fault.UnknownSkill, fault.InvalidInputs, fault.SkillChanged, or
// an error of runner.Run. The end of ctx ends only the validation of the inputs.
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
		i.catalog.Reload() // another caller may have reloaded it already
		if now, gone := i.catalog.Now().Get(req.SkillID); gone == nil && now.Digest == skill.Digest {
			return result, err // the skill has not changed, so trying again is useless
		}
	}
}

// find finds the skill in the catalog, or else among the packages of the workspace's user.
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

// tries bounds the attempts to invoke a skill that is replaced meanwhile.
const tries = 3

func (i *Invoker) invoke(ctx context.Context, skill *skills.Skill, req Request) (Result, error) {
	if len(req.Inputs) == 0 {
		req.Inputs = json.RawMessage("{}")
	}
	if err := skill.CheckInputs(ctx, req.Inputs); err != nil {
		return Result{}, err
	}
	if req.SessionID != "" && skill.Manifest.Runtime.Session != skills.SessionOptional {
		return Result{}, fault.BadField("session_id", "the skill %s runs in a container of its own: its manifest does not have runtime.session "+
			"%q; leave session_id out", skill.ID(), skills.SessionOptional)
	}
	argv := commandOf(skill)
	res, err := i.runner.Run(ctx, runner.Request{
		ProjectID: req.ProjectID, ConversationID: req.ConversationID, SessionID: req.SessionID, AgentID: req.AgentID,
		UserID: req.UserID, SkillID: skill.ID(), TaskID: req.TaskID, Command: runner.Command{Name: argv[0], Args: argv[1:]},
		Inputs: req.Files, Overrides: req.Overrides, Skill: RunnerSkill(skill, req.Inputs), Queue: req.Queue,
		OnOpen: req.OnOpen, OnReplay: req.OnReplay, CallbackURL: req.CallbackURL, RequestedBy: req.RequestedBy,
		IdempotencyKey: req.IdempotencyKey, Digest: req.Digest,
	})
	if err != nil {
		return Result{}, inCallersWords(err)
	}
	return Result{Exec: res, Skill: skill, Outputs: res.Output}, nil
}

// commandOf returns the manifest's entrypoint as the container runs it. Python runs isolated from
// work/: otherwise it would import, say, a json.py that an earlier exec has written there.
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

// RunnerSkill returns what the runner needs for the invoke of a skill.
func RunnerSkill(skill *skills.Skill, input []byte) *runner.Skill {
	return &runner.Skill{
		Layer: skill.Manifest.Layer(), Folder: FolderOf(skill), Input: input, MaxOutput: skills.MaxOutputBytes,
		Accept: func(ctx context.Context, output []byte) ([]byte, error) { return skill.CheckOutputs(ctx, output) },
	}
}

// FolderOf returns a skill's folder for a workspace. Its programs are executable, also those whose
// authors have forgotten the mode.
func FolderOf(skill *skills.Skill) workspace.Folder {
	f := workspace.Folder{Digest: skill.Digest, FS: skill.FS(), Files: make([]workspace.FolderFile, len(skill.Files))}
	for n, file := range skill.Files {
		f.Files[n] = workspace.FolderFile{Path: file.Path, Size: file.Size, SHA256: file.SHA256, Executable: file.Executable ||
			file.Program}
	}
	return f
}

// inCallersWords renames fields of the exec to fields of the invoke: the inputs of an exec are the
// files of an invoke.
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
