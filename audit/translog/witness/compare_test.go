package witness_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"secbox/audit/translog/witness"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	l := newLog(t, "secbox/a").grow(t, 30, "e")
	split := l.again().grow(t, 10, "e").grow(t, 20, "x")
	other := newLog(t, "secbox/a").grow(t, 9, "e")
	file := func(l *fakeLog, sizes ...int64) *bytes.Reader {
		var b []byte
		for _, n := range sizes {
			b = append(append(b, l.at(t, n)...), '\n')
		}
		return bytes.NewReader(b)
	}
	for name, tc := range map[string]struct {
		one, two *bytes.Reader
		get      witness.Get
		common   int
		kind     witness.Kind
		says     string
	}{
		"the same":                  {one: file(l, 5, 9, 12), two: file(l, 5, 9, 12), common: 3},
		"some in common":            {one: file(l, 5, 9, 12, 30), two: file(l, 7, 9, 11, 12), common: 2},
		"none in common":            {one: file(l, 5, 9), two: file(l, 7, 11)},
		"split":                     {one: file(l, 5, 12, 30), two: file(split, 5, 11, 30), common: 1, kind: witness.Forked},
		"split at other sizes":      {one: file(l, 5, 12), two: file(split, 5, 11), common: 1},
		"the same, by the log":      {one: file(l, 5, 9), two: file(l, 7, 11), get: l.get(t)},
		"split, by the log":         {one: file(l, 5, 12), two: file(split, 5, 11), get: l.get(t), common: 1, kind: witness.Forked},
		"a log that was cut":        {one: file(l, 5, 12), two: file(l, 5, 11), get: l.again().grow(t, 11, "e").get(t), common: 1, kind: witness.Cut},
		"a log of another key":      {one: file(l, 5), two: file(l, 5), get: newLog(t, "secbox/a").grow(t, 9, "e").get(t), common: 1, kind: witness.OtherKey},
		"checkpoints of no other":   {one: file(l, 5), two: file(newLog(t, "secbox/a").grow(t, 9, "e"), 5), says: "has no checkpoint of the log"},
		"a small file in any order": {one: file(l, 5, 4, 5), two: file(l, 4, 5, 9), common: 2},
		"evidence of a split": {
			one: bytes.NewReader(append(l.at(t, 30), append([]byte("\nand\n\n"), split.at(t, 30)...)...)), two: file(l, 5),
			kind: witness.Forked,
		},
		"evidence of another key": {
			one: bytes.NewReader(append(l.at(t, 5), append([]byte("\nand\n\n"), other.at(t, 9)...)...)), two: file(l, 5), common: 1,
			kind: witness.OtherKey,
		},
		"a large file out of order": {one: bytes.NewReader(append(bytes.Repeat([]byte("x\n\n"), 1<<20),
			append(l.at(t, 5), append([]byte("\n"), l.at(t, 4)...)...)...)), two: file(l, 5, 9), common: 1, says: "not in the order"},
	} {
		got, err := witness.Compare(t.Context(), l.verifier, tc.one, tc.two, tc.get)
		finding := (*witness.Finding)(nil)
		if errors.As(err, &finding) && (finding.Kind != tc.kind || finding.Kept == "" || finding.Shown == "") || (finding == nil) != (tc.kind == "") {
			t.Errorf("%s: %+v, %v", name, finding, err)
		}
		if got.Common != tc.common || (tc.says != "" || tc.kind != "") != (err != nil) || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
