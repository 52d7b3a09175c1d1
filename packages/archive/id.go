package archive

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"secbox/fault"
)

// ReservedID is the id of the installation's own skill, which cannot be uploaded.
const ReservedID = "skill-creator"

const maxIDBytes = 200

// skillID derives the id from the top folder's name, or from the uploaded file's name if there is
// none.
func skillID(folder, filename string) (string, error) {
	name, remedy := folder, "rename the folder in the archive"
	if folder == "" {
		name, remedy = nameOfFile(filename), "put everything into one folder named as the skill, or rename the file"
	}
	id := norm.NFC.String(name)
	if why := idFault(id); why != "" {
		return "", bad("the skill's id would be %s, which %s: %s", quoted(name), why, remedy)
	}
	if IsReserved(id) {
		return "", fault.New(fault.ReservedSkill, "the skill's id would be %s, but %s belongs to this installation: %s", quoted(name),
			ReservedID, remedy)
	}
	return id, nil
}

// nameOfFile returns a client's file name without directories, of either system's syntax, and
// without .zip.
func nameOfFile(filename string) string {
	name := filename[strings.LastIndexAny(filename, `/\`)+1:]
	if n := len(name) - len(".zip"); n >= 0 && strings.EqualFold(name[n:], ".zip") {
		name = name[:n]
	}
	return name
}

// idFault says why a name cannot be a skill's id; empty if it can.
func idFault(id string) string {
	switch why := partFault(id); {
	case why != "":
		return why
	case len(id) > maxIDBytes:
		return fmt.Sprintf("is longer than %d bytes", maxIDBytes)
	case id[0] == '.':
		return "begins with a dot"
	case strings.TrimSpace(id) != id:
		return "begins or ends with a space"
	}
	for _, r := range id {
		// Format characters reorder or hide text: two ids would look the same.
		if !unicode.IsGraphic(r) {
			return "holds a character that does not show"
		}
	}
	return ""
}
