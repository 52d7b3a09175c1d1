package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/audit"
	"secbox/fault"
	"secbox/runner"
	runnersession "secbox/runner/session"
	"secbox/skills/invoke"
)

// Keys of a result's _meta.
const (
	metaExecID     = "secbox/exec_id"
	metaStatus     = "secbox/status"
	metaExitCode   = "secbox/exit_code"
	metaReason     = "secbox/error_reason"
	metaDurationMS = "secbox/duration_ms"
	metaCode       = "secbox/code"   // of a fault
	metaFields     = "secbox/fields" // of a fault
	metaStream     = "secbox/stream" // of a text: stdout or stderr
)

// Limits of a result in bytes, 32 KiB in total: every byte that a model reads costs its user.
const (
	maxOutputs = 16 << 10 // of the skill's outputs
	maxTwice   = 2 << 10  // of outputs that are repeated as text, for clients without structured content
	maxStdout  = 8 << 10
	maxStderr  = 3 << 10
	maxLinks   = 2 << 10 // of artifacts' names

	maxShown       = 8 << 10 // of the texts among the results of a cell
	resultOverhead = 64      // that each result takes of them
	maxImages      = 2 << 20 // of their images, which are beside the 32 KiB
)

// success converts the result of an exec with any status.
func (s *Server) success(ctx context.Context, r invoke.Result) *mcp.CallToolResult {
	rec := r.Exec.Record
	result := &mcp.CallToolResult{
		IsError: rec.Status != audit.Succeeded,
		Meta: mcp.Meta{
			metaExecID: rec.ExecID, metaStatus: rec.Status, metaExitCode: rec.ExitCode, metaReason: rec.ErrorReason,
			metaDurationMS: rec.DurationMS,
		},
	}
	text := describe(rec)
	if r.Outputs != nil {
		outputs := shortenJSON(r.Outputs, maxOutputs)
		fits := len(outputs) == len(r.Outputs)
		if !fits && outputs != nil { // shortened strings may violate the schema
			_, err := r.Skill.CheckOutputs(ctx, outputs)
			fits = err == nil
		}
		if fits {
			result.StructuredContent = outputs
		}
		whole := uriOf(rec.ExecID, runner.SkillOutputFile)
		switch {
		case len(r.Outputs) <= maxTwice && !result.IsError:
			text = string(r.Outputs)
		case result.StructuredContent == nil:
			text += "\n" + headAndTail(string(r.Outputs), maxOutputs) + "\nThe whole output is the resource " + whole
		case len(outputs) < len(r.Outputs):
			text += "; long texts in the result are shortened, the whole output is the resource " + whole
		}
	}
	result.Content = []mcp.Content{&mcp.TextContent{Text: text}}
	add := func(c mcp.Content) { result.Content = append(result.Content, c) }
	for _, stream := range []struct {
		name, file string
		text       []byte
		bytes      int64 // written by the job
		more       bool  // was kept than text
		limit      int
	}{
		{"stdout", stdoutFile, r.Exec.Stdout, rec.StdoutBytes, r.Exec.StdoutCut, maxStdout},
		{"stderr", stderrFile, r.Exec.Stderr, rec.StderrBytes, r.Exec.StderrCut, maxStderr},
	} {
		if len(stream.text) == 0 {
			continue
		}
		part := stream.name + ":\n" + s.stream(ctx, rec, stream.name, stream.text, stream.more, stream.limit)
		if stream.more || len(stream.text) > stream.limit || int64(len(stream.text)) < stream.bytes {
			part += fmt.Sprintf("\nThe job wrote %d bytes; the resource %s has those that were kept", stream.bytes,
				uriOf(rec.ExecID, stream.file))
		}
		add(&mcp.TextContent{Text: part, Meta: mcp.Meta{metaStream: stream.name}})
	}
	left, names := 0, 0
	for _, a := range r.Exec.Artifacts {
		if a.Path == runner.SkillOutputFile || a.Path == runnersession.ResultsFile && r.Exec.Results != nil {
			continue // in the result already
		}
		uri := uriOf(rec.ExecID, a.Path)
		if names += len(uri) + len(a.Path); names > maxLinks {
			left++
			continue
		}
		size := a.Size
		add(&mcp.ResourceLink{URI: uri, Name: a.Path, MIMEType: mimeOf(a.Path), Size: &size})
	}
	if left > 0 {
		add(&mcp.TextContent{Text: fmt.Sprintf("%d more artifacts: GET /sandbox/execs/%s/artifacts lists all of them", left, rec.ExecID)})
	}
	return result
}

// formsOfText are the forms of a result that are shown as text, the first that it has.
var formsOfText = []string{"text/markdown", "text/plain", "application/json"}

// formsOfPage are the forms of a result that are only named.
var formsOfPage = []string{"text/html", "image/svg+xml"}

const formOfImage = "image/png"

// shownResults are the results of a cell. Each is shown as an image, if it has one, or as text.
// What they say is the job's own.
func (s *Server) shownResults(ctx context.Context, who caller, r runner.Result) (shown []mcp.Content) {
	var results []struct {
		Data  map[string]json.RawMessage
		Files map[string]string // artifacts
	}
	if json.Unmarshal(r.Results, &results) != nil {
		return nil // it is an artifact
	}
	texts, images := maxShown, int64(maxImages)
	for i, one := range results {
		image := s.imageOf(ctx, who, r.Record, one.Data[formOfImage], one.Files[formOfImage], &images)
		text := ""
		if image == nil {
			text = textOfForms(one.Data)
			for _, form := range formsOfPage {
				if one.Data[form] != nil || one.Files[form] != "" {
					in := cmp.Or(one.Files[form], runnersession.ResultsFile)
					text += fmt.Sprintf("\n(its %s is in the resource %s)", form, uriOf(r.Record.ExecID, in))
				}
			}
			if file := one.Files[formOfImage]; file != "" {
				text += "\n(the image is the resource " + uriOf(r.Record.ExecID, file) + ")"
			}
		}
		if texts -= resultOverhead; texts < len(text) {
			text = headAndTail(text, max(0, texts)) + fmt.Sprintf("\n(results from %d on, of %d, are cut; the resource %s has all of them)", i+1,
				len(results), uriOf(r.Record.ExecID, runnersession.ResultsFile))
			return append(shown, &mcp.TextContent{Text: text, Meta: mcp.Meta{metaStream: "results"}})
		}
		texts -= len(text)
		if image != nil {
			shown = append(shown, &mcp.ImageContent{Data: image, MIMEType: formOfImage})
		} else {
			shown = append(shown, &mcp.TextContent{Text: text, Meta: mcp.Meta{metaStream: "results"}})
		}
	}
	return shown
}

// textOfForms returns the form of a result that is shown as text; "" if it has none.
func textOfForms(data map[string]json.RawMessage) (text string) {
	for _, form := range formsOfText {
		if raw, ok := data[form]; ok {
			if json.Unmarshal(raw, &text) != nil {
				text = string(raw)
			}
			break
		}
	}
	return text
}

// imageOf returns an image of a result, which is in it or a file, and takes its bytes from room;
// nil if there is none, or no room.
func (s *Server) imageOf(ctx context.Context, who caller, rec audit.Record, data json.RawMessage, file string, room *int64) []byte {
	var image []byte
	if file == "" {
		if len(data) == 0 || json.Unmarshal(data, &image) != nil {
			return nil
		}
	} else if left, err := s.cfg.Runner.Artifacts(counted(ctx, who), rec); err == nil {
		defer left.Close()
		in, item, err := left.Open(ctx, file)
		if err != nil {
			return nil
		}
		defer in.Close()
		if item.Size > *room || who.reserve((contentPrice+encodedPrice)*item.Size) != nil {
			return nil
		}
		if image, err = io.ReadAll(io.LimitReader(in, item.Size)); err != nil {
			return nil
		}
	}
	if int64(len(image)) > *room || http.DetectContentType(image) != formOfImage {
		return nil
	}
	*room -= int64(len(image))
	return image
}

// describe describes the end of an exec.
func describe(rec audit.Record) string {
	text := fmt.Sprintf("exec %s ended as %s", rec.ExecID, rec.Status)
	var why []string
	if rec.ErrorReason != "" {
		why = append(why, "reason "+string(rec.ErrorReason))
	}
	if rec.ExitCode != nil && !strings.Contains(rec.Detail, "exit code") {
		why = append(why, fmt.Sprintf("exit code %d", *rec.ExitCode))
	}
	if len(why) > 0 {
		text += " (" + strings.Join(why, ", ") + ")"
	}
	if rec.Detail != "" {
		// Tools have an argument for this limit.
		text += ": " + strings.ReplaceAll(rec.Detail, "policy_overrides.timeout_ms", "timeout_ms")
	}
	return text
}

// failure is the result of a call that did not run. It is not a protocol error, so that the model
// reads the remedy.
func (s *Server) failure(ctx context.Context, err error) *mcp.CallToolResult {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "the call was canceled"}}}
	}
	e := fault.From(err)
	level := slog.LevelDebug
	if e.Code == fault.Internal {
		level = slog.LevelError
	}
	s.cfg.Logger.Log(ctx, level, "an MCP call was refused", "code", e.Code, "exec_id", e.ExecID, "error", err)

	meta := mcp.Meta{metaCode: e.Code}
	message, fields := e.Message, slices.Clone(e.Fields)
	if e.Code == fault.InvalidInputs && len(fields) > 0 {
		// The skill's inputs are the arguments of the tool.
		message = "the arguments do not match the tool's schema; nothing ran"
		for i, f := range fields {
			fields[i].Field = strings.TrimPrefix(f.Field, "inputs.")
		}
	}
	text := fmt.Sprintf("%s: %s", e.Code, message)
	for _, f := range fields {
		text += fmt.Sprintf("\n- %s: %s", f.Field, f.Reason)
	}
	if kept := fieldsWithin(fields, maxOutputs); len(kept) > 0 {
		meta[metaFields] = kept
	}
	text = headAndTail(text, maxOutputs)
	if e.ExecID != "" {
		text += "\nThe record of this refusal is exec " + e.ExecID + "."
		meta[metaExecID] = e.ExecID
	}
	if e.RetryAfter > 0 {
		text += fmt.Sprintf("\nTry again in %.0f s.", max(1, e.RetryAfter.Seconds()))
	}
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}, Meta: meta}
}

// fieldsWithin returns the first fields, of at most so many bytes in total.
func fieldsWithin(fields []fault.Field, bytes int) []fault.Field {
	for i, f := range fields {
		if bytes -= len(f.Field) + len(f.Reason); bytes < 0 {
			return fields[:i]
		}
	}
	return fields
}
