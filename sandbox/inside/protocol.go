package inside

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"time"
)

// Verb is the first argument of a program that is to do a file operation. The second argument is a
// Request as JSON.
const Verb = "files"

// The operations.
const (
	List    = "list"   // describes a file, and lists it if it is a directory
	Read    = "read"   // the Answer, then chunks
	Write   = "write"  // chunks on standard input, then the Answer
	MakeDir = "mkdir"  // with missing parents
	Move    = "move"   // to To
	Remove  = "remove" // a link itself
	Watch   = "watch"  // the Answer, then an Event in each line, without an end

	Processes = "processes" // lists at most Limit; without a path
)

// Request is an operation. Paths are absolute, of any bytes, or as names.Shown shows them.
type Request struct {
	Op      string `json:"op"`
	Path    []byte `json:"path"`
	To      []byte `json:"to,omitempty"`
	After   []byte `json:"after,omitempty"`   // list: only names after this one
	Limit   int    `json:"limit,omitempty"`   // list: entries; read: bytes
	Offset  int64  `json:"offset,omitempty"`  // read
	Version string `json:"version,omitempty"` // read, write: of the present content, or Absent; empty: any

	// Read: Large if there is more. Remove: with what is in it. Move: replaces a file. Watch:
	// directories below, too.
	All bool `json:"all,omitempty"`
}

// Absent is the version of a file that does not exist.
const Absent = "absent"

// Answer is what became of a Request.
type Answer struct {
	Code    string  `json:"code,omitempty"` // why nothing was done, or Part; empty: all was
	File    Entry   `json:"file"`
	Version string  `json:"version,omitempty"` // of the file's content
	Entries []Entry `json:"entries,omitempty"`
	More    bool    `json:"more,omitempty"` // there are entries after Last
	Last    []byte  `json:"last,omitempty"`

	Processes []Process `json:"processes,omitempty"` // in the order of their ids
}

// Entry describes a file.
type Entry struct {
	Name     []byte      `json:"name"` // the last one of its path; any bytes
	Mode     fs.FileMode `json:"mode"`
	Size     int64       `json:"size,omitempty"` // bytes, of a regular file
	Modified time.Time   `json:"modified"`
}

// Process describes a process of the container.
type Process struct {
	PID         int       `json:"pid"`
	Parent      int       `json:"parent"`
	Command     []byte    `json:"command"` // its arguments, with a space between them; any bytes, at most MaxCommand
	State       string    `json:"state"`   // as in /proc/PID/stat, such as S
	CPUUS       int64     `json:"cpu_us"`
	MemoryBytes int64     `json:"memory_bytes"` // resident
	StartedAt   time.Time `json:"started_at"`
}

// MaxCommand is the most that a Process has of its command, in bytes.
const MaxCommand = 256

// The codes of an Answer.
const (
	Missing   = "missing"
	Exists    = "exists"
	NotEmpty  = "not_empty"
	Denied    = "denied"
	Kind      = "kind" // not a regular file, or not a directory
	Invalid   = "invalid"
	Changed   = "changed" // the version is another one
	Large     = "large"   // more than Limit; Answer.File has the size
	Full      = "full"
	OtherDisk = "other_disk" // a move between file systems
	Part      = "part"       // of a directory was removed, perhaps
	Failed    = "failed"
)

// Event is a change that Watch saw.
type Event struct {
	Kind string `json:"kind"`           // see EventKinds
	Path []byte `json:"path,omitempty"` // absolute
	Dir  bool   `json:"dir,omitempty"`
}

// The kinds of events.
const (
	Created  = "created" // or moved here
	Modified = "modified"
	Removed  = "removed"  // or moved away
	Overflow = "overflow" // events were lost, or there are more directories than can be watched
)

// EventKinds are the kinds of events.
var EventKinds = []string{Created, Modified, Removed, Overflow}

// ChunkBytes is the most that a chunk has.
const ChunkBytes = 256 << 10

var errChunk = errors.New("a chunk is longer than allowed")

// WriteChunk writes a chunk of content. An empty one ends the content: without it, the content is
// incomplete.
func WriteChunk(w io.Writer, p []byte) error {
	var header [4]byte
	binary.BigEndian.PutUint32(header[:], uint32(len(p)))
	_, err := w.Write(header[:])
	if err == nil && len(p) > 0 {
		_, err = w.Write(p)
	}
	return err
}

// ChunkReader reads content from chunks. Its end without the chunk that ends the content is
// io.ErrUnexpectedEOF.
type ChunkReader struct {
	R    io.Reader
	left int
	over bool
}

// Read implements io.Reader.
func (c *ChunkReader) Read(p []byte) (int, error) {
	if c.left == 0 && !c.over {
		var header [4]byte
		if _, err := io.ReadFull(c.R, header[:]); err != nil {
			return 0, unexpected(err)
		}
		n := binary.BigEndian.Uint32(header[:])
		if n > ChunkBytes {
			return 0, errChunk
		}
		c.left, c.over = int(n), n == 0
	}
	if c.over {
		return 0, io.EOF
	}
	n, err := c.R.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, unexpected(err)
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
