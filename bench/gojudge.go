package bench

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

// What go-judge is asked for: limits that a job of nothing does not feel, near those of our execs.
const (
	judgeCPU    = 10 * time.Second
	judgeMemory = 256 << 20 // bytes
	judgeProcs  = 50
	judgeOutput = 10 << 10 // bytes kept of each stream
)

// judgeArgs are a job's argv in the file system that go-judge gives its containers: the host's own /usr and /bin.
func judgeArgs(j job) []string {
	program := map[string]string{"bash": "/bin/bash", "python": "/usr/bin/python3"}[j.command]
	return append([]string{program}, j.args...)
}

// judge runs a job through go-judge's REST interface and times the answer.
func judge(ctx context.Context, client *http.Client, url string, j job) (time.Duration, error) {
	body, err := json.Marshal(map[string]any{"cmd": []any{map[string]any{
		"args": judgeArgs(j),
		"env":  []string{"PATH=/usr/bin:/bin"},
		"files": []any{
			map[string]any{"content": ""},
			map[string]any{"name": "stdout", "max": judgeOutput},
			map[string]any{"name": "stderr", "max": judgeOutput},
		},
		"cpuLimit":    judgeCPU.Nanoseconds(),
		"memoryLimit": judgeMemory,
		"procLimit":   judgeProcs,
	}}})
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(url, "/")+"/run", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	begun := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("go-judge: %w", err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	took := time.Since(begun)
	if err != nil {
		return 0, fmt.Errorf("go-judge: %w", err)
	}
	var answers []struct {
		Status string `json:"status"`
	}
	if resp.StatusCode != http.StatusOK || json.Unmarshal(content, &answers) != nil || len(answers) != 1 || answers[0].Status != "Accepted" {
		return 0, fmt.Errorf("go-judge did not run the job: %d %s", resp.StatusCode, content)
	}
	return took, nil
}
