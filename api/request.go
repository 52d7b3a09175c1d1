package api

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"secbox/access/tokens"
	"secbox/api/gate"
	"secbox/api/problem"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
	"secbox/packages/lines"
	"secbox/policy"
	"secbox/runner"
)

// maxIdempotencyKey is the longest Idempotency-Key, in bytes.
const maxIdempotencyKey = 255

// execRequest converts a decoded body into a request for the runner. It checks the form of the
// request and the token's scope; the runner checks the values. Beside a fault.Forbidden the request
// is complete.
func execRequest(body wire.ExecRequest, async bool, idempotencyKey *string, caller tokens.Token) (runner.Request, error) {
	var bad fault.Fields
	refuse := bad.Add
	req := runner.Request{
		ProjectID: body.ProjectID, ConversationID: body.ConversationID, UserID: body.UserID, SkillID: body.SkillID, Image: body.Image,
		Command: runner.Command{
			Kind: body.Exec.Kind, Name: body.Exec.Command, Args: body.Exec.Args, Cwd: body.Exec.Cwd, Env: body.Exec.Env,
			Stdin: []byte(body.Exec.Stdin), StdinStream: body.Exec.StdinStream, Context: body.Exec.Context,
		},
		CallbackURL: body.CallbackURL, RequestedBy: caller.ID, SessionID: body.SessionID,
		Background: body.Background,
	}
	body.TaskRef.Into(&req.TaskID, &req.ConversationID, refuse)
	if size := body.Exec.TTY; size != nil {
		req.Command.Terminal = &runner.Terminal{Size: *size, Record: body.Exec.TTYRecord}
	} else if body.Exec.TTYRecord != "" {
		refuse("exec.tty_record", "needs exec.tty")
	}

	if body.Exec.StdinStream &&
		(body.Exec.Stdin != "" || body.Exec.TTY != nil || body.Exec.Context != "" || async && body.SessionID == "") {
		refuse("exec.stdin_stream", "cannot be combined with exec.stdin, exec.tty, exec.context, or Prefer: respond-async without a session")
	}
	if !shortForm(body.Exec, &req.Command, refuse) {
		checkCommand(body.Exec, refuse)
	}
	req.Inputs = inputFiles("inputs", body.Inputs, refuse)
	req.Overrides = overrides(body.PolicyOverrides, refuse)
	checkStream(body.Stream, async, refuse)
	req.Queue = queueing(async, body.Priority, body.QueueTimeoutMS, refuse)
	req.IdempotencyKey = checkedKey(idempotencyKey, refuse)
	if err := bad.Err(); err != nil {
		return runner.Request{}, err
	}
	req.Digest = digest(req, nil)
	return req, gate.CheckProject(caller, req.ProjectID, req.ConversationID, req.UserID)
}

// shortForm sets the command of a request with script or code. It reports whether the request has
// one of them.
func shortForm(in wire.Command, out *runner.Command, refuse refusal) bool {
	field, text, kind, name, flag := "exec.script", in.Script, runner.KindShell, "bash", "-lc"
	if in.Script == "" {
		field, text, kind, name, flag = "exec.code", in.Code, runner.KindPython, "python", runner.CodeFile
	}
	if text == "" {
		return false
	}
	text = lines.Unix(text)
	switch {
	case in.Script != "" && in.Code != "":
		refuse("exec", "has script and code; give one of them")
	case in.Command != "" || len(in.Args) > 0:
		refuse("exec", "has %s beside command or args; give %s alone, or kind, command and args", field, field)
	case in.Kind != "" && in.Kind != kind:
		refuse("exec.kind", "is %q; %s is of kind %s: leave exec.kind out", problem.Clip(in.Kind), field, kind)
	case len(text) > runner.MaxArg:
		refuse(field, "has %d bytes, at most %d are possible: send it as an input file", len(text), runner.MaxArg)
	case strings.ContainsRune(text, 0):
		refuse(field, "must not contain a NUL")
	}
	out.Kind, out.Name, out.Args = kind, name, []string{flag, text}
	return true
}

// checkCommand checks that the command is the program of its kind.
func checkCommand(in wire.Command, refuse refusal) {
	if reflect.ValueOf(in).IsZero() {
		refuse("exec", "is missing or empty; give exec.script or exec.code")
		return
	}
	switch in.Kind {
	case "":
		refuse("exec.kind", "is missing; use shell or python, or give exec.script or exec.code alone")
	case runner.KindShell, runner.KindPython:
		want := map[string]string{runner.KindShell: "bash", runner.KindPython: "python"}[in.Kind]
		if in.Command == "" {
			refuse("exec.command", "is missing; kind %s runs %q", in.Kind, want)
		} else if in.Command != want {
			refuse("exec.command", "is %q; kind %s runs %q", problem.Clip(in.Command), in.Kind, want)
		}
	default:
		refuse("exec.kind", "is %q; allowed are shell and python", problem.Clip(in.Kind))
	}
}

// resolveRequest is execRequest for the fields that affect the policy.
func resolveRequest(body wire.PolicyResolveRequest, caller tokens.Token) (runner.Request, error) {
	var bad fault.Fields
	req := runner.Request{
		ProjectID: body.ProjectID, ConversationID: body.ConversationID, UserID: body.UserID, SkillID: body.SkillID, Image: body.Image,
		RequestedBy: caller.ID,
		Overrides:   overrides(body.PolicyOverrides, bad.Add),
	}
	if err := bad.Err(); err != nil {
		return runner.Request{}, err
	}
	return req, gate.CheckProject(caller, req.ProjectID, req.ConversationID, req.UserID)
}

// refusal reports a field that is wrong.
type refusal func(field, format string, args ...any)

// inputFiles decodes the files in the body's field with the name list.
func inputFiles(list string, files []wire.InputFile, refuse refusal) []runner.Input {
	var out []runner.Input
	if len(files) > runner.MaxInputs {
		refuse(list, "has %d files, more than %d", len(files), runner.MaxInputs)
		return nil
	}
	for i, in := range files {
		field := fmt.Sprintf("%s[%d]", list, i)
		if in.Path == "" {
			refuse(field+".path", "is missing; name a file under inputs/")
		}
		if in.Content == nil {
			refuse(field+".content", "is missing; an empty file has the content \"\"")
			continue
		}
		if in.Mode != "" && in.Mode != "0644" && in.Mode != audit.ModeExecutable {
			refuse(field+".mode", "must be 0644, or 0755 for a program")
		}
		content, err := decodeContent(*in.Content, in.Encoding)
		if err != nil {
			refuse(field+err.part, "%s", err.reason)
			continue
		}
		out = append(out, runner.Input{Path: in.Path, Content: content, Executable: in.Mode == audit.ModeExecutable})
	}
	return out
}

// checkedKey returns the Idempotency-Key header.
func checkedKey(header *string, refuse refusal) string {
	if header != nil && (!printable(*header) || len(*header) > maxIdempotencyKey) {
		refuse("Idempotency-Key", "must be 1 to %d printable ASCII characters", maxIdempotencyKey)
	}
	return value(header)
}

type contentError struct{ part, reason string }

func decodeContent(content, encoding string) ([]byte, *contentError) {
	switch encoding {
	case "", "utf-8":
		return []byte(content), nil
	case "base64":
		raw, err := base64.StdEncoding.DecodeString(content)
		if err != nil {
			return nil, &contentError{".content", fmt.Sprintf("must be base64 (standard alphabet, padded): %s", err)}
		}
		return raw, nil
	}
	return nil, &contentError{".encoding", fmt.Sprintf("is %q; allowed are utf-8 and base64", problem.Clip(encoding))}
}

// overrides accepts each field in its dotted or its nested spelling, but not in both. A nil list is
// not set, an empty one allows nothing.
func overrides(in *wire.PolicyOverrides, refuse refusal) policy.Layer {
	if in == nil {
		return policy.Layer{}
	}
	l := in.Layer
	twice := func(both bool, name string) {
		if both {
			refuse("policy_overrides."+name, "is given twice, dotted and nested; keep one")
		}
	}
	twice(l.NetMode != nil && in.Net.Mode != nil, "net.mode")
	twice(l.NetAllow != nil && in.Net.Allow != nil, "net.allow")
	twice(l.NetCredentials != nil && in.Net.Credentials != nil, "net.credentials")
	twice(l.FSRead != nil && in.FS.Read != nil, "fs.read")
	twice(l.FSWrite != nil && in.FS.Write != nil, "fs.write")
	l.NetMode = cmp.Or(l.NetMode, in.Net.Mode)
	if l.NetAllow == nil {
		l.NetAllow = in.Net.Allow
	}
	if l.NetCredentials == nil {
		l.NetCredentials = in.Net.Credentials
	}
	if l.FSRead == nil {
		l.FSRead = in.FS.Read
	}
	if l.FSWrite == nil {
		l.FSWrite = in.FS.Write
	}
	return l
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

// digest identifies a request for its Idempotency-Key: the SHA-256 of a canonical form, independent
// of the order and spacing of the body. skillInputs are the inputs of an invoked skill, nil for any
// other exec; their numbers count as written. A field that is added later must be omitted when
// empty, so that digests on record stay valid.
func digest(req runner.Request, skillInputs []byte) string {
	type input struct {
		Path   string `json:"path"`
		SHA256 string `json:"sha256"`
		Mode   string `json:"mode,omitempty"`
	}
	type overrides struct {
		policy.Layer
		FSRead  []string `json:"fs.read"` // null and [] differ
		FSWrite []string `json:"fs.write"`
	}
	canonical := struct {
		Project      string            `json:"project_id"`
		Conversation string            `json:"conversation_id"`
		User         string            `json:"user_id"`
		Skill        string            `json:"skill_id"`
		Task         string            `json:"task_id"`
		Image        string            `json:"image"`
		Kind         string            `json:"kind"`
		Command      string            `json:"command"`
		Args         []string          `json:"args"`
		Cwd          string            `json:"cwd"`
		Env          map[string]string `json:"env"` // json sorts the names
		Stdin        string            `json:"stdin"`
		Inputs       []input           `json:"inputs"`
		Overrides    overrides         `json:"policy_overrides"`
		SkillInputs  string            `json:"skill_inputs,omitempty"`
		Priority     audit.Priority    `json:"priority,omitempty"` // that it is asynchronous makes no other request
		QueueTimeout int64             `json:"queue_timeout_ms,omitempty"`
		CallbackURL  string            `json:"callback_url,omitempty"`
		Session      string            `json:"session_id,omitempty"`
		Context      string            `json:"context,omitempty"`
		Background   bool              `json:"background,omitempty"`
		Terminal     *runner.Terminal  `json:"terminal,omitempty"`
		StdinStream  bool              `json:"stdin_stream,omitempty"`
	}{
		Project: req.ProjectID, Conversation: req.ConversationID, User: req.UserID, Skill: req.SkillID, Task: req.TaskID, Image: req.Image,
		Kind: req.Command.Kind, Command: req.Command.Name, Args: append([]string{}, req.Command.Args...), Cwd: req.Command.Cwd,
		Env: req.Command.Env, Stdin: hash(req.Command.Stdin), Inputs: []input{}, CallbackURL: req.CallbackURL,
		Session: req.SessionID, Context: req.Command.Context, Background: req.Background, Terminal: req.Command.Terminal,
		StdinStream: req.Command.StdinStream,
		Overrides:   overrides{Layer: req.Overrides, FSRead: req.Overrides.FSRead, FSWrite: req.Overrides.FSWrite},
	}
	if args := canonical.Args; req.Command.Kind == runner.KindPython && len(args) > 0 && args[0] == runner.CodeFile {
		args[0] = "-c" // as earlier versions ran exec.code
	}
	if q := req.Queue; q != nil {
		canonical.Priority, canonical.QueueTimeout = q.Priority, q.Timeout.Milliseconds()
	}
	if skillInputs != nil {
		canonical.SkillInputs = hash(skillInputs)
	}
	if len(canonical.Env) == 0 {
		canonical.Env = nil
	}
	for _, in := range req.Inputs {
		one := input{Path: in.Path, SHA256: hash(in.Content)}
		if in.Executable {
			one.Mode = audit.ModeExecutable
		}
		canonical.Inputs = append(canonical.Inputs, one)
	}
	text, err := json.Marshal(canonical)
	if err != nil {
		panic(err) // strings and numbers that were decoded from JSON
	}
	return hash(text)
}

func hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
