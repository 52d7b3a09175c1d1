package userservers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/mcp/tools"
	"secbox/sandbox"
	"secbox/skills"
	"secbox/skills/schema"
)

// Bounds of the list of a server's tools. A model reads all of it in each session.
const (
	maxPages       = 20      // of the list
	maxRead        = 1 << 20 // bytes after which no further page is read: what they take in memory is many times as much
	maxTools       = 128     // that are offered
	maxDescription = 4 << 10
	maxTitle       = 200
	maxSchema      = 32 << 10
	maxListBytes   = 256 << 10 // of all descriptions and schemas
	maxLeftOut     = 20        // tools that are named as left out
)

// toolName keeps names within what hosts of models accept, beside the name of the server.
var toolName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// anyArguments is offered in place of a schema that cannot be used. The server checks the
// arguments.
const anyArguments = `{"type":"object"}`

// list asks a server for its tools and converts them, up to maxPages pages or maxRead bytes. It
// leaves out tools that are not allowed, whose name cannot be used, or that do not fit the bounds;
// the status of the server names tools with such a name, and tools that do not fit.
func (m *Manager) list(ctx context.Context, p *process, user sandbox.User) ([]*tools.Tool, error) {
	o := offer{m: m, def: p.def, user: user, names: map[string]bool{}}
	params, before := &mcp.ListToolsParams{}, p.transport.read.Load()
	for range maxPages {
		page, err := p.session.ListTools(ctx, params)
		if err != nil {
			return nil, err
		}
		for _, one := range page.Tools {
			o.add(one)
		}
		if params.Cursor = page.NextCursor; params.Cursor == "" || p.transport.read.Load()-before > maxRead {
			break
		}
	}
	if len(o.left) > 0 {
		m.cfg.Log.Warn("some tools of an MCP server are not offered: their names are not valid or not unique, or there are too many",
			"server", p.def.Name,
			"user", user.ProjectID(), "offered", len(o.tools), "left_out", len(o.left))
		o.tools = append(o.tools, m.status(p.def, user, "Some tools of the MCP server "+p.def.Name+" are not offered:\n"+o.leftOut()))
	}
	return o.tools, nil
}

// offer is what is offered of a server's list.
type offer struct {
	m    *Manager
	def  *Server
	user sandbox.User

	tools []*tools.Tool
	names map[string]bool
	size  int      // bytes of descriptions and schemas
	left  []string // tools that are left out, with the reason
}

// leftOut lists the first tools that are left out.
func (o *offer) leftOut() string {
	text := strings.Join(o.left[:min(len(o.left), maxLeftOut)], "\n")
	if more := len(o.left) - maxLeftOut; more > 0 {
		text += fmt.Sprintf("\n%d more", more)
	}
	return text
}

func (o *offer) add(one *mcp.Tool) {
	if one == nil || o.def.Tools != nil && !slices.Contains(o.def.Tools, one.Name) {
		return
	}
	leave := func(format string, args ...any) {
		o.left = append(o.left, `"`+shown(one.Name)+`": `+fmt.Sprintf(format, args...))
	}
	plain := skills.PlainName(one.Name)
	switch {
	case !toolName.MatchString(one.Name):
		leave("its name must be a letter or digit and up to 63 letters, digits, dots, underscores and dashes")
		return
	case o.names[plain]:
		leave("another tool has this name")
		return
	case len(o.tools) == maxTools:
		leave("it is beyond the first %d", maxTools)
		return
	case o.size >= maxListBytes:
		leave("the list has more than %d KiB", maxListBytes>>10)
		return
	}
	t := tools.Tool{
		Name: o.def.Name + "." + one.Name, Title: shortText(one.Title, maxTitle),
		Description: shortText(one.Description, maxDescription), OpenWorld: true,
	}
	if hints := one.Annotations; hints != nil {
		t.ReadOnly = hints.ReadOnlyHint
		if t.Title == "" {
			t.Title = shortText(hints.Title, maxTitle)
		}
	}
	t.Schema = usable(one.InputSchema)
	if o.size += len(t.Description) + len(t.Schema); o.size > maxListBytes {
		leave("the list has more than %d KiB", maxListBytes>>10)
		return
	}
	name := one.Name
	o.names[plain] = true
	o.tools = append(o.tools, tools.External(t, func(ctx context.Context, arguments []byte, report func(string)) (*tools.Result, error) {
		return o.m.call(ctx, o.def, o.user, name, arguments, report)
	}))
}

// same reports whether two tools are offered with the same words.
func same(a, b *tools.Tool) bool {
	return a.Name == b.Name && a.Title == b.Title && a.Description == b.Description && a.ReadOnly == b.ReadOnly && bytes.Equal(a.Schema,
		b.Schema)
}

// usable returns a server's schema if a client can be given it: an object's, of bounded size and
// without anything that takes long to check.
func usable(given any) json.RawMessage {
	text, err := json.Marshal(given)
	object, ok := given.(map[string]any)
	if err != nil || !ok || len(text) > maxSchema || object["type"] != "object" {
		return json.RawMessage(anyArguments)
	}
	if strings.HasPrefix(dialectOf(object), "http://json-schema.org/draft-0") { // most keywords are as in 2020-12
		delete(object, "$schema")
		if text, err = json.Marshal(object); err != nil {
			return json.RawMessage(anyArguments)
		}
	}
	if _, found := schema.Compile(text); found != nil {
		return json.RawMessage(anyArguments)
	}
	return text
}

func dialectOf(object map[string]any) string {
	dialect, _ := object["$schema"].(string)
	return dialect
}

func shortText(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " …"
	}
	return tools.Printable(text)
}
