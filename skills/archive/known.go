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
	case pathadapter.FoldName(norm.NFKC.String(id)) == ReservedID:
		return fault.New(fault.ReservedSkill, "%s belongs to this installation and can be neither uploaded nor changed: use another name", ReservedID)
	}
	return nil
}
