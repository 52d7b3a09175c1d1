package diskspace_test

import (
	"math"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/workspace/diskspace"
)

func TestReserve(t *testing.T) {
	t.Parallel()
	reserve := diskspace.Workspace(100, 10)
	for name, c := range map[string]struct {
		free, needed diskspace.Space
		want         string
	}{
		"enough":          {free: diskspace.Space{Bytes: 100, Inodes: 10}},
		"enough for more": {diskspace.Space{Bytes: 105, Inodes: 11}, diskspace.Space{Bytes: 5, Inodes: 1}, ""},
		"bytes":           {free: diskspace.Space{Bytes: 99, Inodes: 10}, want: "99 bytes free, and 100 stay reserved"},
		"inodes": {
			diskspace.Space{Bytes: 105, Inodes: 10},
			diskspace.Space{Bytes: 5, Inodes: 1},
			"10 inodes free, 1 are needed, and 10 stay reserved",
		},
		"more than all":      {diskspace.Space{Bytes: 105, Inodes: 10}, diskspace.Space{Bytes: math.MaxUint64}, "105 bytes free"},
		"inodes not counted": {diskspace.Space{Bytes: 100, Inodes: math.MaxUint64}, diskspace.Space{Inodes: 1 << 40}, ""},
	} {
		err := reserve.Check(c.free, c.needed)
		if c.want == "" && err != nil || c.want != "" && (!fault.Is(err, fault.DiskFull) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if free, err := diskspace.Free(t.TempDir()); err != nil || free.Bytes == 0 {
		t.Errorf("%+v %v", free, err)
	}
}
