package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"secbox/fault"
	"secbox/internal/buildinfo"
	"secbox/mcp/mcpserver"
	"secbox/mcp/userservers"
	"secbox/policy"
	"secbox/sandbox"
	"secbox/settings"
)

// makeUserServers makes the MCP servers of users if the settings have some. It starts none yet.
// shutdown drains and closes them.
func (s *Server) makeUserServers(context.Context) error {
	if len(s.settings.MCPServers) == 0 {
		return nil
	}
	servers, err := userServersOf(s.settings.MCPServers, s.environ)
	if err != nil {
		return err
	}
	calls := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "secbox_mcp_server_call_seconds", Help: "Calls of tools of users' MCP servers, by server and outcome.",
		Buckets: []float64{.01, .1, 1, 10, 60, 600},
	}, []string{"server", "outcome"})
	s.registry.MustRegister(calls)
	s.userServers = userservers.New(userservers.Config{
		Servers: servers, Sandbox: s.sandboxes, Bounds: s.commandBounds, Valid: s.tokens.Valid, NewID: NewID,
		Version: buildinfo.Version, Log: s.log,
		Observe: func(server, outcome string, took time.Duration) {
			calls.WithLabelValues(server, outcome).Observe(took.Seconds())
		},
	})
	gauge(s.registry, "secbox_mcp_servers_running", "Processes of users' MCP servers.", s.userServers.Running)
	return nil
}

// userServersOf converts the settings, and adds the values of variables. A variable that is not
// set, or that no command may see, is fault.InvalidSettings.
func userServersOf(all settings.MCPServers, environ []string) (servers []userservers.Server, err error) {
	values := map[string]string{}
	for _, kv := range sandbox.Inherited(environ) {
		name, _, _ := strings.Cut(kv, "=")
		values[name] = kv
	}
	for _, agent := range slices.Sorted(maps.Keys(all)) {
		for _, name := range slices.Sorted(maps.Keys(all[agent])) {
			one := all[agent][name]
			var env []string
			for i, variable := range one.Env {
				value, ok := values[variable]
				if !ok {
					field := fmt.Sprintf("mcp_servers.%s.%s.env[%d]", agent, name, i)
					return nil, fault.New(fault.InvalidSettings, "%s: %s is not set in the environment of core-api, or is one that no "+
						"command may see; set it, or remove it from the list",
						field, variable)
				}
				env = append(env, value)
			}
			servers = append(servers, userservers.Server{
				Agent: agent, Name: name, Command: one.Command, Args: one.Args, Env: env, Tools: one.Tools,
				StartTimeout: one.StartTimeout(), CallTimeout: one.CallTimeout(), Idle: one.Idle(),
			})
		}
	}
	return servers, nil
}

// commandBounds returns the ceilings of a command's time and of its standard output.
func (s *Server) commandBounds() (lifetime time.Duration, output int64) {
	lifetime, output = sandbox.DefaultTimeout, sandbox.MaxOutputBytes
	snapshot, _ := s.deps.policy.Resolve(nil, policy.Layer{}, s.checker.Host()) // fails for requests only
	if ms, ok := snapshot.Fields[policy.FieldTimeoutMS].Ceiling.(int64); ok {
		lifetime = time.Duration(ms) * time.Millisecond
	}
	if bytes, ok := snapshot.Fields[policy.FieldMaxStdoutBytes].Ceiling.(int64); ok {
		output = min(output, bytes)
	}
	return lifetime, output
}

// mcpUserServers returns the servers for the MCP server; nil: there are none.
func (s *Server) mcpUserServers() mcpserver.UserServers {
	if s.userServers == nil {
		return nil
	}
	return s.userServers
}
