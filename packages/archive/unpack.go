package archive

import (
	"bufio"
	"compress/flate"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"

	"secbox/fault"
	"secbox/internal/admission"
	"secbox/workspace/diskspace"
	"secbox/workspace/tree"
)

// bufferBytes is the size of the buffers. Small entries are read with their headers in one call.
const bufferBytes = 64 << 10

// unpacker writes entries, one after the other.
type unpacker struct {
	zip     io.ReaderAt
	into    *os.Root
	in      *bufio.Reader
	inflate io.ReadCloser // also a flate.Resetter; nil until needed
	out     []byte
	name    []byte
}

func newUnpacker(zip io.ReaderAt, into *os.Root) *unpacker {
	return &unpacker{zip: zip, into: into, in: bufio.NewReaderSize(nil, bufferBytes), out: make([]byte, bufferBytes)}
}

func (u *unpacker) mkdir(ctx context.Context, dir string) error {
	if err := ended(ctx); err != nil {
		return err
	}
	if err := u.into.Mkdir(dir, 0o755); err != nil {
		return unwritable(err, dir)
	}
	if err := ignoreUnsupported(u.into.Chmod(dir, 0o755)); err != nil {
		return unwritable(err, dir)
	}
	return nil
}

// ignoreUnsupported drops the error of a chmod on a file system without permissions.
func ignoreUnsupported(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// file writes one entry.
func (u *unpacker) file(turn *admission.Turn, f file) error {
	if err := turn.Next(); err != nil {
		return givenUp(err)
	}
	u.in.Reset(io.NewSectionReader(u.zip, f.offset, f.limit-f.offset))
	if err := u.header(f.entry); err != nil {
		return err
	}
	mode := tree.PlainMode(f.exec)
	out, err := u.into.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return unwritable(err, f.path)
	}
	if err := ignoreUnsupported(out.Chmod(mode)); err != nil {
		out.Close()
		return unwritable(err, f.path)
	}
	program, err := u.content(turn, f, out)
	if err == nil && program && f.noMode {
		err = ignoreUnsupported(out.Chmod(tree.PlainMode(true)))
	}
	if err != nil {
		out.Close()
		return err
	}
	if err := out.Close(); err != nil {
		return unwritable(err, f.path)
	}
	return nil
}

// header compares the entry's own header with the table: programs that read only one of the two
// must not see another skill.
func (u *unpacker) header(e *entry) error {
	var b [localLen]byte
	if _, err := io.ReadFull(u.in, b[:]); err != nil {
		return u.unreadable(e, err)
	}
	nameLen, extraLen := int(le.Uint16(b[26:])), int(le.Uint16(b[28:]))
	if cap(u.name) < nameLen {
		u.name = make([]byte, nameLen)
	}
	u.name = u.name[:nameLen]
	if string(b[:4]) != localMagic || nameLen != len(e.raw) {
		return errHeadersDiffer(e)
	}
	if _, err := io.ReadFull(u.in, u.name); err != nil {
		return u.unreadable(e, err)
	}
	flags, method := le.Uint16(b[6:]), le.Uint16(b[8:])
	if string(u.name) != e.raw || method != e.method || flags&flagEncrypted != 0 {
		return errHeadersDiffer(e)
	}
	if flags&flagDescriptor == 0 {
		agrees := func(local uint32, table int64) bool { return local == math.MaxUint32 || int64(local) == table }
		if le.Uint32(b[14:]) != e.crc || !agrees(le.Uint32(b[18:]), e.packed) || !agrees(le.Uint32(b[22:]), e.size) {
			return errHeadersDiffer(e)
		}
	}
	if int64(localLen+nameLen+extraLen)+e.packed > e.limit-e.offset {
		return errShared(e.label())
	}
	if _, err := u.in.Discard(extraLen); err != nil {
		return u.unreadable(e, err)
	}
	return nil
}

func errHeadersDiffer(e *entry) error {
	return badEntry(e.label(), "is described differently in the table of contents and before its data: pack the archive again")
}

// content copies the entry's data, and stops at the first excess byte. It reports whether the file
// is a program.
func (u *unpacker) content(turn *admission.Turn, f file, out *os.File) (program bool, err error) {
	packed := &window{u.in, f.packed}
	var data io.Reader = packed
	if f.method == deflated {
		data = u.inflater(packed)
	}
	var written int64
	var sum uint32
	blank := true
	head := make([]byte, 0, 4)
	for {
		if err := turn.Next(); err != nil {
			return false, givenUp(err)
		}
		n, err := data.Read(u.out)
		if written += int64(n); written > f.size {
			return false, badEntry(f.label(), "unpacks to more than the %d bytes it promises, as a bomb does: pack the archive again",
				f.size)
		}
		head = append(head, u.out[:min(n, 4-len(head))]...)
		sum = crc32.Update(sum, crc32.IEEETable, u.out[:n])
		blank = blank && f.description && isBlank(u.out[:n])
		if n > 0 {
			if _, err := out.Write(u.out[:n]); err != nil {
				return false, unwritable(err, f.path)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false, u.unreadable(f.entry, err)
		}
	}
	switch {
	case written != f.size || sum != f.crc:
		return false, errDamaged(f.entry)
	case f.description && blank:
		return false, errBlank(f.label())
	}
	return tree.IsProgram(head), nil
}

// inflater resets the decompressor, which is kept for all entries, to a new stream.
func (u *unpacker) inflater(packed *window) io.Reader {
	if u.inflate == nil {
		u.inflate = flate.NewReader(packed)
	} else if err := u.inflate.(flate.Resetter).Reset(packed, nil); err != nil {
		return failing{err}
	}
	return u.inflate
}

// unreadable distinguishes damage in the archive from errors of reading it.
func (u *unpacker) unreadable(e *entry, err error) error {
	var corrupt flate.CorruptInputError
	if isEnd(err) || errors.As(err, &corrupt) {
		return errDamaged(e)
	}
	return unreadable(err)
}

func errDamaged(e *entry) error {
	return badEntry(e.label(),
		"is damaged, its content is not what its checksum and size say: pack the archive again and upload it completely")
}

// unwritable wraps an error of writing.
func unwritable(err error, name string) error {
	if diskspace.IsFull(err) {
		return fault.Wrap(fault.DiskFull, err, "the disk has no room for the skill: free some space or inodes")
	}
	return fault.Wrap(fault.Internal, err, "the skill's %s cannot be written", quoted(name))
}

// isBlank reports whether b is only white space, byte order marks (in UTF-8, byte by byte) and
// NULs.
func isBlank(b []byte) bool {
	for _, c := range b {
		switch c {
		case ' ', '\t', '\r', '\n', '\v', '\f', 0, 0xef, 0xbb, 0xbf:
		default:
			return false
		}
	}
	return true
}

// window is the packed data of one entry: the next left bytes. As an io.ByteReader, it is not
// buffered again by the decompressor.
type window struct {
	in   *bufio.Reader
	left int64
}

func (w *window) Read(b []byte) (int, error) {
	if w.left == 0 {
		return 0, io.EOF
	}
	n, err := w.in.Read(b[:min(int64(len(b)), w.left)])
	w.left -= int64(n)
	return n, early(err)
}

func (w *window) ReadByte() (byte, error) {
	if w.left == 0 {
		return 0, io.EOF
	}
	c, err := w.in.ReadByte()
	if err == nil {
		w.left--
	}
	return c, early(err)
}

// early turns an end inside the entry into an unexpected one.
func early(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
