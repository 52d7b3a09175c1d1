// Package mcp holds the packages behind /mcp, where agents call tools by the Model Context
// Protocol. It has no code of its own. Read in this order:
//
//   - mcpserver: skills and tools as MCP tools: sessions, progress, cancellation, resources
//   - tools: the tools that work on a user's files and run commands
//   - offload: long results, kept for their session; which files that were read are stale
//   - userservers: MCP servers of the settings, run inside users' sandboxes
//   - hosts: the configuration of programs that start an MCP server, for secbox mcp install
//   - feishu: moves files between Feishu (Lark) and users' sandboxes
//
// tools, offload and feishu must not know MCP: mcpserver offers them. The room must not know SQL,
// Docker or pages. It imports api only for api/problem, the writer of errors.
package mcp
