package transfer

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
)

// Errors of a transfer.
var (
	// ErrFormat is wrapped by errors about a stream that violates the format or ends too early.
	ErrFormat = errors.New("not a stream of files")
	// ErrTooLarge is wrapped by errors about a tree or a stream beyond its bounds.
	ErrTooLarge = errors.New("too large")
)

// Bounds limit a transfer in one direction; beyond them it fails with ErrTooLarge.
type Bounds struct {
	Bytes   int64 `json:"bytes"`   // of files' content; holes do not count
	Entries int   `json:"entries"` // files, directories and links; sandbox-init remembers some 150 bytes of each
}

// Bounds of names and files.
const (
	maxDepth = 128     // components of a path, and handles that a walk holds
	maxPath  = 4 << 10 // bytes: Linux's PATH_MAX, also for the targets of links
	maxName  = 255     // bytes of a component
	maxSize  = 1 << 40 // bytes of a file, with its holes
	maxBlock = 64 << 10
	maxShown = 256 // bytes of a path in a message
)

// kind is the kind of a record.
type kind byte

const (
	kindTargets kind = 'T'
	kindFile    kind = 'F'
	kindBlock   kind = 'B'
	kindSize    kind = 'Z'
	kindDir     kind = 'D'
	kindLink    kind = 'L'
	kindGone    kind = 'G'
	kindEnd     kind = 'E'
)

// limits are the largest payloads, in bytes. JSON has the bytes of paths in base64.
var limits = map[kind]int{
	kindTargets: 64 << 10, kindFile: maxEntry, kindBlock: offsetLen + maxBlock, kindSize: offsetLen, kindDir: maxEntry,
	kindLink: maxEntry, kindGone: maxEntry, kindEnd: maxEntry,
}

const (
	headerLen = 5
	offsetLen = 8
	maxEntry  = 4 * maxPath
)

// target is a directory of the container.
type target struct {
	Path     string `json:"path"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// entry is what a record says about a name.
type entry struct {
	Dir     int         `json:"d"` // index of the directory
	Path    []byte      `json:"p"` // below it, with slashes; as the disk has it, perhaps no UTF-8
	Mode    fs.FileMode `json:"m,omitempty"`
	ModTime int64       `json:"t,omitempty"` // of a file: Unix time, nanoseconds
	Link    []byte      `json:"l,omitempty"` // where a link leads
}

// ending is the last record.
type ending struct {
	LeftOut  int64  `json:"left_out,omitempty"`
	First    string `json:"first,omitempty"`
	Error    string `json:"error,omitempty"`
	TooLarge bool   `json:"too_large,omitempty"` // the error is ErrTooLarge
}

// writer writes records.
type writer struct {
	w      *bufio.Writer
	header [headerLen + offsetLen]byte
}

// newWriter makes a writer that passes on as many bytes at once as a frame takes.
func newWriter(w io.Writer) *writer { return &writer{w: bufio.NewWriterSize(w, maxBlock)} }

func (w *writer) json(k kind, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.header[0] = byte(k)
	binary.BigEndian.PutUint32(w.header[1:], uint32(len(payload)))
	if _, err = w.w.Write(w.header[:headerLen]); err == nil {
		_, err = w.w.Write(payload)
	}
	return err
}

// number writes a record that begins with a number.
func (w *writer) number(k kind, n int64, data []byte) error {
	w.header[0] = byte(k)
	binary.BigEndian.PutUint32(w.header[1:], uint32(offsetLen+len(data)))
	binary.BigEndian.PutUint64(w.header[headerLen:], uint64(n))
	_, err := w.w.Write(w.header[:])
	if err == nil && len(data) > 0 {
		_, err = w.w.Write(data)
	}
	return err
}

// reader reads records.
type reader struct {
	r   *bufio.Reader
	buf []byte
}

func newReader(r io.Reader) *reader { return &reader{r: bufio.NewReaderSize(r, maxBlock)} }

// next returns the next record; the payload is valid until the next call.
func (r *reader) next() (kind, []byte, error) {
	var header [headerLen]byte
	if _, err := io.ReadFull(r.r, header[:]); err != nil {
		return 0, nil, broken(err)
	}
	k, size := kind(header[0]), binary.BigEndian.Uint32(header[1:])
	if limit, known := limits[k]; !known || int64(size) > int64(limit) {
		return 0, nil, fmt.Errorf("%w: a record of kind 0x%02x with %d bytes", ErrFormat, byte(k), size)
	}
	if cap(r.buf) < int(size) {
		r.buf = make([]byte, size)
	}
	payload := r.buf[:size]
	if _, err := io.ReadFull(r.r, payload); err != nil {
		return 0, nil, broken(err)
	}
	return k, payload, nil
}

// broken is the error of a stream that ends too early, or cannot be read.
func broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends too early", ErrFormat)
	}
	return err
}

// decode decodes a payload of JSON.
func decode(payload []byte, into any) error {
	if err := json.Unmarshal(payload, into); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return nil
}

// numberIn returns the number that a payload begins with.
func numberIn(payload []byte) (n int64, data []byte, err error) {
	if len(payload) < offsetLen {
		return 0, nil, fmt.Errorf("%w: a record without its number", ErrFormat)
	}
	n = int64(binary.BigEndian.Uint64(payload))
	if n < 0 || n > maxSize {
		return 0, nil, fmt.Errorf("%w: a file of more than %d bytes", ErrTooLarge, int64(maxSize))
	}
	return n, payload[offsetLen:], nil
}

// checkPath refuses paths that do not name something below a directory.
func checkPath(path string) error {
	if path == "" || len(path) > maxPath || strings.IndexByte(path, 0) >= 0 || !filepath.IsLocal(filepath.FromSlash(path)) {
		return fmt.Errorf("%w: the path %q", ErrFormat, shown(path))
	}
	depth := 0
	for name := range strings.SplitSeq(path, "/") {
		if depth++; name == "" || name == "." || name == ".." || len(name) > maxName || depth > maxDepth {
			return fmt.Errorf("%w: the path %q", ErrFormat, shown(path))
		}
	}
	return nil
}

// shown shortens a path for a message.
func shown(path string) string {
	if len(path) <= maxShown {
		return path
	}
	return strings.ToValidUTF8(path[:maxShown], "") + "…"
}
