package search

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxPath    = 4095 // bytes
	namesAtOne = 128  // names that one worker takes at a time
	maxStack   = 1000 // tasks that wait, apart from directories
)

// walk is a search under way. Workers take tasks from a stack.
type walk struct {
	request  Request
	dir      string // of root
	root     *os.Root
	glob     *regexp.Regexp // nil: all
	base     string         // what Glob is relative to, with a slash; or empty
	matcher  *matcher       // nil: names only
	deadline time.Time

	mu      sync.Mutex
	wake    sync.Cond
	stack   []task
	working int
	found   []File
	weight  int // lines or files in found
	summary Summary
	stopped atomic.Bool
}

// task is a directory to list, or names in one to look at.
type task struct {
	path  string
	dir   *shared  // of names
	names []string // nil: list path
}

// shared is a directory that is open as long as tasks use it.
type shared struct {
	*os.Root
	file  *os.File // the same directory; nil for the directory that the search begins in
	users atomic.Int32
}

func newShared(root *os.Root) *shared {
	d := &shared{Root: root}
	return d.enter()
}

func (d *shared) enter() *shared {
	d.users.Add(1)
	return d
}

func (d *shared) leave() {
	if d.users.Add(-1) == 0 {
		if d.file != nil {
			d.file.Close()
		}
		d.Close()
	}
}

// Run searches below a directory. An error says what is wrong with the request.
func Run(dir string, r Request) ([]File, Summary, error) {
	w := &walk{request: r, dir: dir, deadline: time.Now().Add(time.Duration(r.TimeoutMS) * time.Millisecond)}
	w.wake.L = &w.mu
	w.request.Limit = min(max(r.Limit, 1), MaxLimit)
	w.request.Before, w.request.After = min(max(r.Before, 0), MaxContext), min(max(r.After, 0), MaxContext)
	var err error
	if r.Glob != "" {
		if w.glob, err = compileGlob(r.Glob); err != nil {
			return nil, Summary{}, err
		}
	}
	if r.Pattern != "" {
		if w.matcher, err = newMatcher(r.Pattern, r.IgnoreCase); err != nil {
			return nil, Summary{}, err
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, Summary{}, err
	}
	d := newShared(root)
	defer d.leave()
	w.root = root
	start := path.Clean(r.Path)
	info, err := root.Stat(start)
	switch {
	case err != nil:
		return nil, Summary{}, err
	case info.IsDir():
		if start != "." {
			w.base = start + "/"
		}
		w.stack = []task{{path: start}}
	default:
		w.glob = nil // the file was named
		w.stack = []task{{path: ".", dir: d.enter(), names: []string{start}}}
	}
	var workers sync.WaitGroup
	for range max(2, runtime.GOMAXPROCS(0)) {
		workers.Go(w.work)
	}
	workers.Wait()
	w.prune()
	return w.found, w.summary, nil
}

// work runs tasks until there are none.
func (w *walk) work() {
	scanner := newScanner(w)
	for {
		w.mu.Lock()
		for len(w.stack) == 0 && w.working > 0 {
			w.wake.Wait()
		}
		if len(w.stack) == 0 {
			w.mu.Unlock()
			return
		}
		t := w.stack[len(w.stack)-1]
		w.stack = w.stack[:len(w.stack)-1]
		w.working++
		w.mu.Unlock()
		if t.names == nil {
			w.list(scanner, t.path)
		} else {
			w.searchFiles(scanner, t)
		}
		w.mu.Lock()
		w.working--
		done := w.working == 0 && len(w.stack) == 0
		w.mu.Unlock()
		if done {
			w.wake.Broadcast()
		}
	}
}

func (w *walk) push(t task) {
	w.mu.Lock()
	w.stack = append(w.stack, t)
	w.mu.Unlock()
	w.wake.Signal()
}

// pushNames is push for names, unless there are enough tasks for all workers: then it runs this
// one, so that the names of a huge directory are not all in memory.
func (w *walk) pushNames(s *scanner, t task) {
	w.mu.Lock()
	enough := len(w.stack) > maxStack
	w.mu.Unlock()
	if enough {
		w.searchFiles(s, t)
	} else {
		w.push(t)
	}
}

func (w *walk) searchFiles(s *scanner, t task) {
	defer t.dir.leave()
	for _, name := range t.names {
		if w.over() {
			return
		}
		w.searchFile(s, t.dir, t.path, name)
	}
}

// over reports whether the search must end, and records why.
func (w *walk) over() bool {
	if !w.stopped.Load() && time.Now().After(w.deadline) {
		w.stop(fmt.Sprintf("it took %d s", w.request.TimeoutMS/1000))
	}
	return w.stopped.Load()
}

func (w *walk) stop(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped.Swap(true) {
		w.summary.Stopped = why
	}
}

func (w *walk) unreadable(err error) {
	if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
		return
	}
	w.mu.Lock()
	w.summary.Unreadable++
	w.mu.Unlock()
}

// list makes tasks of the names in a directory.
func (w *walk) list(s *scanner, name string) {
	if w.over() {
		return
	}
	in, err := w.root.OpenRoot(name)
	if err != nil {
		w.unreadable(err)
		return
	}
	d := newShared(in)
	defer d.leave()
	if d.file, err = openNames(in, filepath.Join(w.dir, name)); err != nil {
		w.unreadable(err)
		return
	}
	for !w.over() {
		entries, err := d.file.ReadDir(1024)
		w.count(len(entries))
		var names []string
		for _, e := range entries {
			switch {
			case len(name)+1+len(e.Name()) > maxPath:
				w.unreadable(fs.ErrInvalid)
			case e.IsDir():
				if e.Name() != ".git" {
					w.push(task{path: path.Join(name, e.Name())})
				}
			case e.Type().IsRegular() && w.wanted(name, e.Name()):
				names = append(names, e.Name())
			}
		}
		for some := range slices.Chunk(names, namesAtOne) {
			w.pushNames(s, task{path: name, dir: d.enter(), names: some})
		}
		if err != nil { // the end, or a failure, after which there is no more
			return
		}
	}
}

func (w *walk) count(entries int) {
	w.mu.Lock()
	w.summary.Entries += entries
	most := cmp.Or(w.request.maxEntries, MaxEntries)
	tooMany := w.summary.Entries > most
	w.mu.Unlock()
	if tooMany {
		w.stop(fmt.Sprintf("there are more than %d files and directories", most))
	}
}

func (w *walk) wanted(in, name string) bool {
	return w.glob == nil || w.glob.MatchString(path.Join(in, name)[len(w.base):])
}

// searchFile adds a file to what was found if it matches.
func (w *walk) searchFile(s *scanner, dir *shared, in, name string) {
	if w.matcher == nil {
		if info, err := dir.Lstat(name); err != nil {
			w.unreadable(err)
		} else if info.Mode().IsRegular() {
			w.add(File{Path: []byte(path.Join(in, name)), Size: info.Size(), Modified: info.ModTime()})
		}
		return
	}
	file, err := dir.open(name)
	if err != nil {
		w.unreadable(err)
		return
	}
	defer file.Close()
	if !file.regular {
		return
	}
	lines, count, err := s.scan(file, file.size)
	if errors.Is(err, errBinary) {
		w.mu.Lock()
		w.summary.Binary++
		w.mu.Unlock()
		return
	}
	if err != nil {
		w.unreadable(err)
		return
	}
	if count > 0 {
		w.add(File{Path: []byte(path.Join(in, name)), Size: file.size, Modified: file.modified, Count: count, Lines: lines})
	}
}

// add keeps a file. When there are many more than asked for, the oldest are dropped.
func (w *walk) add(f File) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.summary.Files++
	w.summary.Matches += f.Count
	w.found = append(w.found, f)
	if w.weight += w.cost(f); w.weight > 8*MaxLimit {
		w.prune()
	}
}

// cost is what a file counts towards the limit.
func (w *walk) cost(f File) int { return max(1, len(f.Lines)) }

// prune sorts what was found, newest first, and keeps as much as was asked for.
func (w *walk) prune() {
	slices.SortFunc(w.found, func(a, b File) int {
		return cmp.Or(b.Modified.Compare(a.Modified), slices.Compare(a.Path, b.Path))
	})
	w.weight = 0
	for i := range w.found {
		f := &w.found[i]
		if left := w.request.Limit - w.weight; len(f.Lines) > left {
			f.Lines = f.Lines[:left]
		}
		if w.weight += w.cost(*f); w.weight >= w.request.Limit {
			clear(w.found[i+1:])
			w.found = w.found[:i+1]
			return
		}
	}
}
