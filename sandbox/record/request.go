package record

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"secbox/audit"
	"secbox/audit/hmackey"
	"secbox/internal/traces"
	"secbox/sandbox"
)

// requestRecord is the part of a command's record that its caller determines. It has the names of
// variables but not their values, and nothing of standard input.
func requestRecord(ctx context.Context, key hmackey.Key, spec sandbox.ExecSpec, shell string) audit.Record {
	from, span := sandbox.RequestOf(ctx), traces.Of(ctx)
	r := audit.Record{
		ExecID: spec.ExecID, ProjectID: spec.User.ProjectID(), ConversationID: from.ConversationID, AgentID: spec.User.AgentID,
		UserID:  spec.User.ID,
		SkillID: from.SkillID, TaskID: from.TaskID, RequestedBy: from.RequestedBy, RequestDigest: key.Request(digest(spec)),
		Cmd: spec.Command, Args: spec.Args, Cwd: spec.Dir,
	}
	r.TraceID, r.SpanID = span.Trace, span.Span
	if spec.Shell {
		r.Cmd, r.Args = shell, []string{spec.Command}
	}
	if r.Cwd == "" {
		r.Cwd = sandbox.Root
	}
	env := map[string]string{}
	for _, kv := range spec.Env {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value // the last one counts
	}
	if len(env) == 0 && spec.Stdin == "" {
		return r
	}
	r.HMACSalt = hmackey.NewSalt()
	for _, name := range slices.Sorted(maps.Keys(env)) {
		r.EnvKeys = append(r.EnvKeys, name)
		r.EnvHMACs = append(r.EnvHMACs, key.Variable(r.HMACSalt, name, env[name]))
	}
	if spec.Stdin != "" {
		r.StdinHMAC, r.StdinBytes = key.Stdin(r.HMACSalt, []byte(spec.Stdin)), int64(len(spec.Stdin))
	}
	return r
}

// traced returns the environment of a command that knows its span, unless its caller has set the
// variable. The record has what the caller set.
func traced(env []string, span traces.ID) []string {
	set := func(kv string) bool { return strings.HasPrefix(kv, traces.Variable+"=") }
	if span == (traces.ID{}) || slices.ContainsFunc(env, set) {
		return env
	}
	return append(slices.Clip(env), traces.Variable+"="+span.String())
}

// digest is the sha256 of all of a request: two requests with the same digest are the same.
func digest(spec sandbox.ExecSpec) string {
	args := spec.Args
	if spec.Shell {
		args = nil
	}
	canonical, _ := json.Marshal(struct { // strings and numbers always have a JSON form
		Agent   string   `json:"agent_id"`
		User    string   `json:"user_id"`
		Command []byte   `json:"command"` // as bytes, which need not be UTF-8
		Args    [][]byte `json:"args"`
		Shell   bool     `json:"shell"`
		Dir     []byte   `json:"dir"`
		Env     [][]byte `json:"env"`
		Stdin   []byte   `json:"stdin"`
		Timeout int64    `json:"timeout_ms"`
	}{
		spec.User.AgentID, spec.User.ID, []byte(spec.Command), bytesOf(args), spec.Shell, []byte(spec.Dir), bytesOf(spec.Env),
		[]byte(spec.Stdin),
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
