package archive

import (
	"golang.org/x/text/unicode/norm"

	"secbox/fault"
	"secbox/pathadapter"
)

// CheckID says whether id is one that Unpack could give a skill. Errors: fault.InvalidRequest naming skill_id, and fault.ReservedSkill.
func CheckID(id string) error {
	switch why := idFault(id); {
	case why != "":
		return fault.BadField("skill_id", "%s", why)
	case !norm.NFC.IsNormalString(id):
		return fault.BadField("skill_id", "is not in Unicode's composed form (NFC)")
	case IsReserved(id):
		return fault.New(fault.ReservedSkill, "%s belongs to this installation and can be neither uploaded nor changed: use another name", ReservedID)
	}
	return nil
}

// IsReserved says whether a name is, or on some system or to some eye may pass for, the one that belongs to the installation. Compatibility
// forms, such as full-width letters, are taken in.
func IsReserved(name string) bool { return pathadapter.FoldName(norm.NFKC.String(name)) == ReservedID }
