package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
)

// Skill is a skill that the server runs.
type Skill struct {
	ID          string          `json:"id"`
	Description string          `json:"description"`
	Raw         json.RawMessage `json:"-"` // with its schemas, limits and files
}

// UnmarshalJSON keeps the whole skill.
func (s *Skill) UnmarshalJSON(text []byte) error {
	type plain Skill
	s.Raw = append(json.RawMessage(nil), text...)
	return json.Unmarshal(text, (*plain)(s))
}

// Skills lists the skills.
func (c *Client) Skills(ctx context.Context) ([]Skill, error) {
	var list struct {
		Items []Skill `json:"items"`
	}
	_, err := c.json(ctx, call{method: http.MethodGet, path: "/skills"}, &list)
	return list.Items, err
}

// Skill returns a skill.
func (c *Client) Skill(ctx context.Context, id string) (s Skill, err error) {
	_, err = c.json(ctx, call{method: http.MethodGet, path: segments("skills", id)}, &s)
	return s, err
}

// Invocation is a call of a skill.
type Invocation struct {
	Project   string          `json:"project_id,omitempty"`
	UserID    string          `json:"user_id,omitempty"`
	SessionID string          `json:"session_id,omitempty"`
	Inputs    json.RawMessage `json:"inputs,omitempty"`
	Files     []Input         `json:"files,omitempty"`
	Policy    *Policy         `json:"policy_overrides,omitempty"`
	Task      *TaskRef        `json:"task_ref,omitempty"`

	Key string `json:"-"` // the Idempotency-Key; empty: a new one
}

// Invoked is the outcome of a skill.
type Invoked struct {
	Exec    Result          `json:"exec"`
	Outputs json.RawMessage `json:"outputs"` // null: it left none that its schema allows
}

// Invoke calls a skill and returns its outcome.
func (c *Client) Invoke(ctx context.Context, skillID string, in Invocation) (out Invoked, err error) {
	_, err = c.json(ctx, adding(segments("skills", skillID, "invoke"), in, &in.Key), &out)
	return out, err
}

// V1 makes a request to a route below /v1/, with content unless that is nil, and returns its data.
func (c *Client) V1(ctx context.Context, method, path string, query url.Values, contentType string, content io.Reader,
) (json.RawMessage, error) {
	var envelope struct {
		Data json.RawMessage `json:"data"`
	}
	req := call{method: method, path: path, query: query, content: content, once: method != http.MethodGet}
	if contentType != "" {
		req.header = map[string]string{"Content-Type": contentType}
	}
	_, err := c.json(ctx, req, &envelope)
	return envelope.Data, err
}
