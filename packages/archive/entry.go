package archive

import (
	"bufio"
	"cmp"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strconv"
	"strings"
)

// Flags and methods of entries, by APPNOTE.TXT.
const (
	flagEncrypted  = 1 << 0
	flagDescriptor = 1 << 3 // sizes and checksum follow the data; the local header has zeros
	flagPatch      = 1 << 5
	flagStrong     = 1 << 6
	flagUTF8       = 1 << 11
	flagMasked     = 1 << 13

	stored   = 0
	deflated = 8
)

// Fields of an entry's extra data, and attributes.
const (
	extraZip64    = 0x0001
	extraUnix     = 0x000d // PKWARE: times, owner, and the target of a link or the numbers of a device
	extraAsi      = 0x756e // ASi: another mode, and the target of a link
	extraUnicode  = 0x7075 // Info-ZIP: the name in UTF-8
	reparsePoint  = 0x0400 // a Windows attribute: a link, in most cases
	dosDirectory  = 0x0010
	modeType      = 0xf000
	modeRegular   = 0x8000
	modeDirectory = 0x4000
	modeLink      = 0xa000
)

// entry is one entry of the table of contents.
type entry struct {
	raw     string // the name's bytes
	unicode string // the name from the Unicode path field; empty if there is none
	flags   uint16
	method  uint16
	crc     uint32
	packed  int64 // bytes in the archive
	size    int64 // bytes unpacked
	offset  int64 // of the local header
	limit   int64 // the end of the entry: the offset of the next one or of the table
	dir     bool  // by its attributes, or by the name once it is decoded
	exec    bool
	noMode  bool // it has no Unix mode, or one of a system without an executable bit: a program is executable

	parts []string // the name, decoded and cleaned
}

// label returns the name for messages, decoded if it is already.
func (e *entry) label() string {
	if e.parts != nil {
		return strings.Join(e.parts, "/")
	}
	return e.raw
}

// quoted makes an untrusted name safe for a message: escaped and cut.
func quoted(name string) string {
	const most = 160
	q := strconv.Quote(name[:min(len(name), most)])
	if len(name) > most || len(q) > most {
		return strings.TrimRight(strings.ToValidUTF8(q[:min(len(q), most)-1], ""), `\`) + `…"`
	}
	return q
}

// inBytes formats a limit.
func inBytes(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}

// readEntry reads one entry of the table and refuses everything but plain files and directories.
func readEntry(r *bufio.Reader, lim Limits) (*entry, error) {
	var b [entryLen]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return nil, tableError(err)
	}
	if string(b[:4]) != entryMagic {
		return nil, errTable()
	}
	nameLen, extraLen, commentLen := int(le.Uint16(b[28:])), int(le.Uint16(b[30:])), int(le.Uint16(b[32:]))
	name := make([]byte, nameLen)
	if _, err := io.ReadFull(r, name); err != nil {
		return nil, tableError(err)
	}
	if nameLen > lim.PathBytes {
		return nil, badEntry(string(name), "has a name of more than %d bytes: use shorter names or fewer folders", lim.PathBytes)
	}
	extra := make([]byte, extraLen)
	if _, err := io.ReadFull(r, extra); err != nil {
		return nil, tableError(err)
	}
	if _, err := r.Discard(commentLen); err != nil {
		return nil, tableError(err)
	}
	e := &entry{
		raw:    string(name),
		flags:  le.Uint16(b[8:]),
		method: le.Uint16(b[10:]),
		crc:    le.Uint32(b[16:]),
	}
	sizes := [3]uint64{uint64(le.Uint32(b[24:])), uint64(le.Uint32(b[20:])), uint64(le.Uint32(b[42:]))}
	if err := e.readExtra(extra, &sizes, le.Uint16(b[34:])); err != nil {
		return nil, err
	}
	for _, n := range sizes {
		if n > math.MaxInt64/2 {
			return nil, errTable()
		}
	}
	e.size, e.packed, e.offset = int64(sizes[0]), int64(sizes[1]), int64(sizes[2])
	if err := e.checkPacking(); err != nil {
		return nil, err
	}
	return e, e.readAttributes(le.Uint32(b[38:]), b[5])
}

// tableError wraps an error of reading the table of contents.
func tableError(err error) error {
	if isEnd(err) {
		return errTable()
	}
	return unreadable(err)
}

// readExtra reads the relevant fields. It replaces sizes, in the order unpacked, packed, offset, by
// their ZIP64 values where they are all ones.
func (e *entry) readExtra(b []byte, sizes *[3]uint64, disk uint16) error {
	var zip64 []byte
	for len(b) >= 4 {
		id, n := le.Uint16(b), int(le.Uint16(b[2:]))
		if b = b[4:]; n > len(b) {
			return badEntry(e.raw, "has a damaged header: pack the archive again")
		}
		field := b[:n]
		b = b[n:]
		switch id {
		case extraZip64:
			if zip64 != nil {
				return badEntry(e.raw, "gives its sizes twice: pack the archive again")
			}
			zip64 = field
		case extraUnix:
			if len(field) > 12 {
				return badEntry(e.raw, "is a link or a device; a skill holds files and folders only: put the file itself there")
			}
		case extraAsi:
			if len(field) < 14 {
				return badEntry(e.raw, "has a damaged header: pack the archive again")
			}
			if err := e.checkMode(le.Uint16(field[4:])); err != nil {
				return err
			}
			if len(field) > 14 {
				return errLink(e.raw)
			}
		case extraUnicode:
			// It counts only for this name: tools that do not know the field leave it behind when
			// they rename an entry.
			if len(field) > 5 && field[0] == 1 && le.Uint32(field[1:]) == crc32.ChecksumIEEE([]byte(e.raw)) {
				e.unicode = string(field[5:])
			}
		}
	}
	for n := range sizes {
		if sizes[n] != math.MaxUint32 {
			continue
		}
		if len(zip64) < 8 {
			return badEntry(e.raw, "has a damaged header: pack the archive again")
		}
		sizes[n], zip64 = le.Uint64(zip64), zip64[8:]
	}
	if disk == math.MaxUint16 && len(zip64) >= 4 {
		disk = uint16(min(le.Uint32(zip64), math.MaxUint16))
	}
	if disk != 0 {
		return errSplit()
	}
	return nil
}

func errLink(name string) error {
	return badEntry(name, "is a link; links are not followed: put the file itself there (zip without --symlinks)")
}

// checkPacking refuses entries that cannot be unpacked, and impossible sizes.
func (e *entry) checkPacking() error {
	switch {
	case e.flags&(flagEncrypted|flagStrong|flagMasked) != 0 || e.method == 99:
		return badEntry(e.raw, "is encrypted: pack the archive again, without a password")
	case e.flags&flagPatch != 0:
		return badEntry(e.raw, "is a patch of another file: pack the file itself")
	case e.method != stored && e.method != deflated:
		return badEntry(e.raw, "is packed with %s: pack the archive again with deflate, the usual method",
			cmp.Or(methods[e.method], fmt.Sprintf("method %d", e.method)))
	case e.method == stored && e.packed != e.size:
		return badEntry(e.raw, "is stored as it is, but gives two different sizes: pack the archive again")
	}
	return nil
}

// methods are the names of methods that other programs use.
var methods = map[uint16]string{9: "Deflate64", 12: "bzip2", 14: "LZMA", 93: "Zstandard", 95: "xz", 98: "PPMd"}

// noModes are the host systems whose files have no executable bit: FAT, NTFS under the numbers of
// PKWARE and of Info-ZIP, and VFAT. Python's zipfile and Info-ZIP write the mode 0666 there.
const noModes = 1<<0 | 1<<10 | 1<<11 | 1<<14

// readAttributes reads the file attributes. Unix modes count for every host system, because writers
// often name a wrong one, and other programs use the modes too.
func (e *entry) readAttributes(attributes uint32, host byte) error {
	mode := uint16(attributes >> 16)
	if attributes&reparsePoint != 0 {
		return errLink(e.raw)
	}
	if err := e.checkMode(mode); err != nil {
		return err
	}
	e.dir = mode&modeType == modeDirectory || mode&modeType == 0 && attributes&dosDirectory != 0
	e.exec = mode&0o111 != 0
	e.noMode = mode&0o777 == 0 || !e.exec && noModes>>host&1 != 0
	return nil
}

var special = map[uint16]string{0x1000: "a FIFO", 0x2000: "a device", 0x6000: "a device", 0xc000: "a socket"}

func (e *entry) checkMode(mode uint16) error {
	switch mode & modeType {
	case 0, modeRegular, modeDirectory:
		return nil
	case modeLink:
		return errLink(e.raw)
	}
	return badEntry(e.raw, "is %s; a skill holds files and folders only: leave it out", cmp.Or(special[mode&modeType], "a special file"))
}
