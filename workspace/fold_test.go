package workspace

import (
	"errors"
	"io/fs"
	"testing"

	"secbox/fault"
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
			if foldName(s) != foldName(same[0]) {
				t.Errorf("%+q and %+q are told apart", s, same[0])
			}
			if foldName(foldName(s)) != foldName(s) {
				t.Errorf("%+q folds twice", s)
			}
		}
	}
	for _, pair := range [][2]string{{"a", "b"}, {"a", "\u00e4"}, {"\u0131", "i"}, {"a", "a "}, {"ss", "\u00df"}} {
		if foldName(pair[0]) == foldName(pair[1]) {
			t.Errorf("%+q and %+q are one", pair[0], pair[1])
		}
	}
}

func TestAFullDiskHasItsOwnCode(t *testing.T) {
	t.Parallel()
	for _, full := range fullDisk {
		err := failed(errors.Join(errors.New("close"), &fs.PathError{Op: "write", Path: "x", Err: full}), "cannot be written")
		if !fault.Is(err, fault.DiskFull) {
			t.Errorf("%v: got %v", full, err)
		}
	}
	if err := failed(fs.ErrPermission, "cannot be written"); !fault.Is(err, fault.Internal) {
		t.Errorf("got %v", err)
	}
}
