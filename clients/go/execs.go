package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Run runs a command and returns its result, with any exit code. When ctx ends, the exec goes on.
func (c *Client) Run(ctx context.Context, req Request) (Result, error) {
	var res Result
	header, err := c.json(ctx, adding("/sandbox/execs", req, &req.Key), &res)
	res.Replayed = header.Get("Idempotency-Replayed") == "true"
	return res, err
}

// Start puts a command into the queue, or runs one in a session, and does not wait for it.
func (c *Client) Start(ctx context.Context, req Request) (Record, error) {
	post := adding("/sandbox/execs", req, &req.Key)
	post.header["Prefer"] = "respond-async"
	var rec Record
	_, err := c.json(ctx, post, &rec)
	return rec, err
}

// adding is a request that adds something, and may be repeated.
func adding(path string, body any, key *string) call {
	if *key == "" {
		*key = NewKey()
	}
	return call{method: http.MethodPost, path: path, body: body, header: map[string]string{"Idempotency-Key": *key}}
}

// Batch is the outcome of StartAll.
type Batch struct {
	Accepted int         `json:"accepted"`
	Refused  int         `json:"refused"`
	Items    []BatchItem `json:"items"` // in the order of the requests
}

// BatchItem is the outcome of one request of a batch.
type BatchItem struct {
	ExecID   string `json:"exec_id"`
	Status   string `json:"status"`
	Replayed bool   `json:"replayed"`
	Error    *Error `json:"error"` // nil: it was accepted
}

// MaxBatch is how many requests StartAll takes.
const MaxBatch = 1000

// StartAll puts up to MaxBatch commands into the queue, in one transaction. Their own keys do not
// count; key is the batch's, and a new one if empty.
func (c *Client) StartAll(ctx context.Context, key string, reqs []Request) (Batch, error) {
	raw := make([]json.RawMessage, len(reqs))
	for i, req := range reqs {
		var err error
		if raw[i], err = json.Marshal(req); err != nil {
			return Batch{}, err
		}
	}
	return c.StartAllRaw(ctx, key, raw)
}

// StartAllRaw is StartAll for requests in JSON.
func (c *Client) StartAllRaw(ctx context.Context, key string, reqs []json.RawMessage) (out Batch, err error) {
	body := struct {
		Execs []json.RawMessage `json:"execs"`
	}{reqs}
	_, err = c.json(ctx, adding("/sandbox/execs/batch", body, &key), &out)
	return out, err
}

// waitMS is how long one request waits, in milliseconds.
const waitMS = "60000"

// Wait waits until an exec has ended, and returns its record.
func (c *Client) Wait(ctx context.Context, execID string) (rec Record, err error) {
	for err == nil && !rec.Ended() {
		rec = Record{}
		_, err = c.json(ctx, call{
			method: http.MethodGet, path: segments("sandbox", "execs", execID, "wait"),
			query: url.Values{"timeout_ms": {waitMS}},
		}, &rec)
	}
	return rec, err
}

// Task are the execs of a task, by status.
type Task struct {
	TaskID   string         `json:"task_id"`
	Ended    bool           `json:"ended"` // all of them
	Total    int            `json:"total"`
	Unended  int            `json:"unended"`
	Statuses map[string]int `json:"statuses"`
}

// WaitTask waits for at most d until all execs of a task have ended, and returns how they are then.
func (c *Client) WaitTask(ctx context.Context, taskID string, d time.Duration) (Task, error) {
	until := time.Now().Add(d)
	for {
		left := max(0, min(time.Minute, time.Until(until)))
		var task Task
		_, err := c.json(ctx, call{method: http.MethodGet, path: "/sandbox/execs/wait", query: url.Values{
			"task_id": {taskID}, "timeout_ms": {strconv.FormatInt(left.Milliseconds(), 10)},
		}}, &task)
		if err != nil || task.Ended || left == 0 {
			return task, err
		}
	}
}

// Exec returns the record of an exec.
func (c *Client) Exec(ctx context.Context, execID string) (rec Record, err error) {
	_, err = c.json(ctx, call{method: http.MethodGet, path: segments("sandbox", "execs", execID)}, &rec)
	return rec, err
}

// Execs returns the records that match a filter, newest first, such as
// url.Values{"status": {"failed,timeout"}, "since": {"24h"}}; the contract has all filters.
func (c *Client) Execs(ctx context.Context, filter url.Values) iter.Seq2[Record, error] {
	return pages[Record](ctx, c, "/sandbox/execs", filter)
}

// pages reads all pages of a list.
func pages[T any](ctx context.Context, c *Client, path string, filter url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		query := url.Values{}
		for name, values := range filter {
			query[name] = values
		}
		for {
			var page struct {
				Items   []T     `json:"items"`
				Entries []T     `json:"entries"` // of a directory
				Next    *string `json:"next_cursor"`
			}
			if _, err := c.json(ctx, call{method: http.MethodGet, path: path, query: query}, &page); err != nil {
				yield(*new(T), err)
				return
			}
			for _, item := range append(page.Items, page.Entries...) {
				if !yield(item, nil) {
					return
				}
			}
			if page.Next == nil {
				return
			}
			query.Set("cursor", *page.Next)
		}
	}
}

// Cancel requests the end of an exec, and does not wait for it. The error exec_ended says that it
// has ended already.
func (c *Client) Cancel(ctx context.Context, execID string) error {
	_, err := c.json(ctx, call{method: http.MethodPost, path: segments("sandbox", "execs", execID, "cancel")}, nil)
	return err
}

// Resolve returns the policy that a request would have: each value with the layer it comes from.
func (c *Client) Resolve(ctx context.Context, req Request) (policy json.RawMessage, err error) {
	body := struct {
		Project        string  `json:"project_id,omitempty"`
		ConversationID string  `json:"conversation_id,omitempty"`
		UserID         string  `json:"user_id,omitempty"`
		SkillID        string  `json:"skill_id,omitempty"`
		Image          string  `json:"image,omitempty"`
		Policy         *Policy `json:"policy_overrides,omitempty"`
	}{req.Project, req.ConversationID, req.UserID, req.SkillID, req.Image, req.Policy}
	_, err = c.json(ctx, call{method: http.MethodPost, path: "/sandbox/policy/resolve", body: body}, &policy)
	return policy, err
}
