package archive

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/encoding/simplifiedchinese"

	"secbox/pathadapter"
)

// decodeNames decodes the names by the rules in doc.go. It needs all of them at once: a doubtful
// name is decided by the others.
func decodeNames(entries []*entry) error {
	names := make([]string, len(entries))
	inGBK := false
	for n, e := range entries {
		switch {
		case e.unicode != "":
			if !utf8.ValidString(e.unicode) {
				return badEntry(e.raw, "has a Unicode name that is not valid UTF-8: pack the archive again")
			}
			names[n] = e.unicode
		case utf8.ValidString(e.raw):
			names[n] = e.raw
		case e.flags&flagUTF8 != 0:
			return badEntry(e.raw, "has a name that says it is UTF-8 and is not: pack the archive again")
		default:
			name, ok := fromGBK(e.raw)
			if !ok {
				return badEntry(e.raw, "has a name that is neither UTF-8 nor GBK: pack the archive again with names in UTF-8")
			}
			names[n], inGBK = name, true
		}
	}
	for n, e := range entries {
		if inGBK && e.unicode == "" && e.flags&flagUTF8 == 0 && maybeGBK(e.raw) {
			if name, ok := fromGBK(e.raw); ok {
				names[n] = name
			}
		}
		if err := e.clean(names[n]); err != nil {
			return err
		}
	}
	return nil
}

// fromGBK decodes strictly: names with bytes that are not GB18030 are refused.
func fromGBK(raw string) (name string, ok bool) {
	name, err := simplifiedchinese.GB18030.NewDecoder().String(raw)
	return name, err == nil && !strings.ContainsRune(name, utf8.RuneError)
}

// maybeGBK reports whether a name that is valid UTF-8 could be GBK: it has characters beyond ASCII,
// and all of them have two bytes, as in GBK.
func maybeGBK(raw string) bool {
	beyond := false
	for _, r := range raw {
		switch n := utf8.RuneLen(r); {
		case n > 2:
			return false
		case n == 2:
			beyond = true
		}
	}
	return beyond
}

// clean splits a decoded name into parts, and refuses absolute names and "..". Empty parts and "."
// are dropped.
func (e *entry) clean(name string) error {
	name = strings.ReplaceAll(name, `\`, "/")
	switch {
	case name == "":
		return badEntry(name, "has no name: pack the archive again")
	case name[0] == '/':
		return badEntry(name, "is absolute: pack the skill's folder with names relative to it")
	case len(name) > 1 && name[1] == ':' && (name[0]|0x20) >= 'a' && (name[0]|0x20) <= 'z':
		return badEntry(name, "begins with a drive: pack the skill's folder with names relative to it")
	}
	e.parts = []string{}
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "", ".":
		case "..":
			return badEntry(name, `climbs out of its folder with "..": pack the skill's folder with names relative to it`)
		default:
			e.parts = append(e.parts, part)
		}
	}
	if strings.HasSuffix(name, "/") {
		e.dir = true
	}
	switch {
	case e.dir && e.size != 0:
		return badEntry(name, "is a folder and has content: pack the archive again")
	case !e.dir && len(e.parts) == 0:
		return badEntry(name, "has no name: pack the archive again")
	}
	return nil
}

// leftOut reports whether macOS or Windows has added the entry by itself.
func (e *entry) leftOut() bool {
	if len(e.parts) == 0 {
		return true // the archive's root itself
	}
	for _, part := range e.parts {
		if part == "__MACOSX" {
			return true
		}
	}
	base := e.parts[len(e.parts)-1]
	return !e.dir && (base == ".DS_Store" || base == "Icon\r" || strings.HasPrefix(base, "._") || strings.EqualFold(base, "Thumbs.db"))
}

// partFault says why some system does not accept a name; empty if all do.
func partFault(part string) string {
	if why := pathadapter.NameFault(part); why != "" {
		return why
	}
	for _, r := range part {
		if unicode.IsControl(r) { // NameFault checks the control characters of ASCII
			return "holds a control character"
		}
	}
	return ""
}
