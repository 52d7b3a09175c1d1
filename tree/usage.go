package tree

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
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
	CutDepth      Cut = "depth"      // something lies below 128 directories
	CutTime       Cut = "time"       // ctx ended
	CutUnreadable Cut = "unreadable" // a directory could not be opened, or was exchanged, renamed or removed before it was
)

// Usage is the disk space of a directory.
type Usage struct {
	Bytes   int64 // on the disk, not apparent: a sparse file counts what it takes, a file with two names once
	Entries int64 // files and directories: inodes
	Cut     Cut   // CutNone: the figures are complete
}

// Measure adds up the directory with this name while jobs may be changing it: it follows no link and ignores entries that vanish. It
// stops after about so many entries, or soon after ctx ends, which is not an error. A missing directory is empty.
func Measure(ctx context.Context, parent *os.Root, name string, entries int64) Usage {
	g := gauge{ctx: ctx, entries: entries, seen: map[FileID]bool{}}
	g.tree(parent, name)
	return g.usage
}

type gauge struct {
	ctx     context.Context
	entries int64 // to count at most, give or take a batch
	usage   Usage
	seen    map[FileID]bool // files with several names; bounded by entries
}

// gaugeLevel is one directory of the walk with its unvisited subdirectories.
type gaugeLevel struct {
	dir  *os.Root
	subs []string
}

func (g *gauge) tree(parent *os.Root, name string) {
	var levels []gaugeLevel
	defer func() {
		for _, l := range levels {
			l.dir.Close()
		}
	}()
	enter := func(parent *os.Root, name string) {
		if len(levels) >= MaxUsageDepth {
			g.cut(CutDepth)
			return
		}
		dir, _, err := OpenDir(parent, name)
		if errors.Is(err, fs.ErrNotExist) && len(levels) == 0 {
			return
		}
		if err != nil {
			g.cut(CutUnreadable)
			return
		}
		levels = append(levels, gaugeLevel{dir: dir, subs: g.count(dir)})
	}
	enter(parent, name)
	for len(levels) > 0 && !g.done() {
		l := &levels[len(levels)-1]
		if len(l.subs) == 0 {
			l.dir.Close()
			levels = levels[:len(levels)-1]
			continue
		}
		last := len(l.subs) - 1
		sub := l.subs[last]
		l.subs = l.subs[:last]
		enter(l.dir, sub)
	}
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
