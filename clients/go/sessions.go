package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// SessionRequest starts a session: a container that stays, for many execs.
type SessionRequest struct {
	Project     string            `json:"project_id,omitempty"`
	UserID      string            `json:"user_id,omitempty"`
	Name        string            `json:"name,omitempty"`
	Image       string            `json:"image,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	IdleMS      int64             `json:"idle_ms,omitempty"` // it ends after this time without an exec
	TTLMS       int64             `json:"ttl_ms,omitempty"`  // it ends at the latest
	CallbackURL string            `json:"callback_url,omitempty"`
	Policy      *Policy           `json:"policy_overrides,omitempty"`
	Task        *TaskRef          `json:"task_ref,omitempty"`

	Key string `json:"-"` // the Idempotency-Key; empty: a new one
}

// Session is a session as it is now.
type Session struct {
	ID           string    `json:"session_id"`
	Name         string    `json:"name"`
	Status       string    `json:"status"` // running, ended
	EndReason    string    `json:"end_reason"`
	Project      string    `json:"project_id"`
	Image        string    `json:"image"`
	CreatedAt    time.Time `json:"created_at"`
	ExpiresAt    time.Time `json:"expires_at"`
	Execs        int       `json:"execs"`
	ExecsRunning int       `json:"execs_running"`
}

// StartSession starts a session. Run commands in it with Request.SessionID.
func (c *Client) StartSession(ctx context.Context, req SessionRequest) (s Session, err error) {
	_, err = c.json(ctx, adding("/sandbox/sessions", req, &req.Key), &s)
	return s, err
}

// Session returns a session.
func (c *Client) Session(ctx context.Context, id string) (s Session, err error) {
	_, err = c.json(ctx, call{method: http.MethodGet, path: segments("sandbox", "sessions", id)}, &s)
	return s, err
}

// Sessions returns the sessions that match a filter, newest first.
func (c *Client) Sessions(ctx context.Context, filter url.Values) iter.Seq2[Session, error] {
	return pages[Session](ctx, c, "/sandbox/sessions", filter)
}

// ExtendSession gives a session more time, counted from now.
func (c *Client) ExtendSession(ctx context.Context, id string, ttl time.Duration) (s Session, err error) {
	body := map[string]int64{"ttl_ms": ttl.Milliseconds()}
	_, err = c.json(ctx, call{method: http.MethodPost, path: segments("sandbox", "sessions", id, "extend"), body: body}, &s)
	return s, err
}

// PortLink is a link to a port of a session.
type PortLink struct {
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
}

// LinkPort makes a link to a port of a session, on which a server listens inside. It expires after
// ttl; 0: an hour.
func (c *Client) LinkPort(ctx context.Context, id string, port int, ttl time.Duration) (l PortLink, err error) {
	body := map[string]int64{}
	if ttl != 0 {
		body["ttl_seconds"] = int64(ttl.Seconds())
	}
	path := segments("sandbox", "sessions", id, "ports", strconv.Itoa(port), "link")
	_, err = c.json(ctx, call{method: http.MethodPost, path: path, body: body}, &l)
	return l, err
}

// EndSession ends a session and what runs in it.
func (c *Client) EndSession(ctx context.Context, id string) error {
	_, err := c.json(ctx, call{method: http.MethodDelete, path: segments("sandbox", "sessions", id)}, nil)
	return err
}
