package archive

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"secbox/fault"
)

// ReservedID is the skill that belongs to the installation. Nobody uploads one of that name.
const ReservedID = "skill-creator"

const maxIDBytes = 200

// skillID makes the id out of the top folder's name, or out of the uploaded file's when there is none.
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
		return "", fault.New(fault.ReservedSkill, "the skill's id would be %s, but %s belongs to this installation: %s", quoted(name), ReservedID, remedy)
	}
	return id, nil
}

// nameOfFile is what a client's name for the file says of the skill: without directories, in either system's way, and without .zip.
func nameOfFile(filename string) string {
	name := filename[strings.LastIndexAny(filename, `/\`)+1:]
	if n := len(name) - len(".zip"); n >= 0 && strings.EqualFold(name[n:], ".zip") {
		name = name[:n]
	}
	return name
}

// idFault says why something cannot be a skill's id, as a reason that follows it.
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
		// Format characters turn or hide text: two ids would look the same.
		if !unicode.IsGraphic(r) {
			return "holds a character that does not show"
		}
	}
	return ""
}
