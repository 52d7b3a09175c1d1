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

// SkillsProvider offers the skills of a running core-api to an agent worker as tools: it lists them and calls them by name, over HTTP.
// It keeps no connection and no session of its own, sends nothing twice by itself, and is safe for concurrent use.
//
// Errors are *fault.Error. Those that core-api answered with carry its code, its words, the fields at fault and, when there is one, the
// exec that was audited for the refusal; fault.Internal with a cause means that there was no answer, or none of a core-api. The end of a
// context ends the waiting: errors.Is(err, context.Canceled) holds then.
type SkillsProvider struct {
	base   *url.URL
	token  string
	client http.Client
	agent  string // whose packages are tools too; empty: nobody's
	user   string

	mu   sync.Mutex
	etag string // of tools; empty while there are none
	list []Tool
}

// ProviderOption changes how a SkillsProvider works.
type ProviderOption func(*SkillsProvider, *providerOptions)

type providerOptions struct{ plainHTTP bool }

// WithHTTPClient gives the provider a client with another transport, such as one that knows a company's certificates. Redirects are not
// followed, whatever it says. Its Timeout, if it has one, bounds each call as a whole.
func WithHTTPClient(c *http.Client) ProviderOption {
	return func(p *SkillsProvider, _ *providerOptions) { p.client = *c }
}

// OverPlainHTTP sends the token over http:// also to another machine. Only for a network on which nobody else listens, such as that of
// the containers of one compose file.
func OverPlainHTTP() ProviderOption {
	return func(_ *SkillsProvider, o *providerOptions) { o.plainHTTP = true }
}

// ForUser adds the packages of one user of an agent that carry a manifest.json, each in the user's own version, and makes the user's
// workspace the project of every call that names none.
func ForUser(agentID, userID string) ProviderOption {
	return func(p *SkillsProvider, _ *providerOptions) { p.agent, p.user = agentID, userID }
}

// NewProvider makes a SkillsProvider for the core-api at baseURL, such as http://127.0.0.1:8003. The token is one of `core-api token
// create` with the role worker or admin, and empty where core-api needs none. It connects to nothing yet. fault.InvalidSettings for an
// address that is none, and for a token that would go over plain http to another machine.
func NewProvider(baseURL, token string, opts ...ProviderOption) (*SkillsProvider, error) {
	u, err := url.Parse(baseURL)
	switch {
	case err != nil:
		return nil, fault.New(fault.InvalidSettings, "the address of core-api is no URL; write it as http://127.0.0.1:8003")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.Opaque != "":
		return nil, fault.New(fault.InvalidSettings, "the address of core-api must be http://host:port or https://host:port")
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return nil, fault.New(fault.InvalidSettings, "the address of core-api must hold neither a user nor a query; a token is given beside it")
	}
	p := &SkillsProvider{base: u, token: token}
	var o providerOptions
	for _, option := range opts {
		option(p, &o)
	}
	if token != "" && u.Scheme == "http" && !o.plainHTTP && !isLoopback(u.Hostname()) {
		return nil, fault.New(fault.InvalidSettings,
			"the token would go to %s unencrypted; use https://, or OverPlainHTTP on a network where nobody else listens", u.Host)
	}
	p.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the token is for this server only
	return p, nil
}

// Tool is a skill as an agent sees it.
type Tool struct {
	Name         string          // skill.shell.run; Invoke takes it
	SkillID      string          // shell.run
	Title        string          // a few words for a person
	Description  string          // what it does and when to use it
	InputSchema  json.RawMessage // JSON Schema of the arguments, as the skill's manifest has it
	OutputSchema json.RawMessage // JSON Schema of the outputs
	ReadOnly     bool            // it leaves the project's files as they are
	Digest       string          // of the skill's files; another one is another version
}

// ListTools lists the skills that can be invoked now, by id. The answer is core-api's own, but comes over the wire only when something has
// changed since the last one.
func (p *SkillsProvider) ListTools(ctx context.Context) ([]Tool, error) {
	p.mu.Lock()
	etag, list := p.etag, p.list
	p.mu.Unlock()
	header := http.Header{}
	if etag != "" {
		header.Set("If-None-Match", etag)
	}
	a, err := p.send(ctx, http.MethodGet, []string{"skills"}, p.ofUser(), nil, header)
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

// ToolCall says for whom and where a tool is called. ProjectID or ConversationID must be there, unless the provider is ForUser; everything
// else may be left out.
type ToolCall struct {
	ProjectID      string // whose files the skill sees; empty: ConversationID
	ConversationID string
	UserID         string
	TaskID         string       // the caller's own name for this call, to look it up by later
	Files          []ToolFile   // written below /workspace/inputs before the skill starts
	Policy         policy.Layer // what is asked for instead of the skill's own limits, up to the ceilings

	// IdempotencyKey, 1 to 255 printable ASCII characters, makes a call that can be sent again: the same one under the same key is answered
	// by the first exec and runs nothing.
	IdempotencyKey string
}

// ToolFile is a file for a skill.
type ToolFile struct {
	Path    string // below inputs/, with slashes
	Content []byte
}

// ToolResult is how a call ended. A skill that ran and failed is a result, not an error.
type ToolResult struct {
	ExecID    string
	Status    string          // succeeded, failed, timeout, oom_killed, canceled, error, lost
	ExitCode  *int            // nil: it did not end by itself or by a signal
	Outputs   json.RawMessage // by the tool's OutputSchema, numbers as they were written; nil: the skill has left none that is valid
	Stdout    string          // the first 64 KiB
	Stderr    string          // the first 64 KiB
	Artifacts []ToolArtifact
	Reason    string // why it did not succeed: nonzero_exit, timeout, invalid_output, …; empty when it did
	Detail    string // a sentence for a person; names the limit to raise where there is one
	Replayed  bool   // an earlier call with the same IdempotencyKey is answered for; nothing ran now
}

// Succeeded reports whether the skill ended well and its outputs are valid.
func (r ToolResult) Succeeded() bool { return r.Status == "succeeded" }

// ToolArtifact is a file that the skill left. GET /sandbox/execs/{exec_id}/artifacts/{path} downloads it.
type ToolArtifact struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// Invoke calls a tool by its name, in either spelling, and waits until the skill has ended; it takes no longer than the skill's time-out
// and the queue before it. The arguments are a JSON object: a json.RawMessage goes as it is, anything else as encoding/json writes it, and
// nil is {}.
//
// fault.UnknownSkill, fault.InvalidInputs with the fields at fault, fault.PolicyDenied, fault.QueueFull with RetryAfter, and what else
// POST /skills/{id}/invoke answers with. The end of ctx, or of the connection, does not stop an exec that runs already: the TaskID finds
// it, an IdempotencyKey gets its answer later, and POST /sandbox/execs/{exec_id}/cancel ends it.
func (p *SkillsProvider) Invoke(ctx context.Context, tool string, args any, call ToolCall) (ToolResult, error) {
	id, ok := IDOfTool(tool)
	if !ok || !toolID.MatchString(id) { // it becomes a part of a path
		return ToolResult{}, fault.New(fault.UnknownSkill, "%.100q is no name of a skill's tool; ListTools gives them", tool)
	}
	if call.ProjectID == "" && call.ConversationID == "" && p.ofUser() != nil {
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

// encodeCall writes the request's body; fault.InvalidInputs for arguments that are no JSON.
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
		return nil, fault.Wrap(fault.InvalidInputs, err, "the arguments hold a %s, which JSON has no word for", unsupported.Type)
	case err != nil:
		return nil, fault.Wrap(fault.InvalidInputs, err, "the arguments cannot be written as JSON: %s", err)
	}
	return text, nil
}

// ofUser is the query for the user's packages; nil when there is no user.
func (p *SkillsProvider) ofUser() url.Values {
	if p.agent == "" && p.user == "" {
		return nil
	}
	return url.Values{"agent_id": {p.agent}, "user_id": {p.user}}
}
