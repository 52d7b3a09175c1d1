//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// judged is the side of a go-judge. It makes a directory for each run, in a tmpfs that it empties
// afterwards.
func judged(url string, j job) side {
	goJudge, directory := newClient(strings.TrimSuffix(url, "/")), fresh("first")
	return side{name: "go-judge", unit: ms, turn: timed(func(ctx context.Context,
		_ *subject,
	) error {
		return goJudge.judge(ctx, directory(), j)
	})}
}

// judge runs a job through the REST interface of a go-judge. Its limits are near the limits of our
// execs.
func (c *client) judge(ctx context.Context, directory string, j job) error {
	// Paths in the file system of go-judge's containers: the host's own /usr and /bin.
	program := map[string]string{"bash": "/bin/bash", "python": "/usr/bin/python3"}[j.command]
	body := map[string]any{"cmd": []any{map[string]any{
		"args": append([]string{program}, j.args...), "env": []string{"PATH=/usr/bin:/bin"},
		"files": []any{
			map[string]any{"content": ""},
			map[string]any{"name": "stdout", "max": 10 << 10},
			map[string]any{"name": "stderr", "max": 10 << 10},
		},
		"copyIn":   map[string]any{directory + "/empty": map[string]any{"content": ""}}, // makes the directory
		"cpuLimit": (10 * time.Second).Nanoseconds(), "memoryLimit": 256 << 20, "procLimit": 50,
	}}}
	var answers []struct{ Status string }
	err := c.call(ctx, http.MethodPost, "/run", body, &answers)
	if err == nil && (len(answers) != 1 || answers[0].Status != "Accepted") {
		err = fmt.Errorf("answer %+v", answers)
	}
	if err != nil {
		return fmt.Errorf("go-judge did not run the job: %w", err)
	}
	return nil
}
