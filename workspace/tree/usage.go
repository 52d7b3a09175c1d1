package tree

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
)

// Bounds of one measurement. A job that makes more entries has exceeded any sensible limit already.
const (
	MaxUsageEntries = 250_000
	MaxUsageDepth   = 128 // handles held at once
)

// Cut is why the figures of a Usage are lower bounds.
type Cut string

// The reasons; the first that applied is kept, but the others replace CutUnreadable.
const (
	CutNone       Cut = ""
	CutEntries    Cut = "entries"    // 250,000 were counted
	CutDepth      Cut = "depth"      // there is an entry below 128 directories
	CutTime       Cut = "time"       // ctx ended
	CutUnreadable Cut = "unreadable" // a directory could not be opened, or was exchanged, renamed or removed before it was
)

// Usage is the disk space of a directory.
type Usage struct {
	Bytes   int64 // on the disk, not apparent: a sparse file counts what it takes, a file with two names once
	Entries int64 // files and directories: inodes
	Cut     Cut   // CutNone: the figures are complete
}

// Measure adds up the directory with this name while jobs may be changing it: it follows no link
// and ignores entries that vanish. It stops after about so many entries, or soon after ctx ends,
// which is not an error. A missing directory is empty.
func Measure(ctx context.Context, parent *os.Root, name string, entries int64) Usage {
	g := gauge{ctx: ctx, entries: entries, seen: map[FileID]bool{}}
	g.tree(parent, name, 0)
	return g.usage
}

type gauge struct {
	ctx     context.Context
	entries int64 // to count at most, give or take a batch
	usage   Usage
	seen    map[FileID]bool // files with several names; bounded by entries
}

// tree measures a directory, which is depth levels below the top. Each level holds a handle.
func (g *gauge) tree(parent *os.Root, name string, depth int) {
	if depth >= MaxUsageDepth {
		g.cut(CutDepth)
		return
	}
	dir, _, err := OpenDir(parent, name)
	if errors.Is(err, fs.ErrNotExist) && depth == 0 {
		return
	}
	if err != nil {
		g.cut(CutUnreadable)
		return
	}
	defer dir.Close()
	for _, sub := range slices.Backward(g.count(dir)) {
		if g.done() {
			return
		}
		g.tree(dir, sub, depth+1)
	}
	g.done() // the last batch may have used up a budget
}

// count adds up the entries of one directory and returns its subdirectories.
func (g *gauge) count(dir *os.Root) (subs []string) {
	list, err := dir.Open(".")
	if err != nil {
		g.cut(CutUnreadable)
		return nil
	}
	defer list.Close()
	for !g.done() {
		infos, err := list.Readdir(NameBatch)
		for _, fi := range infos {
			g.usage.Entries++
			bytes, id, linked := OnDisk(fi)
			if linked {
				if g.seen[id] {
					continue
				}
				g.seen[id] = true
			}
			g.usage.Bytes += bytes
			if fi.IsDir() {
				subs = append(subs, fi.Name())
			}
		}
		if errors.Is(err, io.EOF) {
			return subs
		}
		if err != nil {
			g.cut(CutUnreadable)
			return subs
		}
	}
	return subs
}

func (g *gauge) cut(c Cut) {
	if g.usage.Cut == CutNone || g.usage.Cut == CutUnreadable {
		g.usage.Cut = c
	}
}

// done reports whether a budget is used up.
func (g *gauge) done() bool {
	if g.ctx.Err() != nil {
		g.cut(CutTime)
		return true
	}
	if g.usage.Entries >= g.entries {
		g.cut(CutEntries)
		return true
	}
	return false
}
