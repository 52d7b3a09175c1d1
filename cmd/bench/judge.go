//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// judge runs a job through the REST interface of a go-judge and times the answer. Its limits are near those of our execs.
func judge(ctx context.Context, client *http.Client, url string, j job) ([]float64, error) {
	// Paths in the file system of go-judge's containers: the host's own /usr and /bin.
	program := map[string]string{"bash": "/bin/bash", "python": "/usr/bin/python3"}[j.command]
	body, err := json.Marshal(map[string]any{"cmd": []any{map[string]any{
		"args": append([]string{program}, j.args...), "env": []string{"PATH=/usr/bin:/bin"},
		"files": []any{
			map[string]any{"content": ""}, map[string]any{"name": "stdout", "max": 10 << 10}, map[string]any{"name": "stderr", "max": 10 << 10},
		},
		"cpuLimit": (10 * time.Second).Nanoseconds(), "memoryLimit": 256 << 20, "procLimit": 50,
	}}})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(url, "/")+"/run", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	begun := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("go-judge: %w", err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	took := since(begun)
	if err != nil {
		return nil, fmt.Errorf("go-judge: %w", err)
	}
	var answers []struct {
		Status string `json:"status"`
	}
	if resp.StatusCode != http.StatusOK || json.Unmarshal(content, &answers) != nil || len(answers) != 1 || answers[0].Status != "Accepted" {
		return nil, fmt.Errorf("go-judge did not run the job: %d %s", resp.StatusCode, content)
	}
	return took, nil
}
