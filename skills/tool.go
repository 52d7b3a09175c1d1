package skills

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const toolPrefix = "skill."

// ToolName returns the name of a skill as a tool: skill.shell.run.
func ToolName(id string) string { return toolPrefix + id }

const (
	maxPlainName = 64 // bytes; what Claude Desktop, OpenAI and LangChain take
	plainDigest  = 8  // hexadecimal digits that end a name that was cut
)

// PlainName returns the name of a tool in the spelling that every MCP host takes,
// ^[a-zA-Z0-9_-]{1,64}$: skill_shell_run for skill.shell.run. It cuts a longer name and ends it
// with a part of its digest.
func PlainName(tool string) string {
	plain := strings.ReplaceAll(tool, ".", "_")
	if len(plain) <= maxPlainName {
		return plain
	}
	sum := sha256.Sum256([]byte(tool))
	return plain[:maxPlainName-plainDigest-1] + "_" + hex.EncodeToString(sum[:])[:plainDigest]
}

// skillOfTool returns the id of the skill that a tool's name refers to, in either spelling.
func skillOfTool(name string) (id string, ok bool) {
	if id, ok = strings.CutPrefix(name, toolPrefix); ok {
		return id, id != ""
	}
	if id, ok = strings.CutPrefix(name, "skill_"); ok {
		return strings.ReplaceAll(id, "_", "."), id != ""
	}
	return "", false
}
