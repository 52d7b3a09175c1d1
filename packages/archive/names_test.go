package archive

import (
	"maps"
	"strings"
	"testing"

	"secbox/fault"
)

// TestNamesAsTheyAreRead gives entries below demo/ and wants them by their names.
func TestNamesAsTheyAreRead(t *testing.T) {
	t.Parallel()
	const deepest = "a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p"
	for name, c := range map[string]struct {
		entries []raw
		want    string // beside SKILL.md
	}{
		"UTF-8 with its flag":    {[]raw{{name: "demo/说明.txt", flags: flagUTF8}}, "说明.txt"},
		"UTF-8 without":          {[]raw{{name: "demo/说明.txt"}}, "说明.txt"},
		"GBK":                    {[]raw{{name: "demo/\xcb\xb5\xc3\xf7.txt"}}, "说明.txt"},
		"GB18030 of four bytes":  {[]raw{{name: "demo/\x95\x32\x82\x36"}}, "\U00020000"},
		"a backslash in GBK":     {[]raw{{name: "demo\\\x81\\\\\x81\\.txt"}}, "乗/ 乗/乗.txt"},
		"overlong dots are GBK":  {[]raw{{name: "demo/\xc0\xae\xc0\xae/x"}}, "喇喇/ 喇喇/x"},
		"GBK that is UTF-8 too":  {[]raw{{name: "demo/\xc4\xa3"}}, "ģ"},
		"the same beside GBK":    {[]raw{{name: "demo/\xc4\xa3"}, {name: "demo/\xcb\xb5\xc3\xf7"}}, "模 说明"},
		"the same with the flag": {[]raw{{name: "demo/\xc4\xa3", flags: flagUTF8}, {name: "demo/\xcb\xb5\xc3\xf7"}}, "ģ 说明"},
		"UTF-8 beside GBK":       {[]raw{{name: "demo/天气"}, {name: "demo/\xcb\xb5\xc3\xf7"}, {name: "demo/🦆"}}, "天气 说明 🦆"},
		"UTF-8 by Unicode path":  {[]raw{{name: "demo/\x8bb", extra: unicodePath("demo/\x8bb", "demo/说明")}}, "说明"},
		"a stale Unicode path":   {[]raw{{name: "demo/new", extra: unicodePath("demo/old", "demo/old")}}, "new"},
		"a Unicode path of v2":   {[]raw{{name: "demo/a", extra: "\x75\x70\x07\x00\x02" + unicodePath("demo/a", "b")[5:9] + "bc"}}, "a"},
		"backslashes":            {[]raw{{name: `demo\lib\a.py`}}, "lib/ lib/a.py"},
		"a folder by backslash":  {[]raw{{name: `demo\lib\`}}, "lib/"},
		"a folder by Unix mode":  {[]raw{{name: "demo/lib", mode: 0o040755}}, "lib/"},
		"a folder by DOS":        {[]raw{{name: "demo/lib", central: put32(38, dosDirectory)}}, "lib/"},
		"a folder, packed":       {[]raw{{name: "demo/lib/", deflate: true}}, "lib/"},
		"folders again":          {[]raw{{name: "demo/lib/"}, {name: "demo/lib/"}, {name: "demo/lib/a"}, {name: "demo/"}, {name: "./"}}, "lib/ lib/a"},
		"doubled slashes":        {[]raw{{name: "./demo//lib/./a"}}, "lib/ lib/a"},
		"executable":             {[]raw{{name: "demo/a", mode: 0o100755}, {name: "demo/b", mode: 0o100600}, {name: "demo/c", mode: 0o010}}, "a* b c*"},
		"set-uid and sticky":     {[]raw{{name: "demo/a", mode: 0o107777}}, "a*"},
		"an empty file, packed":  {[]raw{{name: "demo/a", deflate: true}}, "a"},
		"hidden files":           {[]raw{{name: "demo/.env"}, {name: "demo/.git/config"}}, ".env .git/ .git/config"},
		"an archive in it":       {[]raw{{name: "demo/inner.zip", data: string(demo(raw{name: "demo/../../x"}))}}, "inner.zip"},
		"as deep as may be":      {[]raw{{name: "demo/" + deepest}}, deepest},
		"what macOS leaves": {[]raw{
			{name: "__MACOSX/"},
			{name: "__MACOSX/demo/._SKILL.md", data: "x"},
			{name: "demo/.DS_Store", data: "x"},
			{name: "demo/._a", data: "x"},
			{name: "demo/Icon\r"},
			{name: "demo/lib/__MACOSX/CON"},
			{name: ".DS_Store"},
			{name: "demo/lib/a"},
		}, "lib/ lib/a"},
		"what Windows leaves": {[]raw{{name: "demo/Thumbs.db", data: "x"}, {name: "demo/lib/thumbs.DB"}}, ""},
		"what only looks like it": {
			[]raw{{name: "demo/__macosx/a"}, {name: "demo/.DS_Store/a"}, {name: "demo/_.a"}},
			".DS_Store/ .DS_Store/a _.a __macosx/ __macosx/a",
		},
		"forms that stay their own":  {[]raw{{name: "demo/cafe\u0301"}}, "cafe\u0301"},
		"zeros at an extra's end":    {[]raw{{name: "demo/a", extra: "\x00\x00\x00\x00\x00"}}, "a"},
		"times and owners, for Unix": {[]raw{{name: "demo/a", extra: field(extraUnix, strings.Repeat("\x00", 12))}}, "a"},
		"ASi's field of a file":      {[]raw{{name: "demo/a", extra: field(extraAsi, "\x00\x00\x00\x00\xa4\x81\x00\x00\x00\x00\x00\x00\x00\x00")}}, "a"},
		"sizes in ZIP64": {[]raw{{
			name: "demo/a", data: "xy", extra: field(extraZip64, "\x02\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00"),
			local:   func(b []byte) { put32(18, 0xffffffff)(b); put32(22, 0xffffffff)(b) },
			central: func(b []byte) { put32(20, 0xffffffff)(b); put32(24, 0xffffffff)(b) },
		}}, "a"},
		"sizes behind the data": {[]raw{{
			name: "demo/a", data: "xy", flags: flagDescriptor,
			local: func(b []byte) { put32(14, 0)(b); put32(18, 0)(b); put32(22, 0)(b) },
		}}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, tree, err := unpack(t, demo(c.entries...), "uploaded.zip", DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			delete(tree, "SKILL.md")
			if strings.Count(c.want, "/") > 10 { // its folders are not spelled out
				maps.DeleteFunc(tree, func(name, _ string) bool { return strings.HasSuffix(name, "/") })
			}
			if got := paths(tree); got != strings.ReplaceAll(c.want, "*", star) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestSkillID(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entries  string // names, with spaces between
		filename string
		id       string
		says     string // when refused
		code     fault.Code
		flat     bool
	}{
		"the folder":                {"demo/SKILL.md demo/a/b", "x.zip", "demo", "", "", false},
		"the folder, with its name": {"demo/ demo/SKILL.md", "x.zip", "demo", "", "", false},
		"the file":                  {"SKILL.md a/b", "x.zip", "x", "", "", false},
		"the file, one at the top":  {"SKILL.md", "x.zip", "x", "", "", false},
		"the file, upper case":      {"SKILL.md", "My Skill.ZIP", "My Skill", "", "", false},
		"the file without .zip":     {"SKILL.md", "x.skill", "x.skill", "", "", false},
		"the file with a path":      {"SKILL.md", "../../etc/x.zip", "x", "", "", false},
		"the file with a drive":     {"SKILL.md", `C:\fakepath\x.zip`, "x", "", "", false},
		"the file, not decoded":     {"SKILL.md", "a%2Fb.zip", "a%2Fb", "", "", false},
		"Unicode":                   {"天气查询/SKILL.md", "x.zip", "天气查询", "", "", false},
		"NFC":                       {"cafe\u0301/SKILL.md", "x.zip", "caf\u00e9", "", "", false},
		"NFC of the file":           {"SKILL.md", "cafe\u0301.zip", "caf\u00e9", "", "", false},
		"200 bytes":                 {strings.Repeat("n", 200) + "/SKILL.md", "", strings.Repeat("n", 200), "", "", false},
		"junk beside the folder":    {"demo/SKILL.md __MACOSX/._demo .DS_Store", "x.zip", "demo", "", "", false},
		"a folder beside it":        {"demo/SKILL.md other/", "x.zip", "", `skills below it: "demo"`, fault.SeveralSkills, false},
		"flattened":                 {"a/a/SKILL.md a/a/b", "x.zip", "a", "", "", true},
		"flattened thrice":          {"a/ a/a/ a/a/a/ a/a/a/a/SKILL.md", "x.zip", "a", "", "", true},
		"flattened, with junk":      {"a/a/SKILL.md a/.DS_Store __MACOSX/a", "x.zip", "a", "", "", true},
		"flattened, Unicode":        {"天气/天气/SKILL.md", "x.zip", "天气", "", "", true},
		"flattened, a folder more":  {"a/a/SKILL.md a/a/a/b", "x.zip", "a", "", "", true},
		"a file beside the inner":   {"a/SKILL.md a/a/b", "x.zip", "a", "", "", false},
		"another inner":             {"a/b/README.md", "x.zip", "a", "", "", false},
		"an inner in other case":    {"a/A/README.md", "x.zip", "a", "", "", false},
		"a folder beside the inner": {"a/a/README.md a/b/", "x.zip", "a", "", "", false},
		"a file of the same name":   {"a/SKILL.md a/a", "x.zip", "a", "", "", false},

		"no file name":         {"SKILL.md", "", "", `the skill's id would be "", which is empty: put everything into one folder`, "", false},
		"only .zip":            {"SKILL.md", ".zip", "", "is empty", "", false},
		"only a path":          {"SKILL.md", "a/b/", "", "is empty", "", false},
		"dots":                 {"SKILL.md", "...zip", "", `must not be "." or ".."`, "", false},
		"a hidden folder":      {".demo/SKILL.md", "x.zip", "", "begins with a dot: rename the folder", "", false},
		"a hidden file":        {"SKILL.md", ".x.zip", "", "begins with a dot", "", false},
		"too long":             {strings.Repeat("n", 201) + "/SKILL.md", "", "", "is longer than 200 bytes", "", false},
		"too long, Unicode":    {strings.Repeat("气", 67) + "/SKILL.md", "", "", "is longer than 200 bytes", "", false},
		"a far too long file":  {"SKILL.md", strings.Repeat("n", 1<<20), "", "is longer than", "", false},
		"a device":             {"con/SKILL.md", "x.zip", "", "device name that Windows reserves", "", false},
		"a device's file":      {"SKILL.md", "aux.zip", "", "device name that Windows reserves", "", false},
		"a colon":              {"SKILL.md", "a:b.zip", "", "Windows does not allow", "", false},
		"a NUL":                {"SKILL.md", "a\x00b.zip", "", "holds a NUL", "", false},
		"no UTF-8":             {"SKILL.md", "\xcb\xb5\xc3\xf7.zip", "", "is not valid UTF-8", "", false},
		"text turned around":   {"a\u202eb/SKILL.md", "x.zip", "", "holds a character that does not show", "", false},
		"a hidden character":   {"a\u200bb/SKILL.md", "x.zip", "", "holds a character that does not show", "", false},
		"a space in front":     {"SKILL.md", " x.zip", "", "begins or ends with a space", "", false},
		"a wide space behind":  {"x\u3000/SKILL.md", "x.zip", "", "begins or ends with a space", "", false},
		"reserved":             {"skill-creator/SKILL.md", "x.zip", "", "belongs to this installation: rename the folder", fault.ReservedSkill, false},
		"reserved, upper case": {"SKILL-Creator/SKILL.md", "x.zip", "", "belongs to this installation", fault.ReservedSkill, false},
		"reserved by the file": {"SKILL.md", "Skill-Creator.zip", "", "or rename the file", fault.ReservedSkill, false},
		"reserved, full width": {"ｓｋｉｌｌ-creator/SKILL.md", "x.zip", "", "belongs to this installation", fault.ReservedSkill, false},
		"reserved, Kelvin":     {"s\u212aill-creator/SKILL.md", "x.zip", "", "belongs to this installation", fault.ReservedSkill, false},
		"reserved, long s":     {"\u017fkill-creator/SKILL.md", "x.zip", "", "belongs to this installation", fault.ReservedSkill, false},
		"reserved, flattened":  {"skill-creator/skill-creator/SKILL.md", "x.zip", "", "belongs to this installation", fault.ReservedSkill, false},
		"not quite reserved":   {"skill-creator2/SKILL.md", "x.zip", "skill-creator2", "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var entries []raw
			for entry := range strings.SplitSeq(c.entries, " ") {
				r := raw{name: entry}
				if !strings.HasSuffix(entry, "/") {
					r.data = "x"
				}
				entries = append(entries, r)
			}
			skill, tree, err := unpack(t, makeZip(ending{}, entries...), c.filename, DefaultLimits())
			if c.says != "" {
				if c.code == "" {
					c.code = fault.InvalidArchive
				}
				wantFault(t, err, c.code, c.says)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if skill.ID != c.id || skill.Flattened != c.flat || strings.Contains(c.entries, "SKILL.md") && tree["SKILL.md"] != "x" {
				t.Errorf("got %+v with %s", skill, paths(tree))
			}
		})
	}
}
