// Package diskspace measures free space on disks and refuses writes that would leave too little. It
// knows neither the files nor which job fills a disk; see diskwatch for that.
package diskspace

import (
	"fmt"

	"secbox/fault"
)

// Space is room on a disk.
type Space struct{ Bytes, Inodes uint64 }

// Reserve is the room that must stay free on a disk.
type Reserve struct {
	Space
	Disk   string // as errors name it: "the workspace's disk"
	Remedy string // follows "free some space, ": "or lower sandbox.disk_free_min_bytes"
}

// Workspace is the reserve of the workspace's disk.
func Workspace(minBytes, minInodes uint64) Reserve {
	return Reserve{
		Space: Space{minBytes, minInodes}, Disk: "the workspace's disk",
		Remedy: "or lower sandbox.disk_free_min_bytes or sandbox.disk_free_min_inodes",
	}
}

// StateDir is the reserve of the state directory's disk.
func StateDir(minBytes uint64, remedy string) Reserve {
	return Reserve{Space: Space{Bytes: minBytes}, Disk: "the state directory's disk", Remedy: remedy}
}

// Check returns fault.DiskFull if a write of needed would leave less than the reserve free. It is a
// forecast, since others write at the same time.
func (r Reserve) Check(free, needed Space) error {
	for _, x := range []struct {
		unit                   string
		free, needed, reserved uint64
	}{{"bytes", free.Bytes, needed.Bytes, r.Bytes}, {"inodes", free.Inodes, needed.Inodes, r.Inodes}} {
		if x.free >= x.needed && x.free-x.needed >= x.reserved {
			continue
		}
		needs := ""
		if x.needed > 0 {
			needs = fmt.Sprintf(", %d are needed", x.needed)
		}
		return fault.New(fault.DiskFull, "%s has %d %s free%s, and %d stay reserved: free some space, %s",
			r.Disk, x.free, x.unit, needs, x.reserved, r.Remedy)
	}
	return nil
}
