package row

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"secbox/fault"
	"secbox/skills"
)

// checkPointer refuses keys that cannot be stored unchanged: cleaning them could make two of them
// equal.
func checkPointer(k skills.PointerKey) error {
	err := cmp.Or(checkID("agent_id", k.AgentID), checkID("skill_id", k.SkillID))
	if err == nil && k.UserID != "" {
		err = checkID("user_id", k.UserID)
	}
	return err
}

func checkID(field, id string) error {
	if id == "" {
		return fault.BadField(field, "is empty")
	}
	return checkCursor(field, id)
}

// checkCursor checks a text that is compared with ids or digests; it may be empty.
func checkCursor(field, s string) error {
	switch {
	case len(s) > skills.MaxPointerIDBytes:
		return fault.BadField(field, "is longer than %d bytes", skills.MaxPointerIDBytes)
	case !utf8.ValidString(s):
		return fault.BadField(field, "is not UTF-8")
	case strings.ContainsRune(s, 0):
		return fault.BadField(field, "contains NUL")
	}
	return nil
}

// checkPage checks the parameters of a page of an agent: each of the two texts after which it
// starts may be empty.
func checkPage(agentID, after, andAfter string) error {
	return cmp.Or(checkID("agent_id", agentID), checkCursor("after", after), checkCursor("after", andAfter))
}

// checkState checks the new state of a pointer.
func checkState(k skills.PointerKey, want skills.PointerState) error {
	switch {
	case !digestOrNone(want.Digest), !digestOrNone(want.BaseDigest):
		return fault.New(fault.Internal, "a version of skill %q is not named by a SHA-256", k.SkillID)
	case k.UserID == "" && (want.Digest == "" || want.BaseDigest != ""):
		return fault.New(fault.Internal, "the baseline of skill %q must have a digest and no base", k.SkillID)
	}
	return nil
}

func digestOrNone(s string) bool {
	return s == "" || len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}
