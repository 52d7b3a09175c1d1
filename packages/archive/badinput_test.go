package archive

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"

	"secbox/fault"
)

// field makes one field of an entry's extra part.
func field(id uint16, data string) string {
	b := le.AppendUint16(nil, id)
	b = le.AppendUint16(b, uint16(len(data)))
	return string(b) + data
}

func put16(at int, v uint16) func([]byte) { return func(b []byte) { le.PutUint16(b[at:], v) } }
func put32(at int, v uint32) func([]byte) { return func(b []byte) { le.PutUint32(b[at:], v) } }

// unicodePath is Info-ZIP's field with a name in UTF-8 beside the one in raw.
func unicodePath(raw, name string) string {
	b := le.AppendUint32([]byte{1}, crc32.ChecksumIEEE([]byte(raw)))
	return field(extraUnicode, string(b)+name)
}

func TestRefusedNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ entry, says string }{
		"climbing":                  {"demo/../../x", "climbs out"},
		"climbing at once":          {"../x", "climbs out"},
		"climbing at the end":       {"demo/..", "climbs out"},
		"climbing, then back":       {"demo/../demo/x", "climbs out"},
		"climbing by backslash":     {`demo\..\..\x`, "climbs out"},
		"climbing by both":          {`demo/..\../x`, "climbs out"},
		"climbing out of junk":      {"__MACOSX/../../x", "climbs out"},
		"climbing junk":             {"../._x", "climbs out"},
		"absolute":                  {"/etc/x", "is absolute"},
		"absolute by backslash":     {`\etc\x`, "is absolute"},
		"another host's":            {`\\host\share\x`, "is absolute"},
		"a drive":                   {`C:\x`, "begins with a drive"},
		"a drive, lower case":       {"c:x", "begins with a drive"},
		"a drive below":             {"demo/C:/x", "which Windows does not allow"},
		"a stream":                  {"demo/a.txt:x", "which Windows does not allow"},
		"a NUL":                     {"demo/a.txt\x00.png", "holds a NUL"},
		"a NUL in the way":          {"demo/..\x00/x", "holds a NUL"},
		"a new line":                {"demo/a\nb", "holds a control character"},
		"an escape":                 {"demo/\x1b[2J", "holds a control character"},
		"a C1 control":              {"demo/a\u0085b", "holds a control character"},
		"DEL":                       {"demo/a\x7f", "holds a control character"},
		"a device":                  {"demo/CON", "device name that Windows reserves"},
		"a device with extension":   {"demo/lib/aux.py", "device name that Windows reserves"},
		"a device's folder":         {"demo/nul/x", "device name that Windows reserves"},
		"a trailing dot":            {"demo/a.", "ends in a dot"},
		"a trailing space":          {"demo/a /x", "ends in a dot or a space"},
		"three dots":                {"demo/.../x", "ends in a dot"},
		"dots and space":            {"demo/.. /x", "ends in a dot or a space"},
		"a question mark":           {"demo/a?b", "which Windows does not allow"},
		"no name":                   {"", "has no name"},
		"only a dot":                {".", "has no name"},
		"a long name":               {"demo/" + strings.Repeat("n", 256), "is longer than 255 bytes"},
		"a long path":               {"demo/" + strings.Repeat(strings.Repeat("n", 100)+"/", 11) + "x", "has a name of more than 1024 bytes"},
		"a path of the longest":     {strings.Repeat("n/", 32767) + "x", "has a name of more than 1024 bytes"},
		"a path that grows":         {"demo/" + strings.Repeat(strings.Repeat("\xce\xd2", 49)+"/", 10) + "x", "more than 1024"},
		"too deep":                  {"demo/" + strings.Repeat("d/", 16) + "x", "is 16 folders deep; a skill may be 15 deep"},
		"neither UTF-8 nor GBK":     {"demo/caf\xe9.txt", "neither UTF-8 nor GBK"},
		"half a character of GBK":   {"demo/\xcc\xec\xc6", "neither UTF-8 nor GBK"},
		"no character of GB18030":   {"demo/\xfe\xfe\xff", "neither UTF-8 nor GBK"},
		"a file and the same again": {"demo/SKILL.md", "is in the archive twice"},
		"the same, spelled longer":  {"./demo//./SKILL.md", "is in the archive twice"},
		"the same by backslash":     {`demo\SKILL.md`, "is in the archive twice"},
		"the same but for case":     {"demo/Skill.md", `differs from "SKILL.md" only by case`},
		"below a file":              {"demo/SKILL.md/x", `needs "SKILL.md" to be a folder`},
		"a folder like a file":      {"demo/SKILL.md/", `needs "SKILL.md" to be a folder`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, tree, err := unpack(t, demo(raw{name: c.entry}), "uploaded.zip", DefaultLimits())
			wantFault(t, err, fault.InvalidArchive, c.says)
			if len(tree) != 0 {
				t.Errorf("left behind: %s", paths(tree))
			}
		})
	}
}

func TestCollidingNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ one, two, says string }{
		"case":                      {"demo/Lib.py", "demo/lib.py", `"demo/lib.py" differs from "Lib.py" only by case`},
		"case of a folder":          {"demo/Lib/a", "demo/lib/b", `"demo/lib/b" differs from "Lib" only by case`},
		"case of an empty folder":   {"demo/Lib/", "demo/lib/", "only by case"},
		"case beyond ASCII":         {"demo/ÄÖ.txt", "demo/äö.txt", "only by case"},
		"the Kelvin sign":           {"demo/k", "demo/\u212a", "only by case"},
		"Unicode form":              {"demo/caf\u00e9", "demo/cafe\u0301", "only by Unicode form"},
		"Unicode form of a folder":  {"demo/caf\u00e9/a", "demo/cafe\u0301/b", "only by Unicode form"},
		"Unicode form and case":     {"demo/caf\u00e9", "demo/CAFE\u0301", "only by case"},
		"a file where a folder is":  {"demo/a/b", "demo/a", `needs "a" to be a folder`},
		"a folder where a file is":  {"demo/a", "demo/a/b", `needs "a" to be a folder`},
		"a file as another folder":  {"demo/a", "demo/A/b", "only by case"},
		"GBK and UTF-8 for one":     {"demo/\xcb\xb5\xc3\xf7", "demo/说明", "is in the archive twice"},
		"slashes of both systems":   {"demo/a/b", `demo\a\b`, "is in the archive twice"},
		"a name with a long prefix": {"demo/a/b/c/d", "demo/A/b/c/d", `differs from "a" only by case`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, tree, err := unpack(t, demo(raw{name: c.one}, raw{name: c.two}), "uploaded.zip", DefaultLimits())
			wantFault(t, err, fault.InvalidArchive, c.says)
			if len(tree) != 0 {
				t.Errorf("left behind: %s", paths(tree))
			}
		})
	}
}

func TestSpecialEntries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entry raw
		says  string
	}{
		"a symbolic link":            {raw{name: "demo/x", data: "/etc/passwd", mode: 0o120777}, "is a link"},
		"a link of Windows":          {raw{name: "demo/x", central: put32(38, reparsePoint)}, "is a link"},
		"a link that says it is DOS": {raw{name: "demo/x", mode: 0o120777, central: func(b []byte) { b[5] = 0 }}, "is a link"},
		"a link by ASi's field":      {raw{name: "demo/x", extra: field(extraAsi, "\x00\x00\x00\x00\xff\xa1\x00\x00\x00\x00\x00\x00\x00\x00")}, "is a link"},
		"a link named in ASi's field": {
			raw{name: "demo/x", extra: field(extraAsi, "\x00\x00\x00\x00\xa4\x81\x00\x00\x00\x00\x00\x00\x00\x00/etc")},
			"is a link",
		},
		"half of ASi's field": {raw{name: "demo/x", extra: field(extraAsi, "\x00\x00")}, "damaged header"},
		"a hard link": {
			raw{name: "demo/x", extra: field(extraUnix, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00demo/SKILL.md")},
			"is a link or a device",
		},
		"a FIFO":                     {raw{name: "demo/x", mode: 0o010644}, "is a FIFO"},
		"a socket":                   {raw{name: "demo/x", mode: 0o140644}, "is a socket"},
		"a character device":         {raw{name: "demo/x", mode: 0o020644}, "is a device"},
		"a block device":             {raw{name: "demo/x", mode: 0o060644}, "is a device"},
		"something unheard of":       {raw{name: "demo/x", mode: 0o170644}, "is a special file"},
		"junk that is a link":        {raw{name: "__MACOSX/x", mode: 0o120777}, "is a link"},
		"a folder with content":      {raw{name: "demo/x/", data: "x"}, "is a folder and has content"},
		"a folder by mode, content":  {raw{name: "demo/x", data: "x", mode: 0o040755}, "is a folder and has content"},
		"a folder by DOS, content":   {raw{name: "demo/x", data: "x", central: put32(38, dosDirectory)}, "is a folder and has content"},
		"encrypted":                  {raw{name: "demo/x", flags: flagEncrypted}, "without a password"},
		"encrypted strongly":         {raw{name: "demo/x", flags: flagStrong}, "without a password"},
		"with a masked header":       {raw{name: "demo/x", flags: flagMasked}, "without a password"},
		"encrypted in its header":    {raw{name: "demo/x", local: put16(6, flagEncrypted)}, "is described differently"},
		"AES":                        {raw{name: "demo/x", central: put16(10, 99)}, "without a password"},
		"a patch":                    {raw{name: "demo/x", flags: flagPatch}, "is a patch"},
		"Zstandard":                  {raw{name: "demo/x", central: put16(10, 93)}, "is packed with Zstandard"},
		"xz":                         {raw{name: "demo/x", central: put16(10, 95)}, "is packed with xz"},
		"an unheard of method":       {raw{name: "demo/x", central: put16(10, 1000)}, "is packed with method 1000"},
		"on another disk":            {raw{name: "demo/x", central: put16(34, 1)}, "one part of several"},
		"UTF-8 by flag only":         {raw{name: "demo/\xcb\xb5\xc3\xf7", flags: flagUTF8}, "says it is UTF-8 and is not"},
		"a Unicode path in no UTF-8": {raw{name: "demo/x", extra: unicodePath("demo/x", "demo/\xff")}, "not valid UTF-8"},
		"a Unicode path that climbs": {raw{name: "demo/x", extra: unicodePath("demo/x", "demo/../../x")}, "climbs out"},
		"an extra field too long":    {raw{name: "demo/x", extra: "\x01\x00\xff\xff"}, "damaged header"},
		"ZIP64 without its sizes":    {raw{name: "demo/x", central: put32(20, 0xffffffff)}, "damaged header"},
		"ZIP64 twice":                {raw{name: "demo/x", extra: field(extraZip64, "") + field(extraZip64, "")}, "gives its sizes twice"},
		"another name in its header": {raw{name: "demo/x", local: func(b []byte) { b[localLen+5] = 'y' }}, "is described differently"},
		"a shorter name there":       {raw{name: "demo/x", local: put16(26, 5)}, "is described differently"},
		"another method there":       {raw{name: "demo/x", local: put16(8, deflated)}, "is described differently"},
		"another size there":         {raw{name: "demo/x", data: "x", local: put32(22, 2)}, "is described differently"},
		"another packed size there":  {raw{name: "demo/x", data: "x", local: put32(18, 0)}, "is described differently"},
		"another checksum there":     {raw{name: "demo/x", data: "x", local: put32(14, 0)}, "is described differently"},
		"no header there":            {raw{name: "demo/x", data: "x", local: put32(0, 0)}, "is described differently"},
		"a wrong checksum": {
			raw{name: "demo/x", data: "x", local: put32(14, 7), central: put32(16, 7)},
			"its content is not what its checksum and size say",
		},
		"no deflate": {raw{name: "demo/x", data: "xxx", packed: "\xff\xff\xff", deflate: true}, "is damaged"},
		"deflate cut off": {
			raw{name: "demo/x", data: strings.Repeat("x", 100), packed: "\x00\x64\x00\x9b\xffxx", deflate: true},
			"is damaged",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := unpack(t, demo(c.entry), "uploaded.zip", DefaultLimits())
			wantFault(t, err, fault.InvalidArchive, c.says)
		})
	}
}

func TestDescriptions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entries []raw
		says    string // "" is good
	}{
		"SKILL.md":                 {[]raw{{name: "demo/SKILL.md", data: "x"}}, ""},
		"skill.md":                 {[]raw{{name: "demo/skill.md", data: "x"}}, ""},
		"README.md":                {[]raw{{name: "demo/README.md", data: "x"}}, ""},
		"both":                     {[]raw{{name: "demo/README.md", data: "x"}, {name: "demo/SKILL.md", data: "x"}}, ""},
		"a README.md below":        {[]raw{{name: "demo/SKILL.md", data: "x"}, {name: "demo/lib/README.md"}}, ""},
		"front matter, no YAML":    {[]raw{{name: "demo/SKILL.md", data: "---\n\t: [}\n---\n"}}, ""},
		"front matter without end": {[]raw{{name: "demo/SKILL.md", data: "---\n"}}, ""},
		"none":                     {[]raw{{name: "demo/run.sh", data: "x"}}, ""},
		"none in the root":         {[]raw{{name: "demo/a"}, {name: "demo/lib/README.md", data: "x"}}, ""},
		"a folder of that name":    {[]raw{{name: "demo/SKILL.md/a"}, {name: "demo/b"}}, ""},
		"another below":            {[]raw{{name: "demo/SKILL.md", data: "x"}, {name: "demo/lib/SKILL.md"}}, ""},
		"another case below":       {[]raw{{name: "demo/README.md", data: "x"}, {name: "demo/lib/skill.MD", data: "x"}}, ""},
		"only one below":           {[]raw{{name: "demo/a"}, {name: "demo/lib/skill.MD", data: "x"}}, `"demo/lib/skill.MD" is in a folder of the skill`},
		"Skill.md":                 {[]raw{{name: "demo/Skill.md", data: "x"}}, "rename it to SKILL.md"},
		"empty":                    {[]raw{{name: "demo/SKILL.md"}}, `"demo/SKILL.md" is empty: describe the skill in it`},
		"blank":                    {[]raw{{name: "demo/SKILL.md", data: " \r\n\t\n"}}, `"demo/SKILL.md" is empty`},
		"only a byte order mark":   {[]raw{{name: "demo/SKILL.md", data: "\ufeff\n"}}, `"demo/SKILL.md" is empty`},
		"blank and very long":      {[]raw{{name: "demo/SKILL.md", data: strings.Repeat(" ", 200_000), deflate: true}}, `"demo/SKILL.md" is empty`},
		"blank for long, then not": {[]raw{{name: "demo/SKILL.md", data: strings.Repeat(" ", 200_000) + "x", deflate: true}}, ""},
		"an empty README.md":       {[]raw{{name: "demo/SKILL.md", data: "x"}, {name: "demo/README.md"}}, `"demo/README.md" is empty`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := unpack(t, makeZip(ending{}, c.entries...), "uploaded.zip", DefaultLimits())
			if c.says == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			wantFault(t, err, fault.InvalidArchive, c.says)
		})
	}
}

// TestSeveralSkills: repositories and plugins are told from skills, and their skills are named,
// taken one by one, or all.
func TestSeveralSkills(t *testing.T) {
	t.Parallel()
	skill := func(names ...string) (list []raw) {
		for _, name := range names {
			list = append(list, raw{name: name, data: "# text of " + name})
		}
		return list
	}
	many := []string{"README.md"}
	for i := range maxSkills + 1 {
		many = append(many, fmt.Sprintf("s%d/SKILL.md", i))
	}
	for name, c := range map[string]struct {
		entries []raw
		skills  string // their folders, as the error names them; empty: the archive is one skill
		pick    Pick
		takes   string // the ids and files
		says    string // an error of pick
	}{
		"a repository": {
			skill("README.md", "pdf/SKILL.md", "docx/SKILL.md", "docx/a.py"), "docx pdf",
			Pick{All: true},
			"docx: SKILL.md a.py; pdf: SKILL.md", "",
		},
		"in a top folder": {skill("skills-main/LICENSE", "skills-main/pdf/SKILL.md", "skills-main/pdf/x"), "pdf", Pick{Path: "pdf"}, "pdf: SKILL.md x", ""},
		"the whole path":  {skill("skills-main/LICENSE", "skills-main/pdf/SKILL.md"), "pdf", Pick{Path: "./skills-main/pdf/"}, "pdf: SKILL.md", ""},
		"a plugin": {
			skill(".claude-plugin/plugin.json", "commands/c.md", "skills/a/SKILL.md", "skills/b/SKILL.md"), "skills/a skills/b",
			Pick{Path: "skills/b"},
			"b: SKILL.md", "",
		},
		"a marketplace": {
			skill(".claude-plugin/marketplace.json", "plugins/p/skills/a/SKILL.md", "plugins/q/skills/b/skill.md"),
			"plugins/p/skills/a plugins/q/skills/b",
			Pick{All: true},
			"a: SKILL.md; b: skill.md", "",
		},
		"two top folders":  {skill("a/SKILL.md", "b/SKILL.md"), "a b", Pick{All: true}, "a: SKILL.md; b: SKILL.md", ""},
		"a folder too far": {skill("repo-main/demo/SKILL.md"), "demo", Pick{All: true}, "demo: SKILL.md", ""},
		"a skill in one":   {skill("a-b/SKILL.md", "a/SKILL.md", "a/sub/SKILL.md"), "a a-b", Pick{All: true}, "a: SKILL.md sub/SKILL.md; a-b: SKILL.md", ""},
		"one skill":        {skill("demo/SKILL.md", "demo/lib/SKILL.md"), "", Pick{All: true}, "demo: SKILL.md lib/SKILL.md", ""},
		"all as one":       {skill("README.md", "pdf/SKILL.md"), "pdf", Pick{Path: "."}, "uploaded: README.md pdf/SKILL.md", ""},
		"no root file": {
			skill(".claude-plugin/plugin.json", "skills/a/SKILL.md", "skills/b/SKILL.md"), "skills/a skills/b",
			Pick{Path: "."},
			"uploaded: .claude-plugin/plugin.json skills/a/SKILL.md skills/b/SKILL.md", "",
		},
		"a folder of them": {
			skill("README.md", "skills/a/SKILL.md", "skills/b/SKILL.md"), "skills/a skills/b",
			Pick{Path: "skills"},
			"skills: a/SKILL.md b/SKILL.md", "",
		},
		"a plain folder": {skill("README.md", "pdf/SKILL.md", "lib/x/y"), "pdf", Pick{Path: "lib/x"}, "x: y", ""},
		"no such folder": {skill("README.md", "pdf/SKILL.md"), "pdf", Pick{Path: "pd"}, "", "path: is no folder"},
		"a file":         {skill("README.md", "pdf/SKILL.md"), "pdf", Pick{Path: "README.md"}, "", "path: is no folder"},
		"a way out":      {skill("README.md", "pdf/SKILL.md"), "pdf", Pick{Path: "../pdf"}, "", "path: is no folder"},
		"both":           {skill("README.md", "pdf/SKILL.md"), "pdf", Pick{Path: "pdf", All: true}, "", "exclude each other"},
		"one name":       {skill("x/pdf/SKILL.md", "y/PDF/SKILL.md"), "x/pdf y/PDF", Pick{All: true}, "", "skills with one name"},
		"reserved": {
			skill("README.md", "a/SKILL.md", "skill-creator/SKILL.md"), "a skill-creator",
			Pick{All: true},
			"",
			"belongs to this installation",
		},
		"an empty one": {append(skill("README.md", "a/SKILL.md"), raw{name: "b/SKILL.md"}), "a b", Pick{All: true}, "", `"b/SKILL.md" is empty`},
		"many":         {skill(many...), "s0 s1 s10", Pick{All: true}, "", "more than the 200"},
	} {
		zip := makeZip(ending{}, c.entries...)
		_, err := OpenSome(t.Context(), bytes.NewReader(zip), int64(len(zip)), "uploaded.zip", Pick{}, DefaultLimits())
		var found []string
		if fault.Is(err, fault.SeveralSkills) {
			for _, field := range fault.From(err).Fields {
				found = append(found, field.Reason)
			}
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.Join(found, " "); got != c.skills && (name != "many" || !strings.HasPrefix(got, c.skills)) {
			t.Errorf("%s: names %q, want %q", name, got, c.skills)
		}
		all, err := OpenSome(t.Context(), bytes.NewReader(zip), int64(len(zip)), "uploaded.zip", c.pick, DefaultLimits())
		if c.says != "" {
			if err == nil || !strings.Contains(fault.From(err).Message, c.says) {
				t.Errorf("%s: %v, want %q", name, err, c.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var takes []string
		for _, one := range all {
			into, err := os.OpenRoot(t.TempDir())
			if err == nil {
				err = one.Unpack(t.Context(), into)
			}
			if err != nil {
				t.Fatal(name, err)
			}
			line := one.Skill().ID + ":"
			_ = fs.WalkDir(into.FS(), ".", func(path string, d fs.DirEntry, _ error) error {
				if !d.IsDir() {
					line += " " + path
				}
				return nil
			})
			into.Close()
			takes = append(takes, line)
		}
		if got := strings.Join(takes, "; "); got != c.takes {
			t.Errorf("%s: takes %q, want %q", name, got, c.takes)
		}
	}
}

// host sets the host system that an entry names.
func host(system byte) func(b []byte) { return func(b []byte) { b[5] = system } }

// TestProgramsWithoutModes: a ZIP without Unix permissions, or with permissions of Windows, has
// executable programs.
func TestProgramsWithoutModes(t *testing.T) {
	t.Parallel()
	zip := makeZip(ending{},
		raw{name: "demo/SKILL.md", data: "# x"}, raw{name: "demo/run.sh", data: "#!/bin/sh\n"}, raw{name: "demo/elf", data: "\x7fELF..."},
		raw{name: "demo/long", data: "#!/bin/sh\n" + strings.Repeat("x", 100_000), deflate: true}, raw{name: "demo/tool.py", data: "print()"},
		raw{name: "demo/zipfile.sh", data: "#!/bin/sh\n", mode: 0o100666, central: host(0)},
		raw{name: "demo/zipfile.txt", data: "x", mode: 0o100666, central: host(0)},
		raw{name: "demo/infozip.sh", data: "#!/bin/sh\n", mode: 0o100666, central: host(11)}, raw{name: "demo/typed.sh", data: "#!/bin/sh\n", mode: 0o100000},
		raw{name: "demo/java.py", data: "print()", mode: 0o100755, central: host(0)},
		raw{name: "demo/macos.sh", data: "#!/bin/sh\n", mode: 0o100644, central: host(19)},
		raw{name: "demo/no.sh", data: "#!/bin/sh\n", mode: 0o100644}, raw{name: "demo/yes.py", data: "print()", mode: 0o100755})
	a, err := Open(t.Context(), bytes.NewReader(zip), int64(len(zip)), "", DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	into, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer into.Close()
	if err := a.Unpack(t.Context(), into); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{
		"SKILL.md": 0o644, "run.sh": 0o755, "elf": 0o755, "long": 0o755, "tool.py": 0o644, "no.sh": 0o644, "yes.py": 0o755,
		"zipfile.sh": 0o755, "zipfile.txt": 0o644, "infozip.sh": 0o755, "typed.sh": 0o755, "java.py": 0o755, "macos.sh": 0o644,
	} {
		if fi, err := into.Stat(name); err != nil || fi.Mode() != want && runtime.GOOS != "windows" {
			t.Errorf("%s: %v %v, want %v", name, fi, err, want)
		}
	}
}

func TestIncompleteArchives(t *testing.T) {
	t.Parallel()
	good := demo()
	for name, c := range map[string]struct {
		archive []byte
		says    string
	}{
		"nothing":                  {nil, "the file is empty"},
		"one byte":                 {[]byte("P"), "does not begin as a ZIP archive does"},
		"text":                     {[]byte(strings.Repeat("hello ", 100)), "does not begin as a ZIP archive does"},
		"RAR":                      {[]byte("Rar!\x1a\x07\x01\x00and so on"), "is a RAR archive"},
		"7z":                       {[]byte("7z\xbc\xaf\x27\x1cand so on"), "is a 7z archive"},
		"gzip":                     {[]byte("\x1f\x8b\x08\x00and so on"), "is a gzip file"},
		"a first part":             {[]byte("PK\x07\x08" + string(good)), "one part of several"},
		"only the magic":           {[]byte("PK\x03\x04"), "is cut off"},
		"empty, by the book":       {makeZip(ending{}), "is empty"},
		"only a folder":            {makeZip(ending{}, raw{name: "demo/"}), "is empty"},
		"only junk":                {makeZip(ending{}, raw{name: "demo/.DS_Store", data: "x"}, raw{name: "__MACOSX/._demo"}), "is empty"},
		"cut in the end":           {good[:len(good)-1], "is cut off"},
		"cut before the end":       {good[:len(good)-endLen], "is cut off"},
		"cut in the middle":        {good[:len(good)/2], "is cut off"},
		"something before":         {append([]byte("#!/bin/sh\n"), good...), "does not begin as a ZIP archive does"},
		"something after":          {append(good[:len(good):len(good)], "x"...), "other data after its end"},
		"an archive before":        {append(good[:len(good):len(good)], good...), "not where it says"},
		"an archive behind, fixed": {makeZip(ending{prefix: string(good)}, skillMD("x/SKILL.md")), "data that is in none of its entries"},
		"something in between": {
			makeZip(ending{between: "xxxx", end: func(b []byte) { put32(16, le.Uint32(b[16:])-4)(b) }}, skillMD("a/SKILL.md")),
			"not where it says",
		},
		"a comment cut off":       {makeZip(ending{end: put16(20, 5)}, skillMD("demo/SKILL.md")), "is cut off"},
		"two ends":                {makeZip(ending{comment: string(makeZip(ending{}, skillMD("other/SKILL.md")))}, skillMD("demo/SKILL.md")), "has two ends"},
		"fewer entries than said": {makeZip(ending{end: put16(10, 2)}, skillMD("demo/SKILL.md")), "one part of several"},
		"fewer entries, both ways": {
			makeZip(ending{end: func(b []byte) { put16(8, 2)(b); put16(10, 2)(b) }}, skillMD("demo/SKILL.md")),
			"table of contents is damaged",
		},
		"more entries than said": {makeZip(ending{end: func(b []byte) { put16(8, 1)(b); put16(10, 1)(b) }},
			skillMD("demo/SKILL.md"), raw{name: "demo/x"}), "table of contents is damaged"},
		"a table longer than said": {makeZip(ending{end: func(b []byte) { put32(12, le.Uint32(b[12:])-1)(b); put32(16, le.Uint32(b[16:])+1)(b) }},
			skillMD("demo/SKILL.md")), "table of contents is damaged"},
		"a table beyond the file": {makeZip(ending{end: put32(12, 1<<31)}, skillMD("demo/SKILL.md")), "not where it says"},
		"no table there":          {makeZip(ending{}, raw{name: "demo/SKILL.md", data: "x", central: put32(0, 0)}), "table of contents is damaged"},
		"an entry beyond the file": {
			makeZip(ending{}, skillMD("demo/SKILL.md"), raw{name: "demo/x", central: put32(42, 1<<30)}),
			"overlaps another entry or the table of contents",
		},
		"a later disk":       {makeZip(ending{end: put16(4, 1)}, skillMD("demo/SKILL.md")), "one part of several"},
		"a table on another": {makeZip(ending{end: put16(6, 1)}, skillMD("demo/SKILL.md")), "one part of several"},
		"ZIP64 without":      {makeZip(ending{end: put32(16, 0xffffffff)}, skillMD("demo/SKILL.md")), "table of contents is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, tree, err := unpack(t, c.archive, "uploaded.zip", DefaultLimits())
			wantFault(t, err, fault.InvalidArchive, c.says)
			if len(tree) != 0 {
				t.Errorf("left behind: %s", paths(tree))
			}
		})
	}
}

// end64 makes the ZIP64 end record and its locator, changed by change.
func end64(change func(record, locator []byte)) func(table, size uint64) string {
	return func(table, size uint64) string {
		record, locator := make([]byte, end64Len), make([]byte, locatorLen)
		copy(record, end64Magic)
		le.PutUint64(record[4:], end64Len-12)
		le.PutUint64(record[24:], 1)
		le.PutUint64(record[32:], 1)
		le.PutUint64(record[40:], size)
		le.PutUint64(record[48:], table)
		copy(locator, locatorMagic)
		le.PutUint64(locator[8:], table+size)
		le.PutUint32(locator[16:], 1)
		change(record, locator)
		return string(record) + string(locator)
	}
}

func TestZIP64Ends(t *testing.T) {
	t.Parallel()
	put64 := func(at int, v uint64) func([]byte) { return func(b []byte) { le.PutUint64(b[at:], v) } }
	record := func(f func([]byte)) func(record, locator []byte) { return func(record, _ []byte) { f(record) } }
	locator := func(f func([]byte)) func(record, locator []byte) { return func(_, locator []byte) { f(locator) } }
	for name, c := range map[string]struct {
		change func(record, locator []byte)
		says   string // "" is good
	}{
		"as it should be":             {func(_, _ []byte) {}, ""},
		"no record there":             {record(put32(0, 0)), "table of contents is damaged"},
		"a record too long":           {record(put64(4, 45)), "table of contents is damaged"},
		"a record of a huge length":   {record(put64(4, 1<<63)), "table of contents is damaged"},
		"on another disk":             {record(put32(16, 1)), "one part of several"},
		"the table on another":        {record(put32(20, 1)), "one part of several"},
		"of several disks":            {locator(put32(16, 2)), "one part of several"},
		"a record on another":         {locator(put32(4, 1)), "one part of several"},
		"a record beyond the file":    {locator(put64(8, 1<<62)), "table of contents is damaged"},
		"a record below 0":            {locator(put64(8, 1<<64-1)), "table of contents is damaged"},
		"another record":              {locator(put64(8, 0)), "table of contents is damaged"},
		"entries split":               {record(put64(24, 0)), "one part of several"},
		"too many entries":            {record(func(b []byte) { put64(24, 1<<62)(b); put64(32, 1<<62)(b) }), "the archive has"},
		"a huge number of entries":    {record(func(b []byte) { put64(24, 1<<64-1)(b); put64(32, 1<<64-1)(b) }), "the archive has"},
		"more entries than there are": {record(func(b []byte) { put64(24, 2)(b); put64(32, 2)(b) }), "table of contents is damaged"},
		"a table beyond the file":     {record(put64(48, 1<<62)), "not where it says"},
		"a table below 0":             {record(put64(48, 1<<64-40)), "not where it says"},
		"a huge table":                {record(put64(40, 1<<64-1)), "not where it says"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := makeZip(ending{wide: end64(c.change), end: func(b []byte) {
				put32(8, 0xffffffff)(b)
				put64(12, 1<<64-1)(b)
			}}, skillMD("demo/SKILL.md"))
			_, tree, err := unpack(t, b, "uploaded.zip", DefaultLimits())
			switch {
			case c.says == "" && (err != nil || paths(tree) != "SKILL.md"):
				t.Errorf("got %v and %s", err, paths(tree))
			case c.says == "the archive has":
				wantFault(t, err, fault.ArchiveTooLarge, c.says)
			case c.says != "":
				wantFault(t, err, fault.InvalidArchive, c.says)
			}
		})
	}
	t.Run("beside an end that says something else", func(t *testing.T) {
		t.Parallel()
		for at, v := range map[int]uint16{8: 2, 10: 2, 12: 1, 16: 1} {
			b := makeZip(ending{wide: end64(func(_, _ []byte) {}), end: put16(at, v)}, skillMD("demo/SKILL.md"))
			_, _, err := unpack(t, b, "uploaded.zip", DefaultLimits())
			wantFault(t, err, fault.InvalidArchive, "table of contents is damaged")
		}
	})
}

// TestEveryCutIsNoticed cuts an archive at every byte.
func TestEveryCutIsNoticed(t *testing.T) {
	t.Parallel()
	good := demo(raw{name: "demo/a.txt", data: strings.Repeat("hello ", 50), deflate: true})
	for n := range good {
		if _, _, err := unpack(t, good[:n], "uploaded.zip", DefaultLimits()); fault.CodeOf(err) != fault.InvalidArchive {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
}

// TestFlippedBytes flips each byte: the archive is refused, or unpacks to the same content, except
// names and modes.
func TestFlippedBytes(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("hello ", 50)
	good := demo(raw{name: "demo/a.txt", data: text, deflate: true})
	for n := range good {
		b := append([]byte{}, good...)
		b[n] ^= 0x41
		_, tree, err := unpack(t, b, "uploaded.zip", DefaultLimits())
		if err != nil {
			if c := fault.CodeOf(err); c != fault.InvalidArchive && c != fault.ArchiveTooLarge && c != fault.SeveralSkills {
				t.Fatalf("byte %d: %v", n, err)
			}
			continue
		}
		for name, content := range tree {
			if content != text && content != "# Demo\n" && !strings.HasSuffix(name, "/") {
				t.Fatalf("byte %d: %s holds %q", n, name, content)
			}
		}
	}
}

func TestMessageQuotesEntryName(t *testing.T) {
	t.Parallel()
	_, _, err := unpack(t, demo(raw{name: "demo/" + strings.Repeat("\x1b", 900)}), "x.zip", DefaultLimits())
	wantFault(t, err, fault.InvalidArchive, `"demo/\x1b\x1b`)
}
