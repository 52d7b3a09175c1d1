package tree

import (
	"os"
	"strings"
	"time"
)

// Print is what a walk saw of a tree: each directory as it was before it was listed, and everything in it. A tree that still looks like
// its print holds what it held then, if its last change was older than a tick of the file system's clock and no command worked in it
// (Tree.Still) when the print was taken: a directory in which a name came, went or changed has another stamp, and so has a file that was
// written. One goroutine makes a Print, and then it never changes.
type Print struct {
	top    *printedDir
	newest time.Time
	last   *printedDir // that of the entry before, most of the time also of the next one
	path   string      // last's
	cannot bool        // the file system, or the order of the walk, does not give what is needed
}

// printedDir is a directory; each entry by its name.
type printedDir struct {
	stamp fullStamp
	files []printedFile // everything but directories
	dirs  []namedDir
}

type printedFile struct {
	name  string
	stamp fullStamp
}

type namedDir struct {
	name string
	*printedDir
}

// NewPrint begins the print of a tree that is walked next. Where it cannot be had, it looks like nothing.
func (t *Tree) NewPrint() *Print {
	p := &Print{}
	fi, err := t.root.Stat(".")
	if err != nil {
		p.cannot = true
		return p
	}
	p.top = &printedDir{}
	p.top.stamp, p.cannot = p.take(fi)
	p.last = p.top
	return p
}

func (p *Print) take(fi os.FileInfo) (s fullStamp, cannot bool) {
	if at := StampOf(fi).Newest(); at.After(p.newest) {
		p.newest = at
	}
	s, ok := fullStampOf(fi)
	return s, p.cannot || !ok
}

// Add takes up what the walk has come to; a directory comes before what is in it.
func (p *Print) Add(e Entry) {
	if p.cannot {
		return
	}
	above, name := SplitPath(e.Path)
	if above == "." {
		above = ""
	}
	if above != p.path {
		if p.last = p.dir(above); p.last == nil {
			p.cannot = true
			return
		}
		p.path = above
	}
	var s fullStamp
	if s, p.cannot = p.take(e.Info); e.Info.IsDir() {
		p.last.dirs = append(p.last.dirs, namedDir{name, &printedDir{stamp: s}})
		return
	}
	p.last.files = append(p.last.files, printedFile{name, s})
}

// dir finds a directory that was added; most likely the last one of its parent's.
func (p *Print) dir(path string) *printedDir {
	at := p.top
	if path == "" {
		return at
	}
	for step := range strings.SplitSeq(path, "/") {
		var next *printedDir
		for n := len(at.dirs) - 1; n >= 0 && next == nil; n-- {
			if at.dirs[n].name == step {
				next = at.dirs[n].printedDir
			}
		}
		if next == nil {
			return nil
		}
		at = next
	}
	return at
}

// Newest is the time of the last change of anything in the print.
func (p *Print) Newest() time.Time { return p.newest }
