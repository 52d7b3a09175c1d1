package runner

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"

	"secbox/audit"
	"secbox/fault"
	"secbox/policy"
	"secbox/workspace"
)

// Variables of a skill's exec. Each holds a path.
const (
	envSkillInput  = "SKILL_INPUT"  // its input, as JSON
	envSkillOutput = "SKILL_OUTPUT" // where it must write its output
	envSkillDir    = "SKILL_DIR"    // its own folder
)

// SkillOutputFile is the artifact that is a skill's output.
const SkillOutputFile = "skill_output.json"

// Skill is the part of a Request that only the invoke of a skill has. Its command comes from the
// manifest, so Command.Kind is ignored.
type Skill struct {
	Layer     policy.Layer     // the manifest's
	Folder    workspace.Folder // found at SkillDir(Folder.Digest), read-only
	Input     []byte           // JSON
	MaxOutput int64            // bytes of the output file

	// Accept validates the output file of a job that has ended, and returns the output for the
	// client. An error, which is a sentence for the record, makes a successful job a failed one;
	// the output of a failed job is only dropped. fault.ServerBusy says that the output was not
	// validated. Accept runs before the row is closed, when the exec has given its place back, and
	// returns soon after ctx ends, which it does when the exec is canceled. For a replay, ctx is
	// the client's.
	Accept func(ctx context.Context, output []byte) ([]byte, error)

	inputPath string // below inputs/
}

// Skills is the catalog, for execs that name a skill without being its invoke.
type Skills interface {
	// Layer returns the policy layer of the skill's manifest; fault.UnknownSkill.
	Layer(skillID string) (policy.Layer, error)
}

// SkillDir is the path, in a container, of the folder with this digest.
func SkillDir(digest string) string {
	return inputsDir + "/" + workspace.SkillFolders + "/" + digest
}

// manifestLayer is the third layer of the request's policy; nil when the request names no skill.
func (r *Runner) manifestLayer(req Request) (*policy.Layer, error) {
	switch {
	case req.Skill != nil:
		return &req.Skill.Layer, nil
	case req.SkillID == "", req.Command.Kind == KindArgv: // these callers know skills that are in no catalog
		return nil, nil
	case r.cfg.Skills == nil:
		e := fault.New(fault.UnknownSkill, "there is no skill %q in the catalog", req.SkillID)
		e.Fields = []fault.Field{{Field: "skill_id", Reason: "is not in the catalog"}}
		return nil, e
	}
	layer, err := r.cfg.Skills.Layer(req.SkillID)
	return &layer, err
}

// addSkillEnv gives a skill's exec its variables and its input a name.
func addSkillEnv(req Request) Request {
	if req.Skill == nil {
		return req
	}
	skill := *req.Skill
	skill.inputPath = workspace.NewSkillInput()
	req.Skill = &skill
	env := maps.Clone(req.Command.Env)
	if env == nil {
		env = map[string]string{}
	}
	env[envSkillInput] = inputsDir + "/" + skill.inputPath
	env[envSkillOutput] = artifactsDir + "/" + SkillOutputFile
	env[envSkillDir] = SkillDir(skill.Folder.Digest)
	req.Command.Env = env
	return req
}

// checkSkillMounts refuses a request whose policy takes away a directory that skills need.
func checkSkillMounts(req Request, v policy.Values) error {
	if req.Skill == nil {
		return nil
	}
	var bad problems
	modes := v.MountModes()
	if modes.Inputs == policy.NoAccess {
		bad.Add("policy_overrides."+policy.FieldFSRead, "leaves out %s, which has the skill and its input", policy.PatternInputs)
	}
	if modes.Artifacts != policy.ReadWrite {
		bad.Add("policy_overrides."+policy.FieldFSWrite, "leaves out %s, which must have the skill's output", policy.PatternArtifacts)
	}
	return bad.Err()
}

// allInputs are the exec's input files as the record lists them: the client's, and the input of a
// skill.
func allInputs(req Request) []Input {
	if req.Skill == nil {
		return req.Inputs
	}
	return append(slices.Clone(req.Inputs), Input{Path: req.Skill.inputPath, Content: req.Skill.Input})
}

// putSkill writes the skill's folder and its input into the project.
func (x *exec) putSkill() (release func(), err error) {
	skill := x.req.Skill
	if skill == nil {
		return func() {}, nil
	}
	if err := x.project.PutFolder(skill.Folder); err != nil {
		return nil, err
	}
	return x.project.PutSkillInput(skill.inputPath, skill.Input)
}

// acceptOutput validates a skill's output; an invalid one makes the exec a failed one. The file
// stays among the artifacts as it is.
func (x *exec) acceptOutput(m workspace.Manifest) []byte {
	skill := x.req.Skill
	if skill == nil || x.record.Status != audit.Succeeded && x.record.ErrorReason != audit.NonzeroExit {
		return nil
	}
	output, err := x.readOutput(m)
	if err == nil {
		if x.ticket != nil {
			x.ticket.Leave() // the container is gone; the validation has its own limit for the processors
		}
		output, err = skill.Accept(x.ctx, output)
	}
	switch {
	case err == nil:
		return output
	case x.ctx.Err() != nil:
		x.record.Status, x.record.ErrorReason, x.record.Detail = verdictOnKill(x.ctx)
		x.record.Detail += " while its output was validated"
	case fault.Is(err, fault.ServerBusy):
		x.artifactsLost("the skill's output was not validated: "+fault.From(err).Message, err)
	case fault.CodeOf(err) != fault.Internal: // the disk's fault, not the skill's
		x.artifactsLost("the skill's output could not be read", err)
	case x.record.Status == audit.Succeeded:
		x.record.Status, x.record.ErrorReason = audit.Failed, audit.InvalidOutput
		x.record.Detail = join(x.record.Detail, err.Error())
	}
	return nil
}

// readOutput reads the output file, which m must list. Its errors are sentences for the record.
func (x *exec) readOutput(m workspace.Manifest) ([]byte, error) {
	const name = SkillOutputFile
	for _, o := range m.Omitted {
		if o.Path == name {
			return nil, errors.New(name + " was left out of the artifacts: " + omittedBecause(o.Reason, x))
		}
	}
	for _, f := range m.Files {
		switch {
		case f.Path != name:
		case f.Kind != workspace.KindFile:
			return nil, errors.New(name + " is a " + f.Kind + "; write a regular file to $" + envSkillOutput)
		default:
			content, err := x.project.ReadCollected(x.record.ExecID, name, x.req.Skill.MaxOutput)
			if err != nil && fault.CodeOf(err) == fault.Internal {
				err = errors.New(name + " cannot be read: " + err.Error())
			}
			return content, err
		}
	}
	return nil, errors.New("the skill left no " + name + "; it must write its output to $" + envSkillOutput)
}

func omittedBecause(reason string, x *exec) string {
	if reason == workspace.OmitOverLimit {
		return "it does not fit into max_artifacts_bytes_total; raise " + x.raise(policy.FieldMaxArtifacts)
	}
	return reason
}

// outputOf reads the output of an exec that has ended, for a replay. An output that the skill's
// manifest does not accept is nil and no error. fault.ServerBusy.
func (r *Runner) outputOf(ctx context.Context, skill *Skill, left Artifacts) ([]byte, error) {
	if skill == nil {
		return nil, nil
	}
	f, item, err := left.Open(ctx, SkillOutputFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if item.Size > skill.MaxOutput {
		return nil, nil
	}
	content := make([]byte, item.Size)
	if _, err := io.ReadFull(f, content); err != nil {
		return nil, err
	}
	output, err := skill.Accept(ctx, content)
	if err != nil && ctx.Err() == nil && !fault.Is(err, fault.ServerBusy) {
		return nil, nil
	}
	return output, err
}
