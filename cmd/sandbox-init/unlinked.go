//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"secbox/engine/initproto"
)

// A scan of the descriptors of all processes takes tens of microseconds when there are few. It uses
// the job's share of the CPU, so the pause until the next one is twenty times the CPU time of the
// last one.
const (
	unlinkedPause      = 250 * time.Millisecond
	unlinkedPauseRatio = 20
	unlinkedBudget     = 200_000     // descriptors, mappings and threads of one scan
	unlinkedRepeat     = time.Second // an unchanged report is repeated: without reports, core-api assumes that the job hides files
)

// The directories whose file systems hold the project: in the container of an exec, and in the
// container of a sandbox or a session.
var (
	execDirs    = []string{"/workspace/work", "/workspace/artifacts"}
	sandboxDirs = append([]string{"/workspace", "/home/sandbox"}, execDirs...)
)

// reports are the reports that are sent while one job runs.
type reports struct {
	mu      sync.Mutex
	stopped bool
}

// send calls f unless stop was called, which it reports.
func (r *reports) send(f func()) (more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		f()
	}
	return !r.stopped
}

// stop ends the reports. It does not wait for a measurement.
func (r *reports) stop() {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
}

// lastReport is the last report that was sent.
type lastReport struct {
	said initproto.Unlinked
	at   time.Time
}

// isDue reports whether a report must be sent, and notes it as sent.
func (r *lastReport) isDue(now initproto.Unlinked) bool {
	if now == r.said && time.Since(r.at) < unlinkedRepeat {
		return false
	}
	r.said, r.at = now, time.Now()
	return true
}

// openFiles finds unlinked files that the processes of this container hold open.
type openFiles struct {
	exempt  func(pid int) bool // processes that do not belong to the job; may be nil
	devices map[uint64]bool    // the project's file systems, as stat has them
	mapped  map[string]bool    // the same as /proc/<pid>/maps has them
}

func newOpenFiles(dirs []string, exempt func(pid int) bool) *openFiles {
	f := &openFiles{exempt: exempt, devices: map[uint64]bool{}, mapped: map[string]bool{}}
	add := func(major, minor uint32) { f.mapped[fmt.Sprintf("%02x:%02x", major, minor)] = true }
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for _, dir := range dirs {
		var st unix.Stat_t
		if unix.Stat(dir, &st) == nil {
			f.devices[st.Dev] = true
			add(unix.Major(st.Dev), unix.Minor(st.Dev))
		}
		for line := range strings.Lines(string(mounts)) { // Btrfs gives stat another device than maps
			var major, minor uint32
			if fields := strings.Fields(line); len(fields) > 4 && fields[4] == dir {
				if n, _ := fmt.Sscanf(fields[2], "%d:%d", &major, &minor); n == 2 {
					add(major, minor)
				}
			}
		}
	}
	return f
}

// watch scans, with pauses, until report returns false. due: report must send the result.
func (f *openFiles) watch(report func(now initproto.Unlinked, due bool) (more bool)) {
	var sent lastReport
	for pause := unlinkedPause; ; {
		time.Sleep(pause)
		now, cost := f.measuredScan()
		pause = max(unlinkedPause, unlinkedPauseRatio*cost)
		if !report(now, sent.isDue(now)) {
			return
		}
	}
}

// measuredScan is scan, and the CPU time it took. The time that passed would not do: on a busy
// machine a scan waits for a processor, and after twenty times that wait, core-api would assume
// that the job hides files.
func (f *openFiles) measuredScan() (now initproto.Unlinked, cost time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begun := threadTime()
	now = f.scan()
	return now, threadTime() - begun
}

// threadTime is the CPU time of the calling thread.
func threadTime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now) // cannot fail for this clock
	return time.Duration(now.Nano())
}

// openFilesScan is one scan.
type openFilesScan struct {
	*openFiles
	bytes  map[fileID]int64
	inodes map[uint64]bool // of the files in bytes
	maps   map[uint64]bool // inodes of deleted files that are mapped
	hidden bool
	left   int
	buf    [16 << 10]byte
}

type fileID struct{ device, inode uint64 }

func (f *openFiles) scan() initproto.Unlinked {
	l := &openFilesScan{openFiles: f, bytes: map[fileID]int64{}, inodes: map[uint64]bool{}, maps: map[uint64]bool{}, left: unlinkedBudget}
	self := os.Getpid()
	l.each("/proc", func(name string) {
		if pid, err := strconv.Atoi(name); err == nil && pid != self {
			l.process(pid)
		}
	})
	u := initproto.Unlinked{Hidden: l.hidden || l.left <= 0}
	for _, n := range l.bytes {
		u.Bytes += n
	}
	for inode := range l.maps {
		if !l.inodes[inode] { // mapped, and without a descriptor its size is unknown
			u.Hidden = true
		}
	}
	return u
}

// each calls f for the names in a directory. It is not an error when the directory is gone.
func (l *openFilesScan) each(dir string, f func(name string)) {
	d, err := os.Open(dir)
	if err != nil {
		l.missed(dir, err)
		return
	}
	defer d.Close()
	for l.left > 0 {
		names, err := d.Readdirnames(256)
		for _, name := range names {
			l.left--
			f(name)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				l.missed(dir, err)
			}
			return
		}
	}
}

// missed notes that a path cannot be read, unless its process has ended or is exiting.
func (l *openFilesScan) missed(path string, err error) {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return
	}
	if rest, found := strings.CutPrefix(path, "/proc/"); found && errors.Is(err, unix.EACCES) {
		parts := strings.Split(rest, "/")
		task := "/proc/" + parts[0]
		if len(parts) > 2 && parts[1] == "task" {
			task += "/task/" + parts[2]
		}
		if ending(task) {
			return
		}
		if pid, err := strconv.Atoi(parts[0]); err == nil && l.exempt != nil && l.exempt(pid) {
			return
		}
	}
	l.hidden = true
}

// ending reports whether a thread is exiting or has exited: it has closed its files or is closing
// them.
func ending(task string) bool {
	const exiting = 0x4 // PF_EXITING
	stat, err := os.ReadFile(task + "/stat")
	if err != nil {
		return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH)
	}
	// "pid (name) state ppid pgrp session tty tpgid flags …", and the name may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 7 {
		return false
	}
	flags, _ := strconv.ParseUint(string(fields[6]), 10, 64)
	return string(fields[0]) == "Z" || string(fields[0]) == "X" || flags&exiting != 0
}

// process scans every thread, since a thread may have its own descriptors, and the first one may
// have ended before the others. A running program keeps its file without a descriptor, and need not
// keep it mapped; a removed directory may be a working directory.
func (l *openFilesScan) process(pid int) {
	dir := "/proc/" + strconv.Itoa(pid)
	mapped := false // the threads share their memory
	l.each(dir+"/task", func(tid string) {
		task := dir + "/task/" + tid
		l.each(task+"/fd", func(fd string) { l.descriptor(task, fd) })
		l.holds(task + "/cwd")
		if !mapped {
			l.holds(task + "/exe")
			mapped = l.mappings(task + "/maps")
		}
	})
}

func (l *openFilesScan) descriptor(task, fd string) {
	path := task + "/fd/" + fd
	if l.holds(path) == unix.S_IFSOCK { // fdinfo has the number of descriptors in its queue
		info, err := os.ReadFile(task + "/fdinfo/" + fd)
		if err != nil {
			l.missed(path, err)
			return
		}
		if _, after, found := bytes.Cut(info, []byte("scm_fds:")); found {
			if n, _, _ := bytes.Cut(bytes.TrimSpace(after), []byte("\n")); string(n) != "0" {
				l.hidden = true
			}
		}
	}
}

// holds counts the file that a link below /proc leads to if it has no name, and returns its type.
func (l *openFilesScan) holds(path string) (kind uint32) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		l.missed(path, err)
		return 0
	}
	kind = st.Mode & unix.S_IFMT
	if (kind == unix.S_IFREG || kind == unix.S_IFDIR) && st.Nlink == 0 && l.devices[st.Dev] {
		l.bytes[fileID{st.Dev, st.Ino}] = st.Blocks * 512
		l.inodes[st.Ino] = true
	}
	return kind
}

// mappings notes deleted files of the project that a thread has mapped: they need no descriptor. It
// reports whether there are mappings; a thread that has ended has none.
func (l *openFilesScan) mappings(path string) (found bool) {
	f, err := os.Open(path)
	if err != nil {
		l.missed(path, err)
		return false
	}
	defer f.Close()
	var rest []byte
	for l.left > 0 {
		n, err := f.Read(l.buf[:])
		if n == 0 || err != nil {
			break
		}
		found = true
		rest = append(rest, l.buf[:n]...)
		for {
			line, after, whole := bytes.Cut(rest, []byte("\n"))
			if !whole {
				break
			}
			rest = after
			l.left--
			if !bytes.HasSuffix(line, []byte(" (deleted)")) {
				continue
			}
			// "address perms offset device inode path (deleted)"
			if fields := bytes.Fields(line); len(fields) > 5 && l.mapped[string(fields[3])] {
				if inode, err := strconv.ParseUint(string(fields[4]), 10, 64); err == nil {
					l.maps[inode] = true
				}
			}
		}
	}
	return found
}
