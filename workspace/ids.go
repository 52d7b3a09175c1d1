package workspace

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"secbox/fault"
	"secbox/pathadapter"
	"secbox/workspace/tree"
)

// Forms of names that become directories. A part is an agent's or a user's id in a workspace id.
var (
	projectForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	partForm    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	execForm    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,63}$`)
)

// CheckProjectID checks a project id: [A-Za-z0-9][A-Za-z0-9._-]{0,127}, or <agentId>~<userId> with
// each half [A-Za-z0-9][A-Za-z0-9._-]{0,62}. Names that Windows reserves and trailing dots are
// refused on every system, so that a workspace root can be moved. The error names the field
// project_id.
func CheckProjectID(s string) error {
	if s == "" {
		return fault.BadField("project_id", "is missing: give project_id or conversation_id")
	}
	parts := []string{s}
	if strings.Contains(s, "~") {
		agent, user, ok := SplitWorkspaceID(s)
		if !ok {
			return fault.BadField("project_id",
				"is no workspace id: <agentId>~<userId>, each a letter or digit, then up to 62 letters, digits, dots, underscores or dashes")
		}
		parts = []string{agent, user}
	} else if !projectForm.MatchString(s) {
		return fault.BadField("project_id", "must be a letter or digit, then up to 127 letters, digits, dots, underscores or dashes")
	}
	for _, part := range parts {
		if reason := pathadapter.NameFault(part); reason != "" {
			return fault.BadField("project_id", "%s", reason)
		}
	}
	return nil
}

// SplitWorkspaceID splits a workspace id <agentId>~<userId>; ok is false for any other project id.
// It checks the form of both halves; CheckProjectID also knows reserved names.
func SplitWorkspaceID(project string) (agent, user string, ok bool) {
	agent, user, ok = strings.Cut(project, "~")
	if !ok || !partForm.MatchString(agent) || !partForm.MatchString(user) {
		return "", "", false
	}
	return agent, user, true
}

// checkExecID keeps anything but an exec id away from the file system.
func checkExecID(s string) error {
	if !execForm.MatchString(s) {
		return fault.New(fault.UnknownExec, "there is no exec with this id")
	}
	return nil
}

// CheckPart checks an agent's or a user's id, half of a workspace id. field is its name in errors.
func CheckPart(field, s string) error {
	if !partForm.MatchString(s) {
		return fault.BadField(field, "must be a letter or digit, then up to 62 letters, digits, dots, underscores or dashes")
	}
	if reason := pathadapter.NameFault(s); reason != "" {
		return fault.BadField(field, "%s", reason)
	}
	return nil
}

// MakeNamed makes a directory for an id in a request, unless it exists. In errors, field is the id
// and what the thing, such as "an agent". A rival is a directory whose name differs only by case:
// fault.ProjectNameConflict. MakeNamed looks for rivals after it has made the directory, so when
// two nodes do this at once, each sees the other's directory. On a case-blind file system an
// existing directory may be a rival too.
func MakeNamed(parent *os.Root, id, field, what string, caseBlind bool) error {
	_, noun, _ := strings.Cut(what, " ")
	err := parent.Mkdir(id, 0o755)
	made := err == nil
	if errors.Is(err, fs.ErrExist) {
		if !caseBlind {
			return nil
		}
		err = nil
	}
	rival := ""
	if err == nil {
		err = tree.EachName(parent, func(name string) error {
			if name != id && strings.EqualFold(name, id) {
				rival = name
			}
			return nil
		})
	}
	if err == nil && rival == "" && made {
		err = tree.UndoUmask(parent, id)
	}
	if made && (err != nil || rival != "") {
		_ = parent.Remove(id)
	}
	if err != nil {
		return tree.Failed(err, "the %s's directory cannot be made", noun)
	}
	if rival == "" {
		return nil
	}
	conflict := fault.New(fault.ProjectNameConflict,
		"%s: there is %s %q, and names that differ only by case are one on some systems: use that spelling or another name", field, what,
		rival)
	conflict.Fields = []fault.Field{{Field: field, Reason: "differs from an existing " + noun + " only by case"}}
	return conflict
}
