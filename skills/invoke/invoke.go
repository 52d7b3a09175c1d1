// Package invoke runs a skill as an exec: what goes in is validated before anything starts, what comes out before the row is closed.
//
// By the convention of design 4.1 the input lies at $SKILL_INPUT, the output is expected at $SKILL_OUTPUT, and the skill's own folder is
// at $SKILL_DIR, read-only. The package knows no HTTP and no MCP; api and mcpserver both call it.
package invoke

import (
	"context"
	"encoding/json"

	"secbox/fault"
	"secbox/policy"
	"secbox/runner"
	"secbox/skills"
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
	catalog Catalog
	runner  Runner
}

// New makes an Invoker.
func New(catalog Catalog, runner Runner) *Invoker { return &Invoker{catalog, runner} }

// Invoke runs a skill to its closed row and returns its result, whatever the exit code. An error is a *fault.Error and means that the
// skill did not run: fault.UnknownSkill, fault.InvalidInputs, or what runner.Run returns. The end of ctx does not stop it.
func (i *Invoker) Invoke(ctx context.Context, req Request) (Result, error) {
	return Result{}, fault.New(fault.Internal, "not yet")
}
