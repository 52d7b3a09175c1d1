//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
)

// client makes requests to one server.
type client struct {
	*http.Client
	url   string
	token string // empty: none
}

func newClient(url string) *client {
	// no proxy
	return &client{Client: &http.Client{Timeout: callTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: maxConcurrent}}, url: url}
}

// call makes a request with a JSON body and decodes the answer into out; nil: none.
func (c *client) call(ctx context.Context, method, path string, body, out any) error {
	var content, answer bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return err
		}
	}
	err := c.send(ctx, method, path, "application/json", &content, &answer)
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(answer.Bytes(), out)
}

// send makes a request and copies the answer; any status but 200, 201 and 202 is an error. A file
// as the body is sent with its size.
func (c *client) send(ctx context.Context, method, path, contentType string, body io.Reader, into io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return err
	}
	if f, ok := body.(*os.File); ok {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		req.ContentLength = info.Size()
	}
	req.Header.Set("Content-Type", contentType)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode > http.StatusAccepted {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	_, err = io.Copy(into, resp.Body)
	return err
}
