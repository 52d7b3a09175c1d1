package skills

import "strings"

// toolPrefix is before a skill's id in the name of its tool.
const toolPrefix = "skill."

// ToolName is the name of a skill as a tool: skill.shell.run.
func ToolName(id string) string { return toolPrefix + id }

// UnderscoreToolName is ToolName for hosts that take no dots: skill_shell_run. An id has no underscores, so no two share a name.
func UnderscoreToolName(id string) string { return strings.ReplaceAll(ToolName(id), ".", "_") }

// IDOfTool is the skill's id that a tool's name stands for, in either spelling; false when it is no name of a skill's tool.
func IDOfTool(name string) (id string, ok bool) {
	if id, ok = strings.CutPrefix(name, toolPrefix); ok {
		return id, id != ""
	}
	if id, ok = strings.CutPrefix(name, "skill_"); ok {
		return strings.ReplaceAll(id, "_", "."), id != ""
	}
	return "", false
}
