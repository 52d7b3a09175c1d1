package console

import (
	"path"

	"secbox/audit"
	"secbox/console/view"
)

// Bounds of the search for the versions of a file, each way.
const (
	versionRows  = 100 // changes of one list
	versionLists = 3   // each looks at a bounded number of records
)

// versionsOf finds the changes of the same file before and after a change, of those that the caller
// may see.
func (c *Console) versionsOf(req *request, rec audit.Record) view.Versions {
	var v view.Versions
	if rec.Kind != audit.KindChange {
		return v
	}
	var err error
	if v.Before, v.MoreBefore, err = c.version(req, rec, false); err == nil {
		v.After, v.MoreNow, err = c.version(req, rec, true)
	}
	if err != nil {
		v.Problem = reason(err)
	}
	return v
}

// version returns the nearest change of the file before or after a record. more reports that it
// looked at as many records as it may, and there are others.
func (c *Console) version(req *request, of audit.Record, after bool) (found *audit.Record, more bool, err error) {
	f := audit.Filter{ProjectID: of.ProjectID, Kind: audit.KindChange, Commands: true, OldestFirst: after}
	at := &audit.Cursor{CreatedAt: of.CreatedAt, ExecID: of.ExecID}
	for range versionLists {
		rows, next, err := c.cfg.Execs.List(req.ctx(), req.caller, f, at, versionRows)
		if err == nil {
			err = reserve(req, rows)
		}
		if err != nil {
			return nil, false, err
		}
		for _, rec := range rows {
			if view.Versioned(rec) && sameFile(rec, of) {
				return &rec, false, nil
			}
		}
		if next == nil {
			return nil, false, nil
		}
		at = next
	}
	return nil, true, nil
}

// sameFile reports whether two changes of a project are of one file: users' machines have files of
// their own.
func sameFile(a, b audit.Record) bool {
	return path.Clean(view.ChangedPath(a)) == path.Clean(view.ChangedPath(b)) && a.Runner == b.Runner
}
