//go:build linux

package inside

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// MaxWatches is how many directories one program watches.
const MaxWatches = 1024

// watched are the events that are asked for.
const watched = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_DELETE_SELF |
	unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// watcher reports changes below a directory. A reader that is too slow fills the kernel's queue,
// and gets an event Overflow.
type watcher struct {
	fd    int
	paths map[int]string // of directories, by watch
	all   bool
	out   *json.Encoder
	last  Event // that was sent since the last read

	begun, over bool // the Answer was sent; there was an Overflow before
}

// watch reports changes in a directory, and with All in those below it, until the directory is
// gone.
func (j *job) watch() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "inotify")
	defer f.Close()
	fi, err := os.Stat(j.path)
	if err == nil && !fi.IsDir() {
		err = errKind
	}
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(j.out, 16<<10)
	w := &watcher{fd: fd, paths: map[int]string{}, all: j.All, out: json.NewEncoder(buffered)}
	root, err := unix.InotifyAddWatch(fd, j.path, watched)
	if err != nil {
		return err
	}
	w.paths[root] = j.path
	if err := w.below(j.path, false); err != nil {
		return err
	}
	if err := j.answer(Answer{File: describe(fi.Name(), fi)}); err != nil {
		return err
	}
	w.begun = true
	buf := make([]byte, 64<<10)
	for {
		if err := buffered.Flush(); err != nil {
			return err
		}
		n, err := f.Read(buf)
		if err != nil {
			return err
		}
		w.last = Event{}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			wd, mask := int(int32(binary.NativeEndian.Uint32(rest))), binary.NativeEndian.Uint32(rest[4:])
			length := int(binary.NativeEndian.Uint32(rest[12:]))
			name := bytes.TrimRight(rest[unix.SizeofInotifyEvent:][:length], "\x00")
			rest = rest[unix.SizeofInotifyEvent+length:]
			if err := w.event(wd, mask, string(name)); err != nil {
				return err
			}
			if wd == root && mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_IGNORED|unix.IN_UNMOUNT) != 0 {
				return errors.Join(w.send(Event{Kind: Removed, Path: []byte(j.path), Dir: true}), buffered.Flush())
			}
		}
	}
}

// event passes an event of the kernel on.
func (w *watcher) event(wd int, mask uint32, name string) error {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		return w.send(Event{Kind: Overflow})
	}
	if mask&unix.IN_IGNORED != 0 {
		delete(w.paths, wd)
		return nil
	}
	dir, known := w.paths[wd]
	if !known || name == "" { // of the directory itself, which the one above reports
		return nil
	}
	path, isDir := filepath.Join(dir, name), mask&unix.IN_ISDIR != 0
	if unfinished.MatchString(name) {
		if _, err := os.Lstat(path); err != nil || name[0] == '.' {
			return nil
		}
	}
	kind := ""
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		kind = Created
	case mask&unix.IN_MODIFY != 0:
		kind = Modified
	case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		kind = Removed
	default:
		return nil
	}
	if mask&unix.IN_MOVED_FROM != 0 && isDir {
		w.forget(path)
	}
	if err := w.send(Event{Kind: kind, Path: []byte(path), Dir: isDir}); err != nil || kind != Created || !isDir {
		return err
	}
	return w.add(path, true)
}

// unfinished are the names of content that is being written: a file without a name is # and its
// number.
var unfinished = regexp.MustCompile(`^(#[0-9]+|\.secbox-.*\.part)$`)

// forget watches a directory that was moved away no longer, and none below it.
func (w *watcher) forget(path string) {
	for wd, p := range w.paths {
		if p == path || strings.HasPrefix(p, path+"/") {
			_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
			delete(w.paths, wd)
		}
	}
}

// add watches a directory below one that is watched. New says that what is in it is an event.
func (w *watcher) add(path string, isNew bool) error {
	if !w.all {
		return nil
	}
	if len(w.paths) >= MaxWatches {
		return w.send(Event{Kind: Overflow, Path: []byte(path), Dir: true})
	}
	wd, err := unix.InotifyAddWatch(w.fd, path, watched|unix.IN_DONT_FOLLOW)
	switch {
	case errors.Is(err, unix.ENOSPC):
		return w.send(Event{Kind: Overflow, Path: []byte(path), Dir: true})
	case err != nil:
		return nil // it is gone, or may not be read
	}
	w.paths[wd] = path
	return w.below(path, isNew)
}

// below watches the directories in a directory.
func (w *watcher) below(path string, isNew bool) error {
	if !w.all {
		return nil
	}
	dir, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	entries, _ := dir.ReadDir(nameBatch) // of a larger directory, the first ones; see Overflow
	dir.Close()
	if len(entries) == nameBatch {
		if err := w.send(Event{Kind: Overflow, Path: []byte(path), Dir: true}); err != nil {
			return err
		}
	}
	for _, e := range entries {
		below := filepath.Join(path, e.Name())
		if isNew {
			if err := w.send(Event{Kind: Created, Path: []byte(below), Dir: e.IsDir()}); err != nil {
				return err
			}
		}
		if e.Type()&fs.ModeDir != 0 {
			if err := w.add(below, isNew); err != nil {
				return err
			}
		}
	}
	return nil
}

// send sends an event, unless it is the last one again.
func (w *watcher) send(e Event) error {
	if e.Kind == w.last.Kind && bytes.Equal(e.Path, w.last.Path) || !w.begun && w.over {
		return nil
	}
	w.over = w.over || e.Kind == Overflow
	w.last = e
	return w.out.Encode(e)
}
