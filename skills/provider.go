package skills

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"sync"

	"secbox/fault"
	"secbox/policy"
)

// SkillsProvider gives an agent worker the skills of a running core-api as tools: it lists them and
// calls them by name, over HTTP. It keeps no session, never retries, and is safe for concurrent
// use.
//
// Errors are *fault.Error. An error response of core-api keeps its code, message and fields and, if
// there is one, the exec that was audited for the refusal. fault.Internal means that there was no
// response, or that it did not come from a core-api. When a context ends, the error wraps
// context.Canceled or context.DeadlineExceeded.
type SkillsProvider struct {
	base      *url.URL
	token     string
	client    http.Client
	plainHTTP bool   // the token may go over http:// to another machine
	agent     string // with user, the owner of packages that are tools too; empty: none
	user      string

	mu   sync.Mutex
	etag string // of list; empty until the first response
	list []Tool
}

// ProviderOption configures a SkillsProvider.
type ProviderOption func(*SkillsProvider)

// WithHTTPClient sets an HTTP client, for example with a transport that trusts a company's
// certificates. Redirects are never followed. The client's Timeout, if set, bounds each call as a
// whole.
func WithHTTPClient(c *http.Client) ProviderOption {
	return func(p *SkillsProvider) { p.client = *c }
}

// OverPlainHTTP allows sending the token over http:// to another machine. Use it only on a private
// network, such as the network of the containers of one compose file.
func OverPlainHTTP() ProviderOption {
	return func(p *SkillsProvider) { p.plainHTTP = true }
}

// ForUser adds the packages of one user of an agent that have a manifest.json, each in the user's
// own version, and makes the user's workspace the default project of calls.
func ForUser(agentID, userID string) ProviderOption {
	return func(p *SkillsProvider) { p.agent, p.user = agentID, userID }
}

// NewProvider returns a SkillsProvider for the core-api at baseURL, such as http://127.0.0.1:8003.
// The token is from `core-api token create`, with the role worker or admin, and empty where
// core-api needs none. NewProvider does not connect. It returns fault.InvalidSettings for an
// invalid address, and for a token that would go over plain HTTP to another machine.
func NewProvider(baseURL, token string, opts ...ProviderOption) (*SkillsProvider, error) {
	u, err := url.Parse(baseURL)
	switch {
	case err != nil:
		return nil, fault.New(fault.InvalidSettings, "the address of core-api is no valid URL; write it as http://127.0.0.1:8003")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.Opaque != "":
		return nil, fault.New(fault.InvalidSettings, "the address of core-api must be http://host:port or https://host:port")
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return nil, fault.New(fault.InvalidSettings,
			"the address of core-api must have neither a user nor a query; pass the token as its own argument")
	}
	p := &SkillsProvider{base: u, token: token}
	for _, option := range opts {
		option(p)
	}
	if token != "" && u.Scheme == "http" && !p.plainHTTP && !isLoopback(u.Hostname()) {
		return nil, fault.New(fault.InvalidSettings,
			"the token would go to %s unencrypted; use https://, or OverPlainHTTP on a private network", u.Host)
	}
	// the token must not reach another server
	p.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return p, nil
}

// Tool is a skill as an agent sees it.
type Tool struct {
	Name         string          // skill.shell.run; Invoke takes it
	SkillID      string          // shell.run
	Title        string          // a short name for people
	Description  string          // its purpose, and when to use it
	InputSchema  json.RawMessage // JSON Schema of the arguments, as the skill's manifest has it
	OutputSchema json.RawMessage // JSON Schema of the outputs
	ReadOnly     bool            // it does not change the project's files
	Digest       string          // of the skill's files; it changes with the version
}

// ListTools returns the skills that can be invoked now, by id. It asks core-api each time, which
// sends the list only if it has changed.
func (p *SkillsProvider) ListTools(ctx context.Context) ([]Tool, error) {
	p.mu.Lock()
	etag, list := p.etag, p.list
	p.mu.Unlock()
	header := http.Header{}
	if etag != "" {
		header.Set("If-None-Match", etag)
	}
	a, err := p.send(ctx, http.MethodGet, []string{"skills"}, p.userQuery(), nil, header)
	switch {
	case err != nil:
		return nil, err
	case a.status == http.StatusNotModified && etag != "":
		return slices.Clone(list), nil
	}
	var body struct {
		Items []struct {
			ID, Name, Description, Tool, Digest string
			Interface                           Interface
			ReadOnly                            bool `json:"read_only"`
		}
	}
	if err := a.decode(&body); err != nil {
		return nil, err
	}
	list = make([]Tool, 0, len(body.Items))
	for _, s := range body.Items {
		list = append(list, Tool{
			Name: s.Tool, SkillID: s.ID, Title: s.Name, Description: s.Description, InputSchema: s.Interface.Inputs,
			OutputSchema: s.Interface.Outputs, ReadOnly: s.ReadOnly, Digest: s.Digest,
		})
	}
	p.mu.Lock()
	p.etag, p.list = a.header.Get("ETag"), list
	p.mu.Unlock()
	return slices.Clone(list), nil
}

// ToolCall describes a call of a tool. ProjectID or ConversationID is required, unless the provider
// is ForUser.
type ToolCall struct {
	ProjectID      string // the project whose files the skill sees; empty: ConversationID
	ConversationID string
	UserID         string
	TaskID         string       // the caller's name for this call, for finding it later
	Files          []ToolFile   // written below /workspace/inputs before the skill starts
	Policy         policy.Layer // overrides the skill's own limits, up to the ceilings

	// IdempotencyKey, 1 to 255 printable ASCII characters, makes a call safe to repeat: the same
	// call with the same key returns the result of the first exec and runs nothing.
	IdempotencyKey string
}

// ToolFile is an input file of a skill.
type ToolFile struct {
	Path    string // below inputs/, with slashes
	Content []byte
}

// ToolResult is the result of a call. A skill that ran and failed is a result, not an error.
type ToolResult struct {
	ExecID    string
	Status    string          // succeeded, failed, timeout, oom_killed, canceled, error, lost
	ExitCode  *int            // nil: it ended neither by itself nor by a signal
	Outputs   json.RawMessage // fits the tool's OutputSchema, with numbers as written; nil: the skill wrote none that is valid
	Stdout    string          // the first 64 KiB
	Stderr    string          // the first 64 KiB
	Artifacts []ToolArtifact
	Reason    string // nonzero_exit, timeout, invalid_output, …; empty after success
	Detail    string // a sentence for people, which names the limit to raise if there is one
	Replayed  bool   // the result of an earlier call with the same IdempotencyKey; nothing ran now
}

// Succeeded reports whether the skill succeeded with valid outputs.
func (r ToolResult) Succeeded() bool { return r.Status == "succeeded" }

// ToolArtifact is a file that the skill wrote. GET /sandbox/execs/{exec_id}/artifacts/{path}
// downloads it.
type ToolArtifact struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// Invoke calls a tool by its name, in either spelling, and waits until the skill has ended: at most
// the time in the queue plus the skill's time-out. args is a JSON object: a json.RawMessage is sent
// as it is, other values as encoding/json writes them, and nil as {}.
//
// Errors are the errors of POST /skills/{id}/invoke, such as fault.UnknownSkill,
// fault.InvalidInputs with the invalid fields, fault.PolicyDenied, and fault.QueueFull with
// RetryAfter. The end of ctx or of the connection does not stop an exec that runs already: find it
// by its TaskID, get its result by its IdempotencyKey, or end it with
// POST /sandbox/execs/{exec_id}/cancel.
func (p *SkillsProvider) Invoke(ctx context.Context, tool string, args any, call ToolCall) (ToolResult, error) {
	id, ok := skillOfTool(tool)
	if !ok || !toolID.MatchString(id) { // it becomes part of the URL
		return ToolResult{}, fault.New(fault.UnknownSkill, "%.100q is not the name of a skill's tool; ListTools returns them", tool)
	}
	if call.ProjectID == "" && call.ConversationID == "" && p.userQuery() != nil {
		call.ProjectID = p.agent + "~" + p.user
	}
	body, err := encodeCall(args, call)
	if err != nil {
		return ToolResult{}, err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if call.IdempotencyKey != "" {
		header.Set("Idempotency-Key", call.IdempotencyKey)
	}
	a, err := p.send(ctx, http.MethodPost, []string{"skills", id, "invoke"}, nil, body, header)
	if err != nil {
		return ToolResult{}, err
	}
	var result struct {
		Exec struct {
			ExecID      string         `json:"exec_id"`
			Status      string         `json:"status"`
			ExitCode    *int           `json:"exit_code"`
			Stdout      string         `json:"stdout"`
			Stderr      string         `json:"stderr"`
			Artifacts   []ToolArtifact `json:"artifacts"`
			ErrorReason string         `json:"error_reason"`
			Detail      string         `json:"detail"`
		} `json:"exec"`
		Outputs json.RawMessage `json:"outputs"`
	}
	if err := a.decode(&result); err != nil {
		return ToolResult{}, err
	}
	x := result.Exec
	if bytes.Equal(result.Outputs, []byte("null")) {
		result.Outputs = nil
	}
	return ToolResult{
		ExecID: x.ExecID, Status: x.Status, ExitCode: x.ExitCode, Outputs: result.Outputs, Stdout: x.Stdout, Stderr: x.Stderr,
		Artifacts: x.Artifacts, Reason: x.ErrorReason, Detail: x.Detail, Replayed: a.header.Get("Idempotency-Replayed") == "true",
	}, nil
}

var toolID = regexp.MustCompile(`^[a-z0-9]+(\.[a-z0-9]+)+$`)

// encodeCall returns the request's body; fault.InvalidInputs for arguments that cannot be JSON.
func encodeCall(args any, call ToolCall) ([]byte, error) {
	type file struct {
		Path     string `json:"path"`
		Content  []byte `json:"content"` // encoding/json writes bytes as base64
		Encoding string `json:"encoding"`
	}
	type taskRef struct {
		TaskID string `json:"task_id"`
	}
	body := struct {
		ProjectID      string       `json:"project_id,omitempty"`
		ConversationID string       `json:"conversation_id,omitempty"`
		UserID         string       `json:"user_id,omitempty"`
		Inputs         any          `json:"inputs,omitempty"`
		Files          []file       `json:"files,omitempty"`
		Policy         policy.Layer `json:"policy_overrides"`
		TaskRef        *taskRef     `json:"task_ref,omitempty"`
	}{ProjectID: call.ProjectID, ConversationID: call.ConversationID, UserID: call.UserID, Inputs: args, Policy: call.Policy}
	if raw, ok := args.(json.RawMessage); ok && len(raw) == 0 {
		body.Inputs = nil
	}
	for _, f := range call.Files {
		body.Files = append(body.Files, file{Path: f.Path, Content: append([]byte{}, f.Content...), Encoding: "base64"})
	}
	if call.TaskID != "" {
		body.TaskRef = &taskRef{call.TaskID}
	}
	text, err := json.Marshal(body)
	var unsupported *json.UnsupportedTypeError
	switch {
	case errors.As(err, &unsupported):
		return nil, fault.Wrap(fault.InvalidInputs, err, "the arguments hold a %s, which JSON cannot express", unsupported.Type)
	case err != nil:
		return nil, fault.Wrap(fault.InvalidInputs, err, "the arguments cannot be written as JSON: %s", err)
	}
	return text, nil
}

// userQuery is the query for the user's packages; nil when there is no user.
func (p *SkillsProvider) userQuery() url.Values {
	if p.agent == "" && p.user == "" {
		return nil
	}
	return url.Values{"agent_id": {p.agent}, "user_id": {p.user}}
}
