package metadata_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"

	"secbox/packages/metadata"
)

// folder is a skill of files given as path, content, path, content.
func folder(files ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		m[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return m
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	const none = metadata.NoDescription
	for name, c := range map[string]struct {
		files             []string
		name, description string
	}{
		"front matter":       {[]string{"SKILL.md", "---\nname: 天气查询技能\ndescription: 提供全球实时天气查询服务\n---\n# Weather\n"}, "天气查询技能", "提供全球实时天气查询服务"},
		"CRLF and a mark":    {[]string{"SKILL.md", "\uFEFF---\r\nname: a\r\ndescription: b\r\n---\r\n"}, "a", "b"},
		"ended by dots":      {[]string{"SKILL.md", "---  \nname: a\n...\n# h"}, "a", none},
		"ended by the file":  {[]string{"SKILL.md", "---\nname: a\n---"}, "a", none},
		"quoted":             {[]string{"SKILL.md", "---\nname: \"a: b\"\ndescription: 'it''s'\n---\n"}, "a: b", "it's"},
		"several lines":      {[]string{"SKILL.md", "---\ndescription: |\n  one\n  two\n\n  three\nname: >\n  x\n  y\n---\n"}, "x y", "one two three"},
		"a description only": {[]string{"SKILL.md", "---\ndescription: d\n---\ntext\n# Heading\n"}, "Heading", "d"},
		"other keys": {
			[]string{"SKILL.md", "---\nlicense: MIT\nmetadata: {name: no, description: no}\nallowed-tools: [a, b]\n---\n# H"},
			"H",
			none,
		},
		"an alias of a string":    {[]string{"SKILL.md", "---\nx: &x hello\nname: *x\n---\n"}, "hello", none},
		"a heading":               {[]string{"SKILL.md", "some text\n\n# The Title #\n# another"}, "The Title", none},
		"a heading with a sharp":  {[]string{"SKILL.md", "# C#\n"}, "C#", none},
		"a heading, tab, indent":  {[]string{"SKILL.md", "   #\tTitle\n"}, "Title", none},
		"no heading of level two": {[]string{"SKILL.md", "## Two\n#hashtag\n#!/bin/sh\n"}, "folder", none},
		"a comment in code":       {[]string{"SKILL.md", "```sh\n# install\n~~~\n# x\n```\n    # indented\n# Real\n"}, "Real", none},
		"code in longer fences":   {[]string{"SKILL.md", "````\n```\n# no\n````\n# Real\n"}, "Real", none},
		"code without an end":     {[]string{"SKILL.md", "```\n# no\n"}, "folder", none},
		"an empty heading":        {[]string{"SKILL.md", "# \n# ###\n# Real\n"}, "Real", none},
		"skill.md":                {[]string{"skill.md", "---\nname: small\n---\n", "README.md", "# Readme"}, "small", none},
		"README.md":               {[]string{"README.md", "# Readme\nwords"}, "Readme", none},
		"a README's front matter": {[]string{"README.md", "---\nname: no\n---\n# Readme"}, "Readme", none},
		"the first that has one":  {[]string{"SKILL.md", "no heading", "README.md", "# Readme"}, "Readme", none},
		"no files":                {nil, "folder", none},
		"a 0-byte SKILL.md":       {[]string{"SKILL.md", ""}, "folder", none},

		"front matter that is no YAML":     {[]string{"SKILL.md", "---\nname: [a\n  b: }\n---\n# Heading\n"}, "Heading", none},
		"front matter with tabs":           {[]string{"SKILL.md", "---\nname:\n\t- x\n---\n# Heading\n"}, "Heading", none},
		"front matter without end":         {[]string{"SKILL.md", "---\nname: a\n# Heading\n"}, "Heading", none},
		"empty front matter":               {[]string{"SKILL.md", "---\n---\n# Heading\n"}, "Heading", none},
		"front matter that is a list":      {[]string{"SKILL.md", "---\n- name: a\n---\n# Heading\n"}, "Heading", none},
		"front matter that is a word":      {[]string{"SKILL.md", "---\nname\n---\n# Heading\n"}, "Heading", none},
		"below empty lines":                {[]string{"SKILL.md", "\n \n---\nname: a\n---\n# Heading\n"}, "a", none},
		"below a text":                     {[]string{"SKILL.md", "text\n---\nname: a\n---\n# Heading\n"}, "Heading", none},
		"indented":                         {[]string{"SKILL.md", "  ---\nname: a\n---\n# Heading\n"}, "Heading", none},
		"wrong types":                      {[]string{"SKILL.md", "---\nname: 42\ndescription: [a]\n---\n# Heading\n"}, "Heading", none},
		"wrong types, too":                 {[]string{"SKILL.md", "---\nname: true\ndescription: {a: b}\n---\n"}, "folder", none},
		"nulls and empties":                {[]string{"SKILL.md", "---\nname: ''\ndescription: ~\n---\n"}, "folder", none},
		"binary":                           {[]string{"SKILL.md", "---\nname: !!binary aGk=\n---\n"}, "folder", none},
		"an unknown tag":                   {[]string{"SKILL.md", "---\nname: !exec rm\n---\n"}, "folder", none},
		"an alias of itself":               {[]string{"SKILL.md", "---\nname: &a [*a]\n---\n"}, "folder", none},
		"an alias of nothing":              {[]string{"SKILL.md", "---\nname: *a\n---\n"}, "folder", none},
		"a merge key":                      {[]string{"SKILL.md", "---\n<<: {name: no}\n---\n"}, "folder", none},
		"the name twice":                   {[]string{"SKILL.md", "---\nname: a\nname: b\n---\n"}, "a", none},
		"a key that is no word":            {[]string{"SKILL.md", "---\n? [name]\n: a\n---\n"}, "folder", none},
		"not UTF-8":                        {[]string{"SKILL.md", "---\nname: caf\xe9\n---\n# caf\xe9\n"}, "caf\uFFFD", none},
		"controls":                         {[]string{"SKILL.md", "---\nname: \"a\\e[31mred\\0\\a\\tb\"\n---\n"}, "a [31mred b", none},
		"another direction":                {[]string{"SKILL.md", "---\nname: \"abc\\u202Egpj.exe\\u2066\\u200B\"\n---\n"}, "abcgpj.exe", none},
		"nothing but what cannot be seen":  {[]string{"SKILL.md", "---\nname: \"\\u200B\\u202E \"\n---\n# \u200B\n# H"}, "H", none},
		"joiners stay":                     {[]string{"SKILL.md", "# 👩\u200D💻 می\u200Cخواهم"}, "👩\u200D💻 می\u200Cخواهم", none},
		"a name too long":                  {[]string{"SKILL.md", "# " + strings.Repeat("技", 200)}, strings.Repeat("技", 127) + "…", none},
		"a name just as long as it may be": {[]string{"SKILL.md", "# " + strings.Repeat("技", 128)}, strings.Repeat("技", 128), none},
		"a description too long": {
			[]string{"SKILL.md", "---\nname: a\ndescription: " + strings.Repeat("x", 60000) + "\n---\n"},
			"a",
			strings.Repeat("x", 1023) + "…",
		},
		"front matter past the bound": {
			[]string{"SKILL.md", "---\nx: " + strings.Repeat("x", metadata.MaxFileBytes) + "\nname: a\n---\n"},
			"folder",
			none,
		},
		"a heading past the bound": {[]string{"SKILL.md", strings.Repeat("x\n", metadata.MaxFileBytes/2) + "# Late"}, "folder", none},
		"a folder called SKILL.md": {[]string{"SKILL.md/x", "", "README.md", "# Readme"}, "Readme", none},
		"another name's case":      {[]string{"Skill.md", "# no", "readme.md", "# no"}, "folder", none},
		"in a folder below":        {[]string{"a/SKILL.md", "# no"}, "folder", none},
	} {
		got := metadata.Describe(folder(c.files...), "folder")
		if got.Name != c.name || got.Description != c.description {
			t.Errorf("%s: %q, %q; want %q, %q", name, got.Name, got.Description, c.name, c.description)
		}
		// A SKILL.md without front matter may do without a description; the source document has
		// one.
		complete := len(c.files) > 0 && c.files[0] == "SKILL.md" && c.files[1] != "" && len(c.files[1]) < metadata.MaxFileBytes && !strings.Contains(c.files[1],
			"---")
		if warns := got.Warning != ""; got.Description == none && warns == complete {
			t.Errorf("%s: the warning is %q", name, got.Warning)
		}
	}
	if name := metadata.Describe(folder(), "a\x1b[0m\nb").Name; name != "a [0m b" {
		t.Errorf("the folder's name is shown as %q", name)
	}
	if name := metadata.Describe(folder(), "\u202E").Name; name != "unnamed" {
		t.Errorf("a folder without a visible name is %q", name)
	}
}

// TestFrontMatterAsPeopleWriteIt: a value that is no YAML hides neither itself nor the others, and
// what is not read is said.
func TestFrontMatterAsPeopleWriteIt(t *testing.T) {
	t.Parallel()
	const none = metadata.NoDescription
	for name, c := range map[string]struct {
		text, name, description, says string // says: what the warning must hold; empty: there is none
	}{
		"a colon": {
			"name: my-skill\ndescription: Use when: the user asks for a table\nlicense: MIT\n", "my-skill",
			"Use when: the user asks for a table", "",
		},
		"two colons":           {"name: a\ndescription: Steps: read: write\n", "a", "Steps: read: write", ""},
		"an at sign":           {"name: a\ndescription: @docs writer\n", "a", "@docs writer", ""},
		"a backtick":           {"name: a\ndescription: `git` helper: fast\n", "a", "`git` helper: fast", ""},
		"a percent sign":       {"name: a\ndescription: %d and: more\n", "a", "%d and: more", ""},
		"a tab":                {"name:\ta\ndescription:\tTables\tand: charts\n", "a", "Tables and: charts", ""},
		"lines with a tab":     {"name: a\ndescription: Use when: one\n\tand two\n", "a", "Use when: one and two", ""},
		"lines not indented":   {"name: a\ndescription: Use when\nthe user asks\nlicense: MIT\n", "a", "Use when the user asks", ""},
		"another's broken":     {"name: a\ndescription: d\nallowed-tools: [a, b\nhint: x: y\n", "a", "d", ""},
		"a block beside":       {"name: a: b\ndescription: |\n  one: two\n  three\n", "a: b", "one: two three", ""},
		"quotes beside":        {"name: a: b\ndescription: \"x: \\\"y\\\"\"\n", "a: b", "x: \"y\"", ""},
		"capitals":             {"Name: a\nDESCRIPTION: d\n", "a", "d", ""},
		"capitals and a colon": {"NAME: a\nDescription: d: e\n", "a", "d: e", ""},
		"both cases":           {"Name: A\nname: b\ndescription: d\n", "b", "d", ""},
		"Latin-1":              {"name: a\ndescription: caf\xe9: menus\n", "a", "caf\uFFFD: menus", "is not UTF-8"},
		"a comment":            {"name: a # the name\ndescription: d # todo\n", "a", "d", ""},
		"a comment, no YAML":   {"name: a: b # the name\ndescription: d\n", "a: b", "d", ""},
		"a number sign":        {"name: a\ndescription: fixes #12 for good\n", "a", "fixes", "description ends at a #"},
		"a number sign first":  {"name: a\ndescription: #1 for tables\n", "a", "#1 for tables", ""},
		"C#":                   {"name: a\ndescription: C#: a guide\n", "a", "C#: a guide", ""},
		"quotes within":        {"name: a\ndescription: \"Say \"hi\" now\"\n", "a", none, "description in the front matter is empty or no text"},
		"a list":               {"name: a\ndescription: [a, b]\n", "a", none, "description in the front matter is empty or no text"},
		"a number":             {"name: 42\ndescription: d\n", "Body", "d", "name in the front matter is empty or no text"},
		"a null":               {"name: a\ndescription:\n", "a", none, "description in the front matter is empty or no text"},
		"full-width colons":    {"name：天气\ndescription：查询: 天气\n", "天气", "查询: 天气", ""},
		"one of them":          {"name: a\ndescription：d\n", "a", "d", ""},
		"no space":             {"name:a\nDescription:Use when: asked\n", "a", "Use when: asked", ""},
		"quoted keys":          {"\"name\": a\n'description': d: e\n", "a", "d: e", ""},
		"an address":           {"name: a: b\ndescription: See\nhttp://x/y for more\n", "a: b", "See http://x/y for more", ""},
		"shifted":              {"  name: a\n  description: d: e\n", "Body", none, "cannot be read: write name: and description: at the beginning"},
		"a sentence":           {"just words\n", "Body", none, "cannot be read"},
		"no description":       {"name: a\n", "a", none, "there is no description"},
		"neither":              {"license: MIT\n", "Body", none, "there is no description"},
	} {
		for _, end := range []string{"\n", "\r\n"} {
			text := strings.ReplaceAll("---\n"+c.text+"---\n# Body\n", "\n", end)
			got := metadata.Describe(folder("SKILL.md", text), "folder")
			if got.Name != c.name || got.Description != c.description || !strings.Contains(got.Warning, c.says) || c.says == "" && got.Warning != "" {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
	got := metadata.Describe(os.DirFS("testdata/frontmatter-colon"), "folder")
	if want := (metadata.About{Name: "my-skill", Description: "Use when: the user asks for a table"}); got != want {
		t.Errorf("%+v", got)
	}
	open := metadata.Describe(folder("SKILL.md", "---\nname: a\ndescription: d\n# Body\n"), "folder")
	if open.Name != "Body" || !strings.Contains(open.Warning, "has no end") {
		t.Errorf("front matter without an end: %+v", open)
	}
	wide := []byte{0xff, 0xfe}
	for _, unit := range utf16.Encode([]rune("---\nname: 表\ndescription: d\n---\n")) {
		wide = append(wide, byte(unit), byte(unit>>8))
	}
	if got := metadata.Describe(folder("SKILL.md", string(wide)), "folder"); got != (metadata.About{Name: "表", Description: "d"}) {
		t.Errorf("UTF-16: %+v", got)
	}
	if got := metadata.Describe(folder("README.md", "---\nname: no\n---\n# Readme"), "folder"); !strings.Contains(got.Warning, "front matter of SKILL.md") {
		t.Errorf("a README.md: %+v", got)
	}
}

// TestBombsCostNothing: sizes that double with each line are refused or passed over; that the test
// ends is what it says.
func TestBombsCostNothing(t *testing.T) {
	t.Parallel()
	laughs := "a0: &a0 lol\n"
	for i := range 60 {
		laughs += fmt.Sprintf("a%d: &a%d [*a%d, *a%d, *a%d, *a%d]\n", i+1, i+1, i, i, i, i)
	}
	for name, matter := range map[string]string{
		"aliases":        laughs + "name: *a60\n",
		"nested lists":   "name: " + strings.Repeat("[", 60000) + "\n",
		"nested maps":    "name: " + strings.Repeat("{a: ", 15000) + "\n",
		"nested blocks":  strings.Repeat("- ", 30000) + "\n",
		"many keys":      strings.Repeat("? a\n", 16000),
		"many documents": strings.Repeat("--- a\n", 10000),
		"many anchors":   strings.Repeat("- &a x\n", 9000),
		"quotes":         "name: \"" + strings.Repeat("\\\"", 30000) + "\n",
	} {
		if got := metadata.Describe(folder("SKILL.md", "---\n"+matter+"---\n"), "folder").Name; got != "folder" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(outside+"/secret", []byte("# secret"), 0o600))
	must(os.WriteFile(dir+"/inside", []byte("# inside"), 0o600))
	must(os.Symlink(outside+"/secret", dir+"/SKILL.md"))
	must(os.Symlink("inside", dir+"/README.md"))
	root, err := os.OpenRoot(dir)
	must(err)
	defer root.Close()
	if name := metadata.Describe(root.FS(), "folder").Name; name != "folder" {
		t.Errorf("a link was read: %q", name)
	}
	if name := metadata.Describe(os.DirFS(dir), "folder").Name; name != "folder" {
		t.Errorf("a link was read: %q", name)
	}
	must(os.Remove(dir + "/README.md"))
	must(os.WriteFile(dir+"/README.md", []byte("# readme"), 0o600))
	if name := metadata.Describe(root.FS(), "folder").Name; name != "readme" {
		t.Errorf("a file was not read: %q", name)
	}
}

// fits is what both texts promise.
func fits(text string, maxRunes int) error {
	switch {
	case text == "", strings.TrimSpace(text) != text, strings.Contains(text, "  "):
		return fmt.Errorf("%q is empty or has stray spaces", text)
	case !utf8.ValidString(text):
		return fmt.Errorf("%q is not UTF-8", text)
	case utf8.RuneCountInString(text) > maxRunes:
		return fmt.Errorf("%q has more than %d characters", text, maxRunes)
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || r == '\u202e' || r == '\u2028' }):
		return fmt.Errorf("%q has control characters", text)
	}
	return nil
}

func describes(files fstest.MapFS, folder string) error {
	about := metadata.Describe(files, folder)
	if err := fits(about.Name, metadata.MaxNameRunes); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	if err := fits(about.Description, metadata.MaxDescriptionRunes); err != nil {
		return fmt.Errorf("description: %w", err)
	}
	if about.Warning != "" {
		if err := fits(about.Warning, metadata.MaxDescriptionRunes); err != nil {
			return fmt.Errorf("warning: %w", err)
		}
	}
	return nil
}

func TestAnySkillHasAName(t *testing.T) {
	t.Parallel()
	piece := rapid.SampledFrom([]string{
		"---\n", "name: ", "description: ", "# ", "\n", "```\n", "|\n", "  a\n", "\x00", "\u202e", "\xff", "x", "技", "*a", "&a ", "[", "{", "\"", "...\n", "\r",
		" ",
	})
	rapid.Check(t, func(t *rapid.T) {
		files := fstest.MapFS{}
		for _, name := range []string{"SKILL.md", "skill.md", "README.md"} {
			if rapid.Bool().Draw(t, name) {
				files[name] = &fstest.MapFile{Data: []byte(strings.Join(rapid.SliceOfN(piece, 0, 40).Draw(t, name+"'s text"), ""))}
			}
		}
		if err := describes(files, rapid.String().Draw(t, "folder")); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDescribeFile(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][3]string{
		"---\nname: Reviewer\ndescription: Reviews.\nrole: \"senior\\nengineer\"\n---\nYou review.": {"Reviewer", "Reviews.", "senior engineer"},
		"# Helper\r\ntext":         {"Helper", metadata.NoDescription, ""},
		"":                         {"file", metadata.NoDescription, ""},
		"---\nrole: [a, b]\n---\n": {"file", metadata.NoDescription, ""},
		strings.Repeat("x", 1<<20): {"file", metadata.NoDescription, ""},
	} {
		about := metadata.DescribeFile([]byte(text), "SKILL.md", "file")
		if got := [3]string{about.Name, about.Description, about.Role}; got != want {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
}

func FuzzDescribe(f *testing.F) {
	f.Add("---\nname: a\ndescription: |\n  b\n---\n# c\n", "folder")
	f.Add("# Heading #\n```\n# code\n```", "")
	f.Add("---\nname: &a [*a]\n---\n", "\x00")
	f.Fuzz(func(t *testing.T, text, folder string) {
		if err := describes(fstest.MapFS{"SKILL.md": {Data: []byte(text)}}, folder); err != nil {
			t.Fatal(err)
		}
		whole := metadata.Describe(fstest.MapFS{"SKILL.md": {Data: []byte(text)}}, folder)
		one := metadata.DescribeFile([]byte(text), "SKILL.md", folder)
		if one != whole || strings.ContainsFunc(one.Role, unicode.IsControl) || utf8.RuneCountInString(one.Role) > metadata.MaxDescriptionRunes {
			t.Fatalf("%+v, and of the folder %+v", one, whole)
		}
	})
}
