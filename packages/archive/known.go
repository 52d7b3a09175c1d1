package archive

import (
	"golang.org/x/text/unicode/norm"

	"secbox/fault"
	"secbox/pathadapter"
)

// CheckID checks that id is one that an upload could have. Errors: fault.InvalidRequest naming
// skill_id, and fault.ReservedSkill.
func CheckID(id string) error {
	switch why := idFault(id); {
	case why != "":
		return fault.BadField("skill_id", "%s", why)
	case !norm.NFC.IsNormalString(id):
		return fault.BadField("skill_id", "is not in Unicode's composed form (NFC)")
	case IsReserved(id):
		return fault.New(fault.ReservedSkill, "%s belongs to this installation and can be neither uploaded nor changed: use another name",
			ReservedID)
	}
	return nil
}

// IsReserved reports whether a name is the one of the installation's own skill, or is equal or
// looks equal to it on some system. Compatibility forms, such as full-width letters, count as
// equal.
func IsReserved(name string) bool { return pathadapter.FoldName(norm.NFKC.String(name)) == ReservedID }
