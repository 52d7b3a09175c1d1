package userservers

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/sandbox"
	"secbox/skills/schema"
	"secbox/tools"
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
)

// toolName keeps names within what hosts of models accept, beside the name of the server.
var toolName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// anyArguments is offered in place of a schema that cannot be used. The server checks the arguments.
const anyArguments = `{"type":"object"}`

// list asks a server for its tools, up to maxPages pages or maxRead bytes.
func (p *process) list(ctx context.Context) (all []*mcp.Tool, err error) {
	params, before := &mcp.ListToolsParams{}, p.transport.read.Load()
	for range maxPages {
		page, err := p.session.ListTools(ctx, params)
		if err != nil {
			return nil, err
		}
		if all = append(all, page.Tools[:min(len(page.Tools), maxTools*maxPages-len(all))]...); page.NextCursor == "" || p.transport.read.Load()-before > maxRead {
			break
		}
		params.Cursor = page.NextCursor
	}
	return all, nil
}

// offer converts a server's list to tools. It leaves out tools that are not allowed, whose name cannot be used, or that do not fit the bounds.
func (m *Manager) offer(def *Server, user sandbox.User, listed []*mcp.Tool) []*tools.Tool {
	var offered []*tools.Tool
	names := map[string]bool{}
	left, size := 0, 0
	for _, one := range listed {
		if one == nil || def.Tools != nil && !slices.Contains(def.Tools, one.Name) {
			continue
		}
		t := tools.Tool{Name: def.Name + "." + one.Name, Title: shortText(one.Title, maxTitle), Description: shortText(one.Description, maxDescription), OpenWorld: true}
		if hints := one.Annotations; hints != nil {
			t.ReadOnly = hints.ReadOnlyHint
			if t.Title == "" {
				t.Title = shortText(hints.Title, maxTitle)
			}
		}
		t.Schema = usable(one.InputSchema)
		size += len(t.Description) + len(t.Schema)
		if !toolName.MatchString(one.Name) || names[one.Name] || len(offered) == maxTools || size > maxListBytes {
			left++
			continue
		}
		names[one.Name] = true
		name := one.Name
		offered = append(offered, tools.External(t, func(ctx context.Context, arguments []byte, report func(string)) (*tools.Result, error) {
			return m.call(ctx, def, user, name, arguments, report)
		}))
	}
	if left > 0 {
		m.cfg.Log.Warn("some tools of an MCP server are not offered: their names are not unique or not valid, or there are too many", "server", def.Name, "user", user.ProjectID(),
			"offered", len(offered), "left_out", left)
	}
	return offered
}

// usable returns a server's schema if a client can be given it: an object's, of bounded size and without anything that takes long to check.
func usable(given any) json.RawMessage {
	text, err := json.Marshal(given)
	object, ok := given.(map[string]any)
	if err != nil || !ok || len(text) > maxSchema || object["type"] != "object" {
		return json.RawMessage(anyArguments)
	}
	if strings.HasPrefix(dialectOf(object), "http://json-schema.org/draft-0") { // most keywords are those of 2020-12
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
