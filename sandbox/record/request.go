package record

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"secbox/runner"
	"secbox/sandbox"
)

// asRequest is a command as package runner begins a record of it: only the names of its variables get there, and nothing of its input.
func asRequest(ctx context.Context, spec sandbox.ExecSpec, shell string) runner.Request {
	from := sandbox.RequestOf(ctx)
	req := runner.Request{
		ProjectID: spec.User.ProjectID(), ConversationID: from.ConversationID, AgentID: spec.User.AgentID, UserID: spec.User.ID,
		SkillID: from.SkillID, TaskID: from.TaskID, RequestedBy: from.RequestedBy, Digest: digest(spec),
		Command: runner.Command{Kind: runner.KindArgv, Name: spec.Command, Args: spec.Args, Cwd: spec.Dir, Env: map[string]string{}},
	}
	if spec.Shell {
		req.Command.Name, req.Command.Args = shell, []string{spec.Command}
	}
	if req.Command.Cwd == "" {
		req.Command.Cwd = sandbox.Root
	}
	for _, kv := range spec.Env {
		name, _, _ := strings.Cut(kv, "=")
		req.Command.Env[name] = ""
	}
	return req
}

// digest is what "the same command" means: the sha256 of all that was asked for.
func digest(spec sandbox.ExecSpec) string {
	args := spec.Args
	if spec.Shell {
		args = nil
	}
	canonical, _ := json.Marshal(struct { // of strings and numbers there is always a JSON
		Agent   string   `json:"agent_id"`
		User    string   `json:"user_id"`
		Command []byte   `json:"command"` // as bytes: what is no UTF-8 counts as it is
		Args    [][]byte `json:"args"`
		Shell   bool     `json:"shell"`
		Dir     []byte   `json:"dir"`
		Env     [][]byte `json:"env"`
		Stdin   []byte   `json:"stdin"`
		Timeout int64    `json:"timeout_ms"`
	}{
		spec.User.AgentID, spec.User.ID, []byte(spec.Command), bytesOf(args), spec.Shell, []byte(spec.Dir), bytesOf(spec.Env), []byte(spec.Stdin),
		spec.Timeout.Milliseconds(),
	})
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

func bytesOf(values []string) [][]byte {
	out := make([][]byte, len(values))
	for i, v := range values {
		out[i] = []byte(v)
	}
	return out
}
