package registry

import (
	"context"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/pathadapter"
)

// scripts have letters that look like no ASCII character. Of other scripts, such as Cyrillic, whole
// words can look like English ones.
var scripts = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Bopomofo, unicode.Hangul}

// lookalikes are characters of names that checkNew allows, each with the one that it looks like
// (Unicode TR39, confusables.txt).
var lookalikes = strings.NewReplacer(
	"0", "o", "O", "o", "1", "l", "I", "l", "rn", "m",
	"ロ", "口", "ニ", "二", "カ", "力", "タ", "夕", "ト", "卜", "エ", "工", "ハ", "八", "へ", "ヘ", "チ", "千", "ー", "一",
)

// skeleton returns the same text for names that look alike (Unicode TR39): their compatibility form
// (NFKC) without accents.
func skeleton(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFKD.String(name))
	return strings.ToLower(lookalikes.Replace(name))
}

// alike reports whether people or systems may take two names for one.
func alike(a, b string) bool {
	return skeleton(a) == skeleton(b) || pathadapter.FoldName(a) == pathadapter.FoldName(b)
}

// ofService returns the service's own skill or agent whose name is like another one; empty if there
// is none.
func (r *Registry) ofService(kind catalog.Kind, name string) string {
	for _, own := range r.Global(kind) {
		if alike(own, name) {
			return own
		}
	}
	return ""
}

// checkNew refuses a new name that programs may take for an option, or people for another name:
// fault.InvalidRequest, fault.NameTaken. It reads all names; of two requests at once that take new
// names, it may let both have look-alikes.
func (r *Registry) checkNew(ctx context.Context, kind catalog.Kind, name string) error {
	switch composed := norm.NFKC.String(name); {
	case strings.HasPrefix(composed, "-"):
		return fault.BadField("name", "begins with -, as options of commands do; use another name")
	case composed != name:
		return fault.BadField("name", "has characters that look like others; write it as %q", composed)
	}
	for _, c := range norm.NFKD.String(name) {
		if c >= 0x80 && !unicode.Is(unicode.Mn, c) && !unicode.In(c, scripts...) && c != 'ー' {
			return fault.BadField("name",
				"has %q, which could pass for another character; use ASCII, accents, or Chinese, Japanese and Korean letters", c)
		}
	}
	const page = 500
	for after := ""; ; {
		entries, err := r.Store.Entries(ctx, Query{Kind: kind}, after, page)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if after = e.Name; alike(e.Name, name) {
				return looksLike(e, name)
			}
		}
		if len(entries) < page {
			return nil
		}
	}
}

func looksLike(e Entry, name string) error {
	return fault.New(fault.NameTaken, "there is a %s %q, and people or systems may take %q for it: use another name", e.Kind, e.Name, name)
}
