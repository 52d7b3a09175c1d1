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

// What the exec of a skill finds, by design 4.1: three variables that hold paths.
const (
	envSkillInput  = "SKILL_INPUT"  // its input, as JSON
	envSkillOutput = "SKILL_OUTPUT" // where its output is expected
	envSkillDir    = "SKILL_DIR"    // its own folder
)

// SkillOutputFile is the artifact that a skill leaves as its output.
const SkillOutputFile = "skill_output.json"

// Skill is what the invoke of a skill has beyond an exec. Its command comes from the manifest, so Command.Kind is not looked at.
type Skill struct {
	Layer     policy.Layer     // the manifest's
	Folder    workspace.Folder // found at SkillDir(Folder.Digest), read-only
	Input     []byte           // JSON
	MaxOutput int64            // bytes of the output file

	// Accept judges the output file of a job that has ended, and returns what the caller gets. An error, which is a sentence for the
	// record, makes a job that ended well a failed one; of one that did not, the output is only dropped. fault.ServerBusy says that it was
	// not judged. It runs before the row is closed, while the exec has no place any more, and returns soon after ctx ends, as it does when
	// the exec is canceled. For a replay, ctx is the client's.
	Accept func(ctx context.Context, output []byte) ([]byte, error)

	inputPath string // below inputs/
}

// Skills is what the runner asks of the catalog, for execs that name a skill without being its invoke.
type Skills interface {
	// Layer is what the skill's manifest says about the policy; fault.UnknownSkill.
	Layer(skillID string) (policy.Layer, error)
}

// SkillDir is where a container finds the folder with this digest.
func SkillDir(digest string) string {
	return inputsDir + "/" + workspace.SkillFolders + "/" + digest
}

// manifestLayer is the third layer of the request's policy; nil when no skill is named.
func (r *Runner) manifestLayer(req Request) (*policy.Layer, error) {
	switch {
	case req.Skill != nil:
		return &req.Skill.Layer, nil
	case req.SkillID == "", req.Command.Kind == KindArgv: // whoever may say argv knows skills that are in no catalog
		return nil, nil
	case r.cfg.Skills == nil:
		return nil, unknownSkill(req.SkillID)
	}
	layer, err := r.cfg.Skills.Layer(req.SkillID)
	return &layer, err
}

// equip gives a skill's exec its variables and its input a name.
func equip(req Request) Request {
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

// checkSkillMounts refuses a request that takes away from a skill what its convention needs.
func checkSkillMounts(req Request, v policy.Values) error {
	if req.Skill == nil {
		return nil
	}
	var bad problems
	modes := v.MountModes()
	if modes.Inputs == policy.NoAccess {
		bad.Add("policy_overrides."+policy.FieldFSRead, "leaves out %s, where the skill and its input lie", policy.PatternInputs)
	}
	if modes.Artifacts != policy.ReadWrite {
		bad.Add("policy_overrides."+policy.FieldFSWrite, "leaves out %s, where the skill's output is expected", policy.PatternArtifacts)
	}
	return bad.Err()
}

// allInputs are the files that the exec is given, as the record lists them: the caller's, and what a skill is given.
func allInputs(req Request) []Input {
	if req.Skill == nil {
		return req.Inputs
	}
	return append(slices.Clone(req.Inputs), Input{Path: req.Skill.inputPath, Content: req.Skill.Input})
}

// putSkill puts the skill's folder and its input where the container finds them.
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

// judgeOutput looks at what a skill has left as its output, and makes one that broke its promise a failed exec. The file stays among
// the artifacts as it is.
func (x *exec) judgeOutput(m workspace.Manifest) []byte {
	skill := x.req.Skill
	if skill == nil || x.record.Status != audit.Succeeded && x.record.ErrorReason != audit.NonzeroExit {
		return nil
	}
	output, err := x.readOutput(m)
	if err == nil {
		x.ticket.Leave() // the container is gone, and what takes long here shares the processors by rules of its own
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

// readOutput reads the output file by what Collect has found. Its errors are sentences.
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
	return nil, errors.New("the skill has left no " + name + "; it must write its output to $" + envSkillOutput)
}

func omittedBecause(reason string, x *exec) string {
	if reason == workspace.OmitOverLimit {
		return "it does not fit into max_artifacts_bytes_total; raise " + x.raise(policy.FieldMaxArtifacts)
	}
	return reason
}

// outputOf reads the output of an exec that has ended already, for a caller who asks again. An output that the skill's manifest does not
// accept is no error: there is none then. fault.ServerBusy.
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
