package mcpserver

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/internal/traces"
)

// traced makes the work for a message belong to the span that the message, or else its HTTP
// request, names, and makes a span of it by OpenTelemetry's conventions for MCP. Arguments, results
// and addresses of resources are not in it.
func (s *Server) traced(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		ctx = traces.FromMessage(ctx, traceparentOf(req), headerOf(req))
		if s.cfg.Tracer == nil || method == "ping" || strings.HasPrefix(method, "notifications/") {
			return next(ctx, method, req)
		}
		ctx, span := s.cfg.Tracer.Serve(ctx, method)
		result, err := next(ctx, method, req)
		if span.Recording() {
			describeMessage(span, method, req, err)
		}
		span.End(errorType(result, err))
		return result, err
	}
}

// describeMessage sets the attributes of a message's span. The SDK knows the method. If the call
// was answered, the tool's name is the name of a known tool.
func describeMessage(span traces.Span, method string, req mcp.Request, err error) {
	span.Set(traces.Text("mcp.method.name", method), traces.Text("network.protocol.name", "http"), traces.Text("network.transport", "tcp"))
	if session, ok := req.GetSession().(*mcp.ServerSession); ok {
		span.Set(traces.Text("mcp.session.id", session.ID()))
		if params := session.InitializeParams(); params != nil {
			span.Set(traces.Text("mcp.protocol.version", params.ProtocolVersion))
		}
	}
	if who, e := callerOf(req.GetExtra()); e == nil {
		span.Set(traces.Text("secbox.token.id", who.token.ID))
	}
	if call, ok := req.(*mcp.CallToolRequest); ok && err == nil {
		span.Rename(method + " " + call.Params.Name)
		span.Set(traces.Text("gen_ai.operation.name", "execute_tool"), traces.Text("gen_ai.tool.name", call.Params.Name))
	}
	if code := rpcCode(err); code != "" {
		span.Set(traces.Text("rpc.response.status_code", code))
	}
}

// errorType is tool_error for a tool that failed, and otherwise the code of JSON-RPC.
func errorType(result mcp.Result, err error) string {
	if r, ok := result.(*mcp.CallToolResult); ok && r != nil && r.IsError {
		return "tool_error"
	}
	return rpcCode(err)
}

func rpcCode(err error) string {
	var answered *jsonrpc.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &answered):
		return strconv.FormatInt(answered.Code, 10)
	}
	return strconv.Itoa(jsonrpc.CodeInternalError)
}

// traceparentOf returns the field traceparent of a message's _meta.
func traceparentOf(req mcp.Request) string {
	params := req.GetParams()
	// GetMeta does not expect that a message has no params
	if v := reflect.ValueOf(params); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return ""
	}
	text, _ := params.GetMeta()[strings.ToLower(traces.Header)].(string)
	return text
}

func headerOf(req mcp.Request) http.Header {
	if extra := req.GetExtra(); extra != nil {
		return extra.Header
	}
	return nil
}
