package mcpserver

import (
	"context"
	"net/url"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/fault"
	"secbox/mcp/tools"
	"secbox/sandbox"
)

// addFileTools offers the tools of package tools in the sessions of a user's workspace. They work
// in the user's sandbox.
func (s *Server) addFileTools(to *toolSet, offered []*tools.Tool, project string) {
	for _, tool := range offered {
		destructive := !tool.ReadOnly
		to.offer(&mcp.Tool{
			Name: tool.Name, Title: tool.Title, Description: tool.Description, InputSchema: tool.Schema,
			Annotations: &mcp.ToolAnnotations{
				Title: tool.Title, ReadOnlyHint: tool.ReadOnly, DestructiveHint: &destructive,
				OpenWorldHint: &tool.OpenWorld,
			},
		}, s.fileToolHandler(tool, project))
	}
}

// fileToolHandler handles calls of one tool in the sessions of one workspace.
func (s *Server) fileToolHandler(tool *tools.Tool, project string) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		who, err := callerOf(req.Extra)
		if err != nil {
			return s.failure(ctx, err), nil
		}
		release, err := who.hold(0)
		if err != nil {
			return s.failure(ctx, err), nil
		}
		defer release()
		if !who.token.MayUse(project, "", "") {
			return s.failure(ctx, fault.New(fault.Forbidden, "the workspace %s is not in the token's scope", project)), nil
		}
		ctx, cancel := context.WithCancel(sandbox.WithRequest(ctx, sandbox.Request{RequestedBy: who.token.ID}))
		defer cancel()
		defer s.sessions.begin(req.Session.ID(), &call{server: s, cancel: cancel})()
		state := s.sessions.toolsOf(req.Session.ID(), func() *tools.Session { return s.cfg.Tools(project) })
		by := tools.Caller{Reserve: who.reserve, Request: who.request}
		if token := req.Params.GetProgressToken(); token != nil {
			by.Progress = outputReports(ctx, req.Session, token)
		}
		result, err := tool.Call(tools.WithCaller(ctx, by), state, req.Params.Arguments)
		if err != nil {
			return s.failure(ctx, err), nil
		}
		return fileToolResult(result), nil
	}
}

// outputReports returns a function that sends the latest output of a command as a progress
// notification. It fails when the client is gone, which ends the call.
func outputReports(ctx context.Context, session *mcp.ServerSession, token any) func(string) {
	progress := 0.0
	return func(output string) {
		progress++
		_ = session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: progress, Message: output})
	}
}

func fileToolResult(r *tools.Result) *mcp.CallToolResult {
	out := &mcp.CallToolResult{IsError: r.Failed, Meta: mcp.Meta{}, Content: []mcp.Content{&mcp.TextContent{Text: r.Text}}}
	for key, value := range r.Meta {
		out.Meta["secbox/"+key] = value
	}
	if r.Image != nil {
		out.Content = append(out.Content, &mcp.ImageContent{Data: r.Image, MIMEType: r.MIME})
	}
	if r.File != nil {
		out.Content = append(out.Content, &mcp.EmbeddedResource{Resource: contentsOf((&url.URL{Scheme: "file", Path: r.File.Path}).String(),
			mimeOf(r.File.Path), r.File.Content)})
	}
	return out
}
