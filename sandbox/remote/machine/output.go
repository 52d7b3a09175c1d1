package machine

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
)

// Bounds of what is kept of commands' output until core-api has it, in bytes.
const (
	memoryForOutput = 16 << 20 // of all commands together; what is more goes into files
	memoryPerStream = 1 << 20  // of one stream, so that a long one does not drive the short ones out
	diskForOutput   = 2 << 30  // beyond this no command is started; those that run are bounded by their own limits
)

// keeper keeps what commands have written: in memory up to a bound, beyond it in files that only this process can reach. Safe for
// concurrent use.
type keeper struct {
	log *slog.Logger

	mu     sync.Mutex
	memory int64  // bytes in use
	disk   int64  // bytes in use
	dir    string // for the files; made when it is first needed
}

// full reports whether so much waits to be taken by core-api that nothing more should be produced.
func (k *keeper) full() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.disk >= diskForOutput
}

// grant asks for memory; false when there is none left.
func (k *keeper) grant(bytes int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.memory+bytes > memoryForOutput {
		return false
	}
	k.memory += bytes
	return true
}

func (k *keeper) giveBack(memory, disk int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.memory -= memory
	k.disk -= disk
}

func (k *keeper) useDisk(bytes int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.disk += bytes
}

// file makes a file for one stream. Where the system allows it, it has no name any more when this returns.
func (k *keeper) file() (*os.File, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f, err := k.create()
	if errors.Is(err, fs.ErrNotExist) { // systems remove what was not used for some days
		k.dir = ""
		f, err = k.create()
	}
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name()) // Windows refuses that while it is open: see discard and close
	return f, nil
}

func (k *keeper) create() (*os.File, error) {
	if k.dir == "" {
		dir, err := os.MkdirTemp("", "secbox-runner-*") // 0700: nobody else's
		if err != nil {
			return nil, err
		}
		k.dir = dir
	}
	return os.CreateTemp(k.dir, "output-*")
}

// close removes what is left of the files. Called when no command runs any more.
func (k *keeper) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dir == "" {
		return
	}
	if err := os.RemoveAll(k.dir); err != nil {
		k.log.Warn("files with output of commands could not be removed", "dir", k.dir, "error", err)
	}
	k.dir = ""
}

// output is one stream of one command: its first bytes are kept, all are counted. One goroutine writes, any may read.
type output struct {
	keeper *keeper
	limit  int64           // bytes to keep
	grown  func(bytes int) // called after a write that has left something to send

	mu      sync.Mutex
	total   int64 // written
	kept    int64 // of these, from the beginning
	memory  []byte
	file    *os.File
	broken  bool // what is written from here on cannot be kept
	dropped bool // nobody wants it any more
}

// Write never fails and never waits for the link: a command must not notice who reads.
func (o *output) Write(p []byte) (int, error) {
	if n := o.keep(p); n > 0 {
		o.grown(n)
	}
	return len(p), nil
}

// keep returns how much of p was kept.
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
	o.keeper.useDisk(int64(n))
	if err != nil {
		o.fail(err)
	}
	return n
}

// keepInMemory reports whether p went there.
func (o *output) keepInMemory(p []byte) bool {
	need := len(o.memory) + len(p)
	if need > memoryPerStream {
		return false
	}
	if need > cap(o.memory) {
		size := min(max(need, 2*cap(o.memory), 512), memoryPerStream)
		if !o.keeper.grant(int64(size - cap(o.memory))) {
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
	f, err := o.keeper.file()
	if err != nil {
		return err
	}
	n, err := f.WriteAt(o.memory, 0)
	if err != nil {
		discard(f)
		return err
	}
	o.keeper.giveBack(int64(cap(o.memory)), int64(-n))
	o.file, o.memory = f, nil
	return nil
}

func (o *output) fail(err error) {
	o.broken = true
	o.keeper.log.Warn("output of a command cannot be kept any more; what it writes from here on is counted and dropped", "error", err)
}

// sizes is how much was written, how much of it is kept, and whether less than the limit is kept because of this machine's disk.
func (o *output) sizes() (total, kept int64, broken bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total, o.kept, o.broken
}

// from returns at most limit of the bytes kept from an offset on. What cannot be read any more counts as never kept.
func (o *output) from(offset, limit int64) []byte {
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
		o.keeper.giveBack(0, o.kept-offset-int64(n))
		o.kept = offset + int64(n)
	}
	return piece[:n]
}

// drop forgets what is kept; what is still written is only counted.
func (o *output) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped {
		return
	}
	o.dropped = true
	if o.file != nil {
		discard(o.file)
		o.keeper.giveBack(0, o.kept)
	} else {
		o.keeper.giveBack(int64(cap(o.memory)), 0)
	}
	o.file, o.memory = nil, nil
}

func discard(f *os.File) {
	_ = f.Close()
	_ = os.Remove(f.Name()) // gone already, but on Windows
}
