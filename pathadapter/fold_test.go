package pathadapter_test

import (
	"testing"

	"secbox/pathadapter"
)

func TestFoldName(t *testing.T) {
	t.Parallel()
	for _, same := range [][]string{
		{"readme", "README", "ReadMe"},
		{"stra\u00dfe", "STRA\u1e9eE"},
		{"caf\u00e9", "cafe\u0301", "CAF\u00c9", "CAFE\u0301"},
		{"k", "K", "\u212a"},
		{"\u00e5", "\u212b", "a\u030a"},
		{"\u03c3", "\u03c2", "\u03a3"},
		{"\uac00", "\u1100\u1161"},
	} {
		for _, s := range same {
			if pathadapter.FoldName(s) != pathadapter.FoldName(same[0]) {
				t.Errorf("%+q and %+q are different", s, same[0])
			}
			if pathadapter.FoldName(pathadapter.FoldName(s)) != pathadapter.FoldName(s) {
				t.Errorf("%+q folds twice", s)
			}
		}
	}
	for _, pair := range [][2]string{{"a", "b"}, {"a", "\u00e4"}, {"\u0131", "i"}, {"a", "a "}, {"ss", "\u00df"}} {
		if pathadapter.FoldName(pair[0]) == pathadapter.FoldName(pair[1]) {
			t.Errorf("%+q and %+q are one", pair[0], pair[1])
		}
	}
}
