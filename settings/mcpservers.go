package settings

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"secbox/internal/suggest"
	"secbox/internal/whole"
)

// MCPServers are MCP servers that run in users' sandboxes: by the agent that has them, or
// AllAgents, and by name.
type MCPServers map[string]map[string]MCPServer

// AllAgents stands for every agent.
const AllAgents = "*"

// MCPServer is one of them. Each number of seconds may be 0, for its default.
type MCPServer struct {
	Command string   `yaml:"command" json:"command"`       // a program, looked up in the sandbox's PATH
	Args    []string `yaml:"args" json:"args,omitempty"`   // of the program
	Env     []string `yaml:"env" json:"env,omitempty"`     // names of variables of core-api's own environment that the program gets
	Tools   []string `yaml:"tools" json:"tools,omitempty"` // names of the tools that are offered; nil: all

	StartTimeoutSeconds int `yaml:"start_timeout_seconds" json:"start_timeout_seconds,omitempty"` // until it has listed its tools
	CallTimeoutSeconds  int `yaml:"call_timeout_seconds" json:"call_timeout_seconds,omitempty"`
	IdleSeconds         int `yaml:"idle_seconds" json:"idle_seconds,omitempty"` // without a call, after which its process is ended
}

// Defaults of MCPServer, in seconds.
const (
	defaultMCPStart = 30  // npx and uvx may download the server first
	defaultMCPCall  = 120 // twice the timeout of a command
	defaultMCPIdle  = 300 // less than the container's own, which the process keeps from ending
)

// StartTimeout returns the setting or its default.
func (s MCPServer) StartTimeout() time.Duration {
	return seconds(cmp.Or(s.StartTimeoutSeconds, defaultMCPStart))
}

// CallTimeout returns the setting or its default.
func (s MCPServer) CallTimeout() time.Duration {
	return seconds(cmp.Or(s.CallTimeoutSeconds, defaultMCPCall))
}

// Idle returns the setting or its default.
func (s MCPServer) Idle() time.Duration { return seconds(cmp.Or(s.IdleSeconds, defaultMCPIdle)) }

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// Bounds of the list. Each server is a process of each user that uses it.
const (
	maxMCPServers = 64  // in all
	maxMCPItems   = 100 // of a list
	maxMCPText    = 4096
)

var (
	mcpServerName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)
	variableName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	mcpToolName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	agentID       = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
)

// OwnTools begin the names of tools that are not of an MCP server.
var OwnTools = []string{"feishu", "files", "offload", "registry", "shell", "skill", "skills"}

func (all MCPServers) check(p *problems) {
	n := 0
	for _, agent := range slices.Sorted(maps.Keys(all)) {
		key := "mcp_servers." + whole.Shorten(agent)
		if agent != AllAgents && !agentID.MatchString(agent) {
			p.addf(key, "is no agent's id; use an id, or %q for all agents", AllAgents)
		}
		for _, name := range slices.Sorted(maps.Keys(all[agent])) {
			n++
			at := key + "." + whole.Shorten(name)
			if !mcpServerName.MatchString(name) {
				p.addf(at, "is no name of a server; use up to 32 of a-z, 0-9, _ and -, beginning with a letter or digit")
			} else if slices.ContainsFunc(OwnTools, func(own string) bool { return name == own || strings.HasPrefix(name, own+"_") }) {
				p.addf(at, "begins the names of tools of this service; choose another name")
			}
			if _, both := all[AllAgents][name]; both && agent != AllAgents {
				p.addf(at, "is also under %q, which every agent has; keep one of the two, or rename one", AllAgents)
			}
			all[agent][name].check(p, at)
		}
	}
	if n > maxMCPServers {
		p.addf("mcp_servers", "has %d servers, more than %d; remove some", n, maxMCPServers)
	}
}

func (s MCPServer) check(p *problems, at string) {
	if s.Command == "" {
		p.addf(at+".command", "is missing; name the program that is the server, such as npx")
	}
	for field, list := range map[string][]string{"command": {s.Command}, "args": s.Args} {
		if slices.ContainsFunc(list, func(text string) bool { return len(text) > maxMCPText || strings.ContainsRune(text, 0) }) {
			p.addf(at+"."+field, "must be text of at most %d bytes, without NUL", maxMCPText)
		}
	}
	for field, list := range map[string][]string{"args": s.Args, "env": s.Env, "tools": s.Tools} {
		if len(list) > maxMCPItems {
			p.addf(at+"."+field, "has %d items, more than %d", len(list), maxMCPItems)
		}
	}
	for i, name := range s.Env {
		if !variableName.MatchString(name) {
			p.addf(fmt.Sprintf("%s.env[%d]", at, i), "must be the name of a variable, such as GITHUB_TOKEN; its value is that in "+
				"core-api's environment, and never in a file")
		}
	}
	if s.Tools != nil && len(s.Tools) == 0 {
		p.addf(at+".tools", "is empty; leave it out to offer all tools, or remove the server to offer none")
	}
	for i, name := range s.Tools {
		if !mcpToolName.MatchString(name) {
			p.addf(fmt.Sprintf("%s.tools[%d]", at, i),
				"%q is no name of a tool that can be offered; use its own name, without the server's", whole.Shorten(name))
		}
	}
	between(p, at+".start_timeout_seconds", int64(s.StartTimeoutSeconds), 0, 600, "seconds; 0 is the default")
	between(p, at+".call_timeout_seconds", int64(s.CallTimeoutSeconds), 0, 24*3600, "seconds; 0 is the default")
	between(p, at+".idle_seconds", int64(s.IdleSeconds), 0, 24*3600, "seconds; 0 is the default")
}

// mcpServers reads the servers of a file or of a variable.
func (f *fileReader) mcpServers(key string, value *yaml.Node) (all MCPServers, ok bool) {
	all, ok = MCPServers{}, true
	f.entries(key, value, &ok, func(agent string, servers *yaml.Node) {
		of := map[string]MCPServer{}
		f.entries(key+"."+agent, servers, &ok, func(name string, server *yaml.Node) {
			at := key + "." + agent + "." + name
			var one MCPServer
			f.section(at, server, &ok, &one)
			of[name] = one
		})
		all[agent] = of
	})
	return all, ok
}

// section reads a mapping into the struct that into points to.
func (f *fileReader) section(at string, section *yaml.Node, ok *bool, into any) {
	fields := map[string]reflect.Value{}
	for field, v := range reflect.ValueOf(into).Elem().Fields() {
		fields[field.Tag.Get("yaml")] = v
	}
	f.entries(at, section, ok, func(field string, n *yaml.Node) {
		v, known := fields[field]
		switch {
		case !known:
			f.problemf(at+"."+whole.Shorten(field), n, "there is no such setting; did you mean %s?",
				suggest.Nearest(field, slices.Sorted(maps.Keys(fields))))
		case !fits(v.Type(), n) || n.Decode(v.Addr().Interface()) != nil:
			f.problemf(at+"."+field, n, "must be %s, not %s", want(v.Type()), yamlText(n))
		default:
			return
		}
		*ok = false
	})
}

// entries calls do for each entry of a mapping.
func (f *fileReader) entries(key string, n *yaml.Node, ok *bool, do func(name string, value *yaml.Node)) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		f.problemf(key, n, "must be a section, not %s", yamlText(n))
		*ok = false
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if name.Kind != yaml.ScalarNode || seen[name.Value] {
			f.problemf(whole.Shorten(key+"."+name.Value), name, "must be a name that is there once; write \"*\" in quotes")
			*ok = false
			continue
		}
		seen[name.Value] = true
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		do(name.Value, value)
	}
}

// table reads the settings that are a mapping of names.
func (f *fileReader) table(row setting, value *yaml.Node) {
	var all any
	var ok bool
	if row.typ == reflect.TypeFor[JobSecrets]() {
		all, ok = f.jobSecrets(row.key, value)
	} else {
		all, ok = f.mcpServers(row.key, value)
	}
	if ok {
		row.in(f.into).Set(reflect.ValueOf(all))
	}
}

// readTable reads such a setting from a variable. JSON is YAML, too.
func readTable(s *Settings, row setting, name, value string, p *problems) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(value), &doc); err != nil || len(doc.Content) == 0 {
		example := `{"*": {"time": {"command": "mcp-server-time"}}}`
		if row.typ == reflect.TypeFor[JobSecrets]() {
			example = `{"key": {"file": "/etc/secbox/key", "hosts": ["api.example.org"]}}`
		}
		p.addf(name, "must be JSON, such as %s", example)
		return
	}
	f := fileReader{into: s, name: name, p: p}
	f.table(row, doc.Content[0])
}
