package machine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"secbox/fault"
	"secbox/internal/names"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// file handles a request about files. release, if not nil, frees the memory of the answer, also
// after an error.
func (m *Machine) file(r *request, t wire.Type, p *wire.Path) (a answer, release func(), err error) {
	gate := m.changes
	switch t {
	case wire.TypeReadFile, wire.TypeStat:
		gate = m.reads
	case wire.TypeReadDir:
		gate = m.lists
	}
	leave, err := admit(r.ctx, gate)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	ok := singleMessage{wire.TypeOK, nil}
	switch t {
	case wire.TypeReadFile:
		return m.readFile(r, p, leave)
	case wire.TypeWriteFile:
		if p.Transfer != "" {
			leave() // the rest waits for the network
			return ok, nil, m.receiveFile(r.ctx, p)
		}
		if was := condition(p); was != "" {
			_, err := m.files.ReplaceFile(r.ctx, p.Path, bytes.NewReader(p.Data), was)
			return ok, nil, err
		}
		return ok, nil, m.files.WriteFile(r.ctx, p.Path, p.Data, fs.FileMode(p.Perm))
	case wire.TypeStat:
		info, err := m.files.Stat(r.ctx, p.Path)
		if err != nil {
			return nil, nil, err
		}
		return singleMessage{wire.TypeFileInfo, &wire.FileInfo{
			Name: info.Name, Size: info.Size, Mode: uint32(info.Mode), ModTime: validTime(info.ModTime), IsDir: info.IsDir,
		}}, nil, nil
	case wire.TypeReadDir:
		return m.readDir(r, p)
	case wire.TypeMkdirAll:
		return ok, nil, m.files.MkdirAll(r.ctx, p.Path, fs.FileMode(p.Perm))
	case wire.TypeRemove:
		return ok, nil, m.files.Remove(r.ctx, p.Path)
	case wire.TypeRemoveAll:
		return ok, nil, m.files.RemoveAll(r.ctx, p.Path)
	}
	return nil, nil, fault.New(fault.Unsupported, "this runner does not know %s", t)
}

// readFile answers with a file's content, or sends it over HTTP if it is too large for a message.
func (m *Machine) readFile(r *request, p *wire.Path, leave func()) (answer, func(), error) {
	f, info, err := m.files.Open(r.ctx, p.Path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if info.Size > wire.InlineBytes {
		leave() // the rest waits for the network
		return m.sendLarge(r.ctx, p, f, info.Size)
	}
	// The content is held until core-api has it.
	if err := m.reading.Acquire(r.ctx, info.Size); err != nil {
		return nil, nil, errors.Join(context.Canceled, err)
	}
	release := func() { m.reading.Release(info.Size) }
	data := make([]byte, info.Size)
	n, err := io.ReadFull(f, data)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, release, &fs.PathError{Op: "read", Path: p.Path, Err: err}
	}
	data = data[:n] // it may have shrunk; later growth does not count
	return singleMessage{wire.TypeFileContent, &wire.FileContent{Data: data, Size: int64(n)}}, release, nil
}

// sendLarge sends a file over HTTP.
func (m *Machine) sendLarge(ctx context.Context, p *wire.Path, f *os.File, size int64) (answer, func(), error) {
	if p.Transfer == "" {
		return nil, nil, fault.New(fault.FileTooLarge, "the file is larger than %d MiB, and core-api named no transfer for it",
			wire.InlineBytes>>20)
	}
	digest, err := m.upload(ctx, p, f, size)
	if err != nil {
		return nil, nil, err
	}
	return singleMessage{wire.TypeFileContent, &wire.FileContent{Data: []byte{}, Size: size, SHA256: digest}}, nil, nil
}

// condition returns the content that a file to be written must have now, as files.Pending takes it.
func condition(p *wire.Path) string {
	if p.IfAbsent {
		return sandbox.Absent
	}
	return p.IfSHA256
}

// receiveFile writes a file whose content comes over HTTP.
func (m *Machine) receiveFile(ctx context.Context, p *wire.Path) error {
	pending, err := m.files.Create(ctx, p.Path, fs.FileMode(p.Perm))
	if err != nil {
		return err
	}
	defer pending.Discard()
	pending.Was = condition(p)
	if err := m.download(ctx, p, pending); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return pending.Commit(ctx)
}

// readDir answers with the names in a directory. It keeps its turn until there is memory for them,
// so that other requests do not read theirs in the meantime.
func (m *Machine) readDir(r *request, p *wire.Path) (answer, func(), error) {
	entries, err := m.files.ReadDir(r.ctx, p.Path)
	if err != nil {
		return nil, nil, err
	}
	list := newListing(entries)
	held := min(list.held, memoryForReading)
	if err := m.reading.Acquire(r.ctx, held); err != nil {
		return nil, nil, errors.Join(context.Canceled, err)
	}
	return list, func() { m.reading.Release(held) }, nil
}

// Estimates for a list of names: the memory of an entry beside its name, and the bytes of one
// message, on the high side.
const (
	entryInMemory = 48
	partBytes     = 1 << 20
)

// listing is the answer of a directory, in parts.
type listing struct {
	entries []sandbox.DirEntry
	starts  []int // of the parts
	held    int64 // bytes in memory
}

func newListing(entries []sandbox.DirEntry) *listing {
	l := &listing{entries: entries, starts: []int{0}}
	part, begin := 0, 0
	for i, e := range entries {
		l.held += int64(len(e.Name)) + entryInMemory
		bytes := 6*len(e.Name) + 80 // JSON may escape a byte as six
		if i > begin && (part+bytes > partBytes || i-begin >= wire.MaxEntries) {
			l.starts = append(l.starts, i)
			part, begin = 0, i
		}
		part += bytes
	}
	return l
}

func (l *listing) message(part int, _ [2]int64) (wire.Type, any, bool) {
	begin, end := l.starts[part], len(l.entries)
	more := part+1 < len(l.starts)
	if more {
		end = l.starts[part+1]
	}
	body := &wire.DirEntries{Entries: make([]wire.DirEntry, 0, end-begin), More: more}
	for _, e := range l.entries[begin:end] {
		body.Entries = append(body.Entries, wire.DirEntry{Name: names.Shown(e.Name), IsDir: e.IsDir, Size: e.Size, Mode: uint32(e.Mode)})
	}
	return wire.TypeDirEntries, body, more
}

// validTime returns the nearest time that a message can carry.
func validTime(t time.Time) time.Time {
	switch t = t.UTC(); {
	case t.Year() < 1:
		return time.Time{}
	case t.Year() > 9999:
		return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	}
	return t
}
