package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	client "secbox/clients/go"
	"secbox/fault"
)

// Bounds of --each.
const (
	maxLine       = 32 << 20 // bytes
	maxBatchBytes = 8 << 20
	maxEach       = 100_000 // lines
	queuePause    = time.Second
)

// outcomeOfLine is what --each prints for a line.
type outcomeOfLine struct {
	Line     int             `json:"line"` // from 1
	ExecID   string          `json:"exec_id,omitempty"`
	Status   string          `json:"status"`
	ExitCode *int            `json:"exit_code,omitempty"`
	Reason   string          `json:"error_reason,omitempty"`
	Detail   string          `json:"detail,omitempty"`
	request  json.RawMessage // nil: it is in the queue or refused
}

// runEach puts the requests of a file into the queue, waits until all have ended, and prints an
// outcome for each.
func (o *execOptions) runEach(cmd *cobra.Command, api *client.Client) error {
	lines, err := o.readEach(cmd.InOrStdin())
	if err != nil {
		return err
	}
	task := first(o.task, "each-"+client.NewKey())
	progress := newProgress(cmd.ErrOrStderr())
	defer progress.end()
	ctx := cmd.Context()
	for left := lines; len(left) > 0; {
		settled, err := o.enqueue(ctx, api, task, left)
		err = inPlaces(err, "execs", func(i int) string { return fmt.Sprintf("--each: line %d", left[i].Line) })
		left = slices.DeleteFunc(slices.Clone(left), func(line *outcomeOfLine) bool { return line.request == nil })
		if err != nil {
			return fmt.Errorf("%w (%d of %d are in the queue: secbox ls --task %s)", err, len(lines)-len(left), len(lines), task)
		}
		progress.show("%d of %d in the queue", len(lines)-len(left), len(lines))
		if settled == 0 { // it is full
			if !sleep(ctx, queuePause) {
				return context.Cause(ctx)
			}
		}
	}
	if err := o.awaitEach(ctx, api, task, lines, progress); err != nil {
		return err
	}
	progress.end()
	failed := 0
	out := json.NewEncoder(harmless{cmd.OutOrStdout(), true})
	for _, line := range lines {
		if line.Status != "succeeded" {
			failed++
		}
		if err := out.Encode(line); err != nil {
			return err
		}
	}
	if failed > 0 {
		return exit{exitFailed, fmt.Sprintf("%d of %d did not succeed", failed, len(lines))}
	}
	return nil
}

// readEach reads the file of --each.
func (o *execOptions) readEach(stdin io.Reader) (lines []*outcomeOfLine, err error) {
	in := stdin
	if o.each != "-" {
		f, err := os.Open(o.each)
		if err != nil {
			return nil, fault.Wrap(fault.InvalidRequest, err, "--each: %s", err)
		}
		defer f.Close()
		in = f
	}
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, maxLine)
	for n := 1; scan.Scan(); n++ {
		text := bytes.TrimSpace(scan.Bytes())
		if n == 1 {
			text = bytes.TrimSpace(withoutBOM(text))
		}
		if len(text) == 0 {
			continue
		}
		var request map[string]json.RawMessage
		if err := json.Unmarshal(text, &request); err != nil {
			return nil, fault.Wrap(fault.InvalidRequest, err, "--each: line %d is no JSON object: %s", n, err)
		}
		if request["task_ref"] != nil {
			return nil, fault.New(fault.InvalidRequest, "--each: line %d has task_ref; all lines are one task: use --task", n)
		}
		if len(lines) == maxEach {
			return nil, fault.New(fault.InvalidRequest, "--each: more than %d lines; split the file", maxEach)
		}
		lines = append(lines, &outcomeOfLine{Line: n, request: bytes.Clone(text)})
	}
	if err := scan.Err(); err != nil {
		return nil, fault.Wrap(fault.InvalidRequest, err, "--each: %s", err)
	}
	return lines, nil
}

// enqueue puts the first lines into the queue, and drops the requests of those that are settled: in
// the queue or refused.
func (o *execOptions) enqueue(ctx context.Context, api *client.Client, task string, lines []*outcomeOfLine) (settled int, err error) {
	var reqs []json.RawMessage
	for size := 0; len(reqs) < min(len(lines), client.MaxBatch) && (len(reqs) == 0 || size+len(lines[len(reqs)].request) < maxBatchBytes); {
		line := lines[len(reqs)]
		var request map[string]json.RawMessage
		if err := json.Unmarshal(line.request, &request); err != nil {
			return 0, err
		}
		ref, _ := json.Marshal(client.TaskRef{TaskID: task})
		request["task_ref"] = ref
		if request["project_id"] == nil && request["conversation_id"] == nil {
			request["project_id"], _ = json.Marshal(project(o.getenv, o.project))
		}
		if policy := o.policy(); policy != nil && request["policy_overrides"] == nil {
			request["policy_overrides"], _ = json.Marshal(policy)
		}
		text, err := json.Marshal(request)
		if err != nil {
			return 0, err
		}
		size += len(text)
		reqs = append(reqs, text)
	}
	batch, err := api.StartAllRaw(ctx, "", reqs)
	if err != nil {
		return 0, err
	}
	for i, item := range batch.Items[:min(len(batch.Items), len(reqs))] {
		line := lines[i]
		switch e := item.Error; {
		case e == nil:
			line.ExecID, line.Status = item.ExecID, item.Status
		case e.Code == string(fault.QueueFull):
			continue // it comes again
		default:
			line.ExecID, line.Status, line.Reason, line.Detail = e.ExecID, "rejected", e.Code, e.Error()
		}
		line.request = nil
		settled++
	}
	return settled, nil
}

// awaitEach waits until the execs of the task have ended, and completes the lines.
func (o *execOptions) awaitEach(ctx context.Context, api *client.Client, task string, lines []*outcomeOfLine, progress *progress) error {
	byID := map[string]*outcomeOfLine{}
	for _, line := range lines {
		if line.ExecID != "" {
			byID[line.ExecID] = line
		}
	}
	for len(byID) > 0 {
		now, err := api.WaitTask(ctx, task, 2*time.Second)
		if err != nil {
			return fmt.Errorf("%w (the execs go on: secbox wait --task %s)", err, task)
		}
		progress.show("%d of %d ended", now.Total-now.Unended, now.Total)
		if now.Ended {
			break
		}
	}
	for rec, err := range api.Execs(ctx, url.Values{"task_id": {task}, "limit": {"500"}}) {
		if err != nil {
			return err
		}
		if line := byID[rec.ExecID]; line != nil && line.Status != "rejected" {
			line.Status, line.ExitCode, line.Reason, line.Detail = rec.Status, rec.ExitCode, rec.ErrorReason, rec.Detail
		}
	}
	return nil
}

// progress shows on a terminal how far something is, on one line. It is silent anywhere else.
type progress struct {
	to    io.Writer // nil: no terminal
	shown bool
}

func newProgress(stderr io.Writer) *progress {
	if !isTerminal(stderr) {
		return &progress{}
	}
	return &progress{to: stderr}
}

func (p *progress) show(format string, args ...any) {
	if p.to != nil {
		fmt.Fprintf(p.to, "\r\x1b[K"+format, args...)
		p.shown = true
	}
}

func (p *progress) end() {
	if p.shown {
		fmt.Fprint(p.to, "\r\x1b[K")
		p.shown = false
	}
}
