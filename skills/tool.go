package skills

import "strings"

const toolPrefix = "skill."

// ToolName returns the name of a skill as a tool: skill.shell.run.
func ToolName(id string) string { return toolPrefix + id }

// UnderscoreToolName is ToolName for hosts that allow no dots: skill_shell_run. It is unique, as ids have no underscores.
func UnderscoreToolName(id string) string { return strings.ReplaceAll(ToolName(id), ".", "_") }

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
