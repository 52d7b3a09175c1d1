// Package tools has the tools with which an agent works on a user's files: it reads, writes, edits
// and finds files, and runs commands, wherever the user's sandbox is. Each tool is a Go function
// over sandbox.Backend with a typed parameter struct, from which the JSON Schema of its arguments
// is derived and enforced. Results are bounded, because a model reads them.
//
// Start with tool.go, the list of all tools, then session.go and one tool, read.go. registry.go has
// the tools for the registry of skills.
//
// Paths are the sandbox's own, on every backend: they are never converted to paths of a machine.
// The package must not know HTTP or MCP.
package tools
