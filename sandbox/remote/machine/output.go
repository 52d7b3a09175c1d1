package machine

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
)

// Bounds of the output that is kept until core-api has it, in bytes.
const (
	memoryForOutput = 16 << 20 // of all commands together; the rest goes to files
	memoryPerStream = 1 << 20  // of one stream, so that a long one leaves memory to others
	diskForOutput   = 2 << 30  // beyond this no command is started; running ones are bounded by their own limits
)

// outputStore keeps commands' output: in memory up to a bound, then in files that only this process
// can reach. Safe for concurrent use.
type outputStore struct {
	log *slog.Logger

	mu     sync.Mutex
	memory int64  // bytes in use
	disk   int64  // bytes in use
	dir    string // for the files; made on first use
}

// full reports whether so much output waits for core-api that no command should be started.
func (k *outputStore) full() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.disk >= diskForOutput
}

// reserve reserves memory, and reports false if there is none left.
func (k *outputStore) reserve(bytes int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.memory+bytes > memoryForOutput {
		return false
	}
	k.memory += bytes
	return true
}

// free returns memory and disk space; a negative number of bytes takes some.
func (k *outputStore) free(memory, disk int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.memory -= memory
	k.disk -= disk
}

// file makes a file for one stream, and unlinks it where the system allows that.
func (k *outputStore) file() (*os.File, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f, err := k.create()
	if errors.Is(err, fs.ErrNotExist) { // systems clean up directories that were unused for days
		k.dir = ""
		f, err = k.create()
	}
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name()) // Windows refuses that while it is open: see discard and close
	return f, nil
}

func (k *outputStore) create() (*os.File, error) {
	if k.dir == "" {
		dir, err := os.MkdirTemp("", "secbox-runner-*") // mode 0700
		if err != nil {
			return nil, err
		}
		k.dir = dir
	}
	return os.CreateTemp(k.dir, "output-*")
}

// close removes the files. Called when no command runs.
func (k *outputStore) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dir == "" {
		return
	}
	if err := os.RemoveAll(k.dir); err != nil {
		k.log.Warn("remove the files with commands' output", "dir", k.dir, "error", err)
	}
	k.dir = ""
}

// output is one stream of one command: its first bytes are kept, all are counted. One goroutine
// writes, any may read.
type output struct {
	store *outputStore
	limit int64           // bytes to keep
	grown func(bytes int) // called after a write that kept bytes

	mu      sync.Mutex
	total   int64 // bytes written
	kept    int64 // bytes kept, from the beginning
	memory  []byte
	file    *os.File
	broken  bool // later bytes cannot be kept
	dropped bool // no longer needed
}

// Write never fails and never waits for the link: a slow reader must not slow a command.
func (o *output) Write(p []byte) (int, error) {
	if n := o.keep(p); n > 0 {
		o.grown(n)
	}
	return len(p), nil
}

// keep returns how many bytes of p it kept.
func (o *output) keep(p []byte) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total += int64(len(p))
	if room := o.limit - o.kept; int64(len(p)) > room {
		p = p[:room]
	}
	if len(p) == 0 || o.broken || o.dropped {
		return 0
	}
	if o.file == nil && o.keepInMemory(p) {
		o.kept += int64(len(p))
		return len(p)
	}
	if o.file == nil {
		if err := o.moveToFile(); err != nil {
			o.fail(err)
			return 0
		}
	}
	n, err := o.file.WriteAt(p, o.kept)
	o.kept += int64(n)
	o.store.free(0, int64(-n))
	if err != nil {
		o.fail(err)
	}
	return n
}

// keepInMemory keeps p in memory if it fits.
func (o *output) keepInMemory(p []byte) bool {
	need := len(o.memory) + len(p)
	if need > memoryPerStream {
		return false
	}
	if need > cap(o.memory) {
		size := min(max(need, 2*cap(o.memory), 512), memoryPerStream)
		if !o.store.reserve(int64(size - cap(o.memory))) {
			return false
		}
		grown := make([]byte, len(o.memory), size)
		copy(grown, o.memory)
		o.memory = grown
	}
	o.memory = append(o.memory, p...)
	return true
}

func (o *output) moveToFile() error {
	f, err := o.store.file()
	if err != nil {
		return err
	}
	n, err := f.WriteAt(o.memory, 0)
	if err != nil {
		discard(f)
		return err
	}
	o.store.free(int64(cap(o.memory)), int64(-n))
	o.file, o.memory = f, nil
	return nil
}

func (o *output) fail(err error) {
	o.broken = true
	o.store.log.Warn("cannot keep more output of a command: the rest is counted and dropped", "error", err)
}

// sizes returns how many bytes were written, how many are kept, and whether the disk is why fewer
// than the limit are kept.
func (o *output) sizes() (total, kept int64, broken bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total, o.kept, o.broken
}

// read returns at most limit kept bytes from an offset on. Bytes that cannot be read back count as
// never kept.
func (o *output) read(offset, limit int64) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if offset < 0 || offset >= o.kept || o.dropped {
		return nil
	}
	piece := make([]byte, min(limit, o.kept-offset))
	if o.file == nil {
		copy(piece, o.memory[offset:])
		return piece
	}
	n, err := o.file.ReadAt(piece, offset)
	if n < len(piece) {
		o.fail(err)
		o.store.free(0, o.kept-offset-int64(n))
		o.kept = offset + int64(n)
	}
	return piece[:n]
}

// drop frees the kept output; later output is only counted.
func (o *output) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped {
		return
	}
	o.dropped = true
	if o.file != nil {
		discard(o.file)
		o.store.free(0, o.kept)
	} else {
		o.store.free(int64(cap(o.memory)), 0)
	}
	o.file, o.memory = nil, nil
}

func discard(f *os.File) {
	_ = f.Close()
	_ = os.Remove(f.Name()) // needed on Windows only
}
