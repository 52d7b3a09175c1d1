package mcpserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/audit"
	"secbox/audit/admin"
	"secbox/fault"
	"secbox/runner"
)

const (
	resourceScheme = "exec://"

	// The captured output of an exec. No artifact can have these names.
	stdoutFile = "stdout.txt"
	stderrFile = "stderr.txt"

	maxResource = 8 << 20 // bytes of a file; JSON encoding has several copies in memory

	// Bytes of memory until a resource is sent.
	contentPrice = 2 // per byte of the file: the content and the text
	encodedPrice = 3 // per byte of the answer: the result, the message and the event
)

func artifactTemplate() *mcp.ResourceTemplate {
	return &mcp.ResourceTemplate{
		URITemplate: resourceScheme + "{exec_id}/{+path}", Name: "artifact", Title: "A file that an exec left",
		Description: "A regular file that an exec left in /workspace/artifacts, by its percent-encoded path; stdout.txt and stderr.txt " +
			"are its captured output.",
	}
}

// uriOf returns the URI of a file of an exec.
func uriOf(execID, file string) string {
	parts := strings.Split(file, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return resourceScheme + execID + "/" + strings.Join(parts, "/")
}

// parseURI is the reverse of uriOf. It returns false for other URIs.
func parseURI(uri string) (execID, file string, ok bool) {
	for _, b := range []byte(uri) {
		if b <= ' ' || b > '~' {
			return "", "", false
		}
	}
	rest, ok := strings.CutPrefix(uri, resourceScheme)
	if !ok || strings.ContainsAny(rest, "?#") {
		return "", "", false
	}
	host, escaped, ok := strings.Cut(rest, "/")
	if !ok || len(host) != 36 {
		return "", "", false
	}
	id, err := uuid.Parse(host)
	if err != nil {
		return "", "", false
	}
	file, err = url.PathUnescape(escaped)
	if err != nil || file == "" || !utf8.ValidString(file) {
		return "", "", false
	}
	return id.String(), file, true
}

// codeNotFound is the error code of protocol versions with sessions. Later versions use "invalid
// params".
const codeNotFound = -32002

// notFound is the error for a resource that does not exist or that the caller may not see.
func notFound(uri string) error {
	data, _ := json.Marshal(map[string]string{"uri": uri})
	return &jsonrpc.Error{Code: codeNotFound, Message: "Resource not found", Data: data}
}

// refuseForeignURIs answers requests for other URIs. The SDK's own error contains the URI
// unescaped, which for some URIs is not valid JSON, so that the client would wait forever.
func refuseForeignURIs(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if params, ok := req.GetParams().(*mcp.ReadResourceParams); ok && params != nil {
			if _, _, ok := parseURI(params.URI); !ok {
				return nil, notFound(params.URI)
			}
		}
		return next(ctx, method, req)
	}
}

// readResource reads a file of an exec.
func (s *Server) readResource(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	execID, file, ok := parseURI(uri)
	if !ok {
		return nil, notFound(uri)
	}
	who, err := callerOf(req.Extra)
	if err != nil {
		return nil, s.resourceError(ctx, uri, err)
	}
	release, err := who.hold(0)
	if err != nil {
		return nil, s.resourceError(ctx, uri, err)
	}
	defer release()
	content, err := s.contentOf(ctx, who, execID, file)
	if err != nil {
		return nil, s.resourceError(ctx, uri, err)
	}
	if err := who.reserve(encodedPrice * encodedSize(content)); err != nil {
		return nil, s.resourceError(ctx, uri, err)
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{contentsOf(uri, mimeOf(file), content)}}, nil
}

// contentsOf returns content as text, if it is, or as a blob. Without a media type it gets a
// general one. An empty file is an empty blob, because the SDK leaves out an empty text, and
// clients refuse contents with neither.
func contentsOf(uri, mediaType string, content []byte) *mcp.ResourceContents {
	one := &mcp.ResourceContents{URI: uri, MIMEType: mediaType}
	if isText(content) {
		if one.Text = string(content); len(content) == 0 {
			one.Blob = []byte{}
		}
		if one.MIMEType == "" {
			one.MIMEType = "text/plain"
		}
	} else {
		one.Blob = content
		if one.MIMEType == "" || strings.HasPrefix(one.MIMEType, "text/") {
			one.MIMEType = "application/octet-stream"
		}
	}
	return one
}

func (s *Server) contentOf(ctx context.Context, who caller, execID, file string) ([]byte, error) {
	record, err := s.cfg.History.Get(ctx, execID)
	if err != nil {
		return nil, err
	}
	if !who.maySee(record) {
		return nil, fault.New(fault.UnknownExec, "there is no exec %s that you may see", execID)
	}
	switch file {
	case stdoutFile, stderrFile:
		out, size, err := s.cfg.Runner.OpenOutput(counted(ctx, who), record, strings.TrimSuffix(file, ".txt"))
		if err != nil {
			return nil, err
		}
		defer out.Close()
		if err := s.recordDownload(ctx, who, record, strings.TrimSuffix(file, ".txt"), ""); err != nil {
			return nil, err
		}
		return readBounded(who, out, size, execID, strings.TrimSuffix(file, ".txt"))
	}
	left, err := s.cfg.Runner.Artifacts(counted(ctx, who), record)
	if err != nil {
		return nil, err
	}
	defer left.Close()
	in, item, err := left.Open(ctx, file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if err := s.recordDownload(ctx, who, record, "artifact", file); err != nil {
		return nil, err
	}
	return readBounded(who, in, item.Size, execID, "artifacts/"+strings.TrimPrefix(uriOf("", file), resourceScheme+"/"))
}

// counted returns a context in which manifests count as memory until the answer is sent.
func counted(ctx context.Context, who caller) context.Context {
	return runner.Counted(ctx, func(bytes int64) error {
		if bytes < 0 {
			return nil
		}
		return who.reserve(bytes)
	})
}

// recordDownload records that an admin reads a file of another client's exec, as api does for
// downloads.
func (s *Server) recordDownload(ctx context.Context, who caller, record audit.Record, what, path string) error {
	if who.token.ID == record.RequestedBy {
		return nil
	}
	ctx = admin.By(ctx, admin.Actor{Type: admin.ByToken, ID: who.token.ID, Name: who.token.Name})
	return s.cfg.Downloads.Record(ctx, record.ExecID, what, path)
}

func readBounded(who caller, in io.Reader, size int64, execID, route string) ([]byte, error) {
	if size > maxResource {
		return nil,
			fault.New(fault.InvalidRequest,
				"the file has %d bytes, more than the %d of a resource; download it with GET /sandbox/execs/%s/%s",
				size, maxResource, execID, route)
	}
	if err := who.reserve(contentPrice * size); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(in, size))
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "cannot read the file of exec %s", execID)
	}
	return content, nil
}

// resourceError converts a fault to an error of the protocol.
func (s *Server) resourceError(ctx context.Context, uri string, err error) error {
	e := fault.From(err)
	code := int64(jsonrpc.CodeInternalError)
	switch e.Code {
	case fault.UnknownExec, fault.UnknownArtifact:
		return notFound(uri)
	case fault.Internal:
		s.cfg.Logger.ErrorContext(ctx, "cannot read an MCP resource", "uri", uri, "error", err)
	case fault.InvalidRequest, fault.ArtifactsPending:
		code = jsonrpc.CodeInvalidParams
	}
	data, _ := json.Marshal(map[string]any{"code": e.Code, "uri": uri})
	return &jsonrpc.Error{Code: code, Message: fmt.Sprintf("%s: %s", e.Code, e.Message), Data: data}
}

// isText reports whether content is valid UTF-8 without NULs.
func isText(content []byte) bool {
	return utf8.Valid(content) && strings.IndexByte(string(content), 0) < 0
}

// encodedSize estimates the size of content in JSON.
func encodedSize(content []byte) int64 {
	if !isText(content) {
		return int64(base64.StdEncoding.EncodedLen(len(content)))
	}
	size := int64(len(content))
	for _, b := range content {
		switch {
		case b == '"' || b == '\\' || b == '\n' || b == '\r' || b == '\t':
			size++
		case b < ' ':
			size += int64(len(`\u0001`)) - 1
		}
	}
	return size
}

// mimeOf returns the media type for the file's extension, or "" for an unknown one. Pages and
// scripts are text/plain, because their author is untrusted and a host might run them.
func mimeOf(file string) string {
	return mimes[strings.ToLower(path.Ext(file))]
}

var mimes = map[string]string{
	".txt": "text/plain", ".log": "text/plain", ".md": "text/markdown", ".csv": "text/csv", ".tsv": "text/tab-separated-values",
	".diff": "text/x-diff", ".patch": "text/x-diff", ".py": "text/plain", ".sh": "text/plain", ".js": "text/plain", ".html": "text/plain",
	".htm": "text/plain", ".xhtml": "text/plain", ".svg": "text/plain", ".xml": "text/plain", ".css": "text/plain",
	".json": "application/json", ".jsonl": "application/jsonl", ".yaml": "application/yaml", ".yml": "application/yaml",
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
	".pdf": "application/pdf", ".zip": "application/zip", ".gz": "application/gzip", ".tar": "application/x-tar",
}
