package userservers

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/mcp/tools"
)

// maxParts is how many parts of a result are shown.
const maxParts = 1000

// resultOf converts a server's result: its texts, and its first image. Other parts are named.
func resultOf(r *mcp.CallToolResult, execID string) *tools.Result {
	out := &tools.Result{Failed: r.IsError, Meta: map[string]any{"exec_id": execID}}
	var b strings.Builder
	line := func(text string) {
		b.WriteString(text)
		if !strings.HasSuffix(text, "\n") {
			b.WriteByte('\n')
		}
	}
	binary := func(kind, mime string, size int) {
		line(fmt.Sprintf("(%s of type %s, %d bytes, is not shown)", kind, shown(mime), size))
	}
	for i, part := range r.Content {
		if i == maxParts {
			line(fmt.Sprintf("(%d more parts are not shown)", len(r.Content)-i))
			break
		}
		switch c := part.(type) {
		case *mcp.TextContent:
			line(c.Text)
		case *mcp.ImageContent:
			if out.Image == nil && isImage(c.MIMEType) {
				out.Image, out.MIME = c.Data, c.MIMEType
				continue
			}
			binary("an image", c.MIMEType, len(c.Data))
		case *mcp.AudioContent:
			binary("a sound", c.MIMEType, len(c.Data))
		case *mcp.EmbeddedResource:
			switch {
			case c.Resource == nil:
			case c.Resource.Text != "":
				line(c.Resource.Text)
			default:
				binary("the resource "+shown(c.Resource.URI), c.Resource.MIMEType, len(c.Resource.Blob))
			}
		case *mcp.ResourceLink:
			line("(the resource " + shown(c.URI) + ", " + shown(c.Name) + ")")
		}
	}
	if b.Len() == 0 && r.StructuredContent != nil {
		if text, err := json.Marshal(r.StructuredContent); err == nil {
			line(string(text))
		}
	}
	if b.Len() == 0 && out.Image == nil {
		line("(no output)")
	}
	out.Text = b.String()
	return out
}

// isImage reports whether models can be shown a type of image.
func isImage(mime string) bool {
	switch mime {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return true
	}
	return false
}
