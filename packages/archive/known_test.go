package archive

import (
	"strings"
	"testing"

	"secbox/fault"
)

// TestCheckID checks that CheckID accepts exactly the ids that Unpack gives.
func TestCheckID(t *testing.T) {
	t.Parallel()
	for id, code := range map[string]fault.Code{
		"demo": "", "天气查询": "", "caf\u00e9": "", "My Skill (1)": "", strings.Repeat("n", 200): "", "a~b": "",
		"": fault.InvalidRequest, "..": fault.InvalidRequest, "a/b": fault.InvalidRequest, `a\b`: fault.InvalidRequest, "a\x00": fault.InvalidRequest,
		".hidden": fault.InvalidRequest, "cafe\u0301": fault.InvalidRequest, "a\u202eb": fault.InvalidRequest, "con": fault.InvalidRequest,
		"a\xff": fault.InvalidRequest, strings.Repeat("n", 201): fault.InvalidRequest, " a": fault.InvalidRequest,
		"skill-creator": fault.ReservedSkill, "Skill-Creator": fault.ReservedSkill, "ｓｋｉｌｌ-creator": fault.ReservedSkill,
	} {
		if err := CheckID(id); fault.CodeOf(err) != code {
			t.Errorf("%q: got %v", id, err)
		}
	}
}
