package replay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"secbox/audit"
	"secbox/audit/hmackey"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/policy"
	"secbox/runner"
	"secbox/skills"
	"secbox/skills/invoke"
	"secbox/workspace"
)

// Runner runs execs and reads what they left; see runner.Runner.
type Runner interface {
	Run(ctx context.Context, req runner.Request) (runner.Result, error)
	Repeat(ctx context.Context, req runner.Request) (res runner.Result, found bool, err error)
	OpenPublished(ctx context.Context, record audit.Record, name string) (io.ReadSeekCloser, runner.Artifact, error)
}

// Inputs has the kept contents of inputs; see inputstore.Store.
type Inputs interface {
	Get(token string, in audit.Input) ([]byte, error)
	Kept(ctx context.Context, token string, inputs []audit.Input) ([]bool, error)
}

// Skills finds versions of skills.
type Skills interface {
	// Version returns the skill with this digest, ready to run in the project; fault.UnknownSkill
	// if it is gone.
	Version(ctx context.Context, projectID, skillID, digest string) (*skills.Skill, error)

	// GlobalDigest returns the digest of the installation's own skill.
	GlobalDigest() (string, error)
}

// Replayer replays execs. It is safe for concurrent use.
type Replayer struct {
	runner Runner
	inputs Inputs
	skills Skills
}

// New makes a Replayer.
func New(runner Runner, inputs Inputs, skills Skills) *Replayer {
	return &Replayer{runner, inputs, skills}
}

// Request is a replay of an exec whose record the caller may see, in a project that the caller may
// use.
type Request struct {
	First          audit.Record
	Env            map[string]string // values of variables that the first exec had
	Stdin          []byte
	RequestedBy    string
	IdempotencyKey string
	Reserve        Reserve
	OnOpen         func(execID string) // see runner.Request; may be nil
}

// Reserve counts bytes of memory before they are used. An error means that they do not fit, and
// must not be used.
type Reserve func(bytes int64) error

// Result is the replay, beside the exec that it repeats.
type Result struct {
	Exec       runner.Result
	Outputs    json.RawMessage // of a skill; nil if there are no valid ones
	Comparison []Point
}

// Replay runs an exec again, and returns when the record of the new exec is closed. An error means
// that nothing ran: fault.NotReplayable, fault.ArtifactAltered, fault.InvalidRequest for values
// that the first exec did not have, or an error of Reserve or runner.Run. The end of ctx stops no
// exec that was admitted.
func (r *Replayer) Replay(ctx context.Context, q Request) (Result, error) {
	result, found, err := r.repeat(ctx, q)
	if err == nil && !found {
		var req runner.Request
		if req, err = r.request(ctx, q); err == nil {
			result, err = r.runner.Run(ctx, req)
		}
	}
	if err != nil {
		return Result{}, err
	}
	return Result{Exec: result, Outputs: result.Output, Comparison: r.Compare(ctx, q.First, result.Record, q.Reserve)}, nil
}

// repeat answers a replay whose Idempotency-Key was used before. That needs no inputs, which may be
// gone, and without the skill its outputs are left out.
func (r *Replayer) repeat(ctx context.Context, q Request) (res runner.Result, found bool, err error) {
	if q.IdempotencyKey == "" {
		return runner.Result{}, false, nil
	}
	req := runner.Request{RequestedBy: q.RequestedBy, IdempotencyKey: q.IdempotencyKey, Digest: digest(q)}
	if q.First.SkillDigest != "" {
		if err := r.addSkill(ctx, q.First, nil, &req); err != nil && !fault.Is(err, fault.NotReplayable) {
			return runner.Result{}, false, err
		}
	}
	return r.runner.Repeat(ctx, req)
}

// inputPrice is the memory that an input takes beside its content, in bytes, with what the runner
// and the workspace make of it.
const inputPrice = 1 << 10

// input reads an input.
func (r *Replayer) input(ctx context.Context, of audit.Record, in audit.Input, reserve Reserve) ([]byte, error) {
	if err := ctx.Err(); err != nil { // the client hung up, and nothing runs yet
		return nil, fault.Wrap(fault.Internal, err, "the client left before the inputs of exec %s were read", of.ExecID)
	}
	if in.Size < 0 || in.Size > math.MaxInt64/2 {
		return nil, refuse("the record of exec %s has an input of %d bytes", of.ExecID, in.Size)
	}
	if err := reserve(in.Size + inputPrice); err != nil {
		return nil, err
	}
	content, err := r.inputs.Get(of.RequestedBy, in)
	if err != nil {
		return nil, notKept(of, err)
	}
	return content, nil
}

func refuse(format string, args ...any) error { return fault.New(fault.NotReplayable, format, args...) }

// Check returns fault.NotReplayable for an exec whose record alone says that it cannot run again.
func Check(first audit.Record) error {
	_, err := check(first)
	return err
}

// check refuses execs that cannot run again, and returns the policy of the others.
func check(first audit.Record) (policy.Snapshot, error) {
	switch {
	case len(first.Unreadable) > 0:
		return policy.Snapshot{}, refuse("the record of exec %s was damaged in the database: run core-api audit verify", first.ExecID)
	case first.Kind == audit.KindChange:
		return policy.Snapshot{}, refuse("%s is a change of a file, not an exec", first.ExecID)
	case first.SessionID != "":
		return policy.Snapshot{}, refuse("exec %s ran in a session, with the files and the state that others left there: run it in a session again",
			first.ExecID)
	case first.TTYRecord != "":
		return policy.Snapshot{}, refuse("exec %s ran in a terminal, with what was typed: run it in a terminal again", first.ExecID)
	case !first.Status.Final():
		return policy.Snapshot{}, refuse("exec %s is %s; replay it when it has ended", first.ExecID, first.Status)
	case first.Status == audit.Rejected || len(first.PolicySnapshot) == 0:
		return policy.Snapshot{}, refuse("exec %s was refused, so there is nothing to replay: send the request again", first.ExecID)
	}
	snapshot, err := policy.ParseSnapshot(first.PolicySnapshot)
	switch {
	case err != nil:
		return policy.Snapshot{}, fault.Wrap(fault.NotReplayable, err, "the policy of exec %s is of a version that this one cannot read",
			first.ExecID)
	case len(snapshot.NotEnforced) > 0 || first.Backend != audit.BackendDocker:
		return policy.Snapshot{},
			refuse("%s is a command in a user's sandbox (backend %q), whose files and programs outlive commands: run it again there",
				first.ExecID, first.Backend)
	case first.ArtifactsPath == "" && first.StartedAt.IsZero() && first.Status != audit.Lost:
		return policy.Snapshot{}, refuse("exec %s ended before its command ran, so there is nothing to compare: send the request again",
			first.ExecID)
	}
	return snapshot, nil
}

func (r *Replayer) request(ctx context.Context, q Request) (runner.Request, error) {
	snapshot, err := check(q.First)
	if err != nil {
		return runner.Request{}, err
	}
	first, err := r.whole(ctx, q.First, q.Reserve)
	if err != nil {
		return runner.Request{}, err
	}
	if err := checkValues(first, q); err != nil {
		return runner.Request{}, err
	}
	req := runner.Request{
		ProjectID: first.ProjectID, ConversationID: first.ConversationID, AgentID: first.AgentID, UserID: first.UserID,
		SkillID: first.SkillID, TaskID: first.TaskID,
		Command:   runner.Command{Kind: runner.KindArgv, Name: first.Cmd, Args: first.Args, Cwd: first.Cwd, Env: q.Env, Stdin: q.Stdin},
		Overrides: snapshot.Values.Layer(), ImageID: first.ImageID,
		OnOpen: q.OnOpen, ReplayOf: first.ExecID, HMACSalt: first.HMACSalt, RequestedBy: q.RequestedBy, IdempotencyKey: q.IdempotencyKey,
		Digest: digest(q),
	}
	req.Command.CodeInFile = first.Cmd == "python" && len(first.Args) > 1 && first.Args[0] == runner.CodeFile && !invoked(first)
	var skillInput []byte
	for _, in := range first.Inputs {
		content, err := r.input(ctx, first, in, q.Reserve)
		if err != nil {
			return runner.Request{}, err
		}
		if ofSkill(in) {
			skillInput = content
		} else {
			req.Inputs = append(req.Inputs, runner.Input{Path: in.Path, Content: content, Executable: in.Mode == audit.ModeExecutable})
		}
	}
	switch {
	case invoked(first):
		err = r.addSkill(ctx, first, skillInput, &req)
	case first.SkillDigest != "":
		req.SkillDigest = first.SkillDigest
		var now string
		if now, err = r.skills.GlobalDigest(); err == nil && now != first.SkillDigest {
			err = refuse("exec %s ran in version %s of %s, and this installation has another", first.ExecID, first.SkillDigest,
				first.SkillID)
		}
	}
	return req, err
}

// addSkill makes the request an invoke of the skill's version.
func (r *Replayer) addSkill(ctx context.Context, first audit.Record, input []byte, req *runner.Request) error {
	skill, err := r.skills.Version(ctx, first.ProjectID, first.SkillID, first.SkillDigest)
	if fault.Is(err, fault.UnknownSkill) {
		return fault.Wrap(fault.NotReplayable, err,
			"version %s of the skill %s is gone: restore it in the skills directory, or upload it again", first.SkillDigest, first.SkillID)
	}
	if err != nil {
		return err
	}
	req.Skill = invoke.RunnerSkill(skill, input)
	return nil
}

var whyNotKept = map[audit.InputsKept]string{
	audit.KeptOff:    "the settings kept no inputs (audit.inputs_max_mb)",
	audit.KeptNoRoom: "there was no room for its inputs (audit.inputs_max_mb)",
	audit.KeptShare:  "its token had no room for more inputs (audit.inputs_max_mb_per_token)",
	audit.KeptFailed: "its inputs could not be written",
}

// notKept completes the reason why an input is missing.
func notKept(first audit.Record, err error) error {
	why := whyNotKept[first.InputsKept]
	if why == "" || !fault.Is(err, fault.NotReplayable) {
		return err
	}
	return fault.Wrap(fault.NotReplayable, err, "the inputs of exec %s were not kept: %s; send the request again with its inputs",
		first.ExecID, why)
}

// checkValues refuses values for which the first exec had no place.
func checkValues(first audit.Record, q Request) error {
	var bad fault.Fields
	names := Variables(first)
	for _, name := range slices.Sorted(maps.Keys(q.Env)) {
		if !slices.Contains(names, name) {
			bad.Add("env."+name, "the first exec had no variable of this name")
		}
	}
	if len(q.Stdin) > 0 && first.StdinBytes == 0 && hmackey.KeyOf(first.RequestDigest) != "" {
		bad.Add("stdin", "the first exec had no standard input")
	}
	return bad.Err()
}

// Variables are the names of the variables that the first request had. An invoke's own three have
// paths, which are made anew.
func Variables(r audit.Record) []string {
	if !invoked(r) {
		return r.EnvKeys
	}
	return nil
}

// ofSkill reports whether the input belongs to an invoke. Requests cannot name such a path.
func ofSkill(in audit.Input) bool { return strings.HasPrefix(in.Path, workspace.SkillInputs+"/") }

func invoked(r audit.Record) bool { return slices.ContainsFunc(r.Inputs, ofSkill) }

// whole returns the record with all entries of its lists. A record that was cut is whole in
// meta.json, for which the manifest vouches.
func (r *Replayer) whole(ctx context.Context, record audit.Record, reserve Reserve) (audit.Record, error) {
	cut := false
	for _, list := range record.LargeLists {
		cut = cut || list.Kept < list.Count
	}
	if !cut {
		return record, nil
	}
	var meta audit.Record
	if err := r.published(ctx, record, runner.MetaFile, &meta, reserve); err != nil {
		if fault.Is(err, fault.UnknownArtifact) {
			err = fault.Wrap(fault.NotReplayable, err, "the record of exec %s was cut, and the whole one in its meta.json is gone",
				record.ExecID)
		}
		return record, err
	}
	record.Args, record.EnvKeys, record.EnvHMACs, record.Inputs = meta.Args, meta.EnvKeys, meta.EnvHMACs, meta.Inputs
	return record, nil
}

// bytePrice is the memory that one byte of a manifest or of meta.json takes, decoded and compared,
// measured with the shortest entries.
const bytePrice = 8

// published reads a JSON file that core-api has left beside an exec's artifacts.
func (r *Replayer) published(ctx context.Context, record audit.Record, name string, into any, reserve Reserve) error {
	f, file, err := r.runner.OpenPublished(ctx, record, name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := reserve(bytePrice * file.Size); err != nil {
		return err
	}
	if err := admission.Do(ctx, func() error { return jsonv2.UnmarshalRead(f, into) }); err != nil {
		return fault.Wrap(fault.Internal, err, "%s of exec %s cannot be read", name, record.ExecID)
	}
	return nil
}

// Named calls each with the inputs of a record, for inputstore.Named. Nothing is named for a record
// whose list of inputs is lost.
func (r *Replayer) Named(ctx context.Context, record audit.Record, each func(token, digest string)) error {
	record, err := r.whole(ctx, record, func(int64) error { return nil })
	if fault.Is(err, fault.NotReplayable) || fault.Is(err, fault.ArtifactAltered) {
		return nil
	}
	for _, in := range record.Inputs {
		each(record.RequestedBy, in.SHA256)
	}
	return err
}

// digest is the SHA-256 of the request.
func digest(q Request) string {
	canonical, _ := json.Marshal(struct { // text always has a JSON form
		Replay string            `json:"replay_of"`
		Env    map[string]string `json:"env"`
		Stdin  []byte            `json:"stdin"`
	}{q.First.ExecID, q.Env, q.Stdin})
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}
