package archive

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
)

// The records of a ZIP file by APPNOTE.TXT: signatures, and the lengths of the fixed parts.
const (
	localMagic   = "PK\x03\x04"
	entryMagic   = "PK\x01\x02"
	endMagic     = "PK\x05\x06"
	end64Magic   = "PK\x06\x06"
	locatorMagic = "PK\x06\x07"

	localLen   = 30
	entryLen   = 46
	endLen     = 22
	end64Len   = 56
	locatorLen = 20

	maxCommentLen = math.MaxUint16
)

// maxTableBytes bounds the table of contents, which is all that is held in memory. Ten thousand
// entries with names of usual length and all the fields that tools add take about 2 MiB.
const maxTableBytes = 8 << 20

// entriesPerFile is the number of entries that an archive may have per file of the limit: folders
// are entries, and macOS adds one for every file.
const entriesPerFile = 4

var le = binary.LittleEndian

// table is the position of the table of contents.
type table struct {
	offset, size int64
	entries      int64
}

// readTable reads and checks the table of contents. It returns the entries in the order of their
// data, with decoded names.
func readTable(r io.ReaderAt, size int64, lim Limits) ([]*entry, error) {
	if size > lim.ArchiveBytes {
		return nil, tooLarge("the archive has %s, more than the allowed %s: leave out unneeded files",
			inBytes(size), inBytes(lim.ArchiveBytes))
	}
	if err := checkStart(r, size); err != nil {
		return nil, err
	}
	at, err := findTable(r, size)
	if err != nil {
		return nil, err
	}
	switch {
	case at.entries == 0:
		return nil, errEmpty()
	case at.entries > int64(lim.Files)*entriesPerFile:
		return nil, tooLarge("the archive has %d entries; a skill may have %d files: leave out unneeded files", at.entries, lim.Files)
	case at.size > maxTableBytes:
		return nil, tooLarge("the archive's table of contents has %s, more than the allowed %s: use fewer files and shorter names",
			inBytes(at.size), inBytes(maxTableBytes))
	case at.size < at.entries*entryLen:
		return nil, errTable()
	}

	entries := make([]*entry, 0, at.entries)
	section := bufio.NewReaderSize(io.NewSectionReader(r, at.offset, at.size), 32<<10)
	for range at.entries {
		e, err := readEntry(section, lim)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	switch _, err := section.ReadByte(); {
	case err == nil:
		return nil, errTable()
	case !errors.Is(err, io.EOF):
		return nil, unreadable(err)
	}
	if err := checkRanges(entries, at.offset); err != nil {
		return nil, err
	}
	return entries, decodeNames(entries)
}

// checkStart refuses files that are obviously no ZIP archives.
func checkStart(r io.ReaderAt, size int64) error {
	if size <= 0 {
		return bad("the file is empty: upload the skill's folder as a ZIP archive")
	}
	head := make([]byte, min(size, 8))
	if err := readAt(r, head, 0); err != nil {
		return unreadable(err)
	}
	begins := func(magic string) bool { return strings.HasPrefix(string(head), magic) }
	switch {
	case begins(localMagic), begins(endMagic):
		return nil
	case begins("Rar!"):
		return errOther("a RAR archive")
	case begins("7z\xbc\xaf\x27\x1c"):
		return errOther("a 7z archive")
	case begins("\x1f\x8b"):
		return errOther("a gzip file")
	case begins("PK\x07\x08"), begins("PK00"):
		return errSplit()
	}
	return bad("the file does not begin as a ZIP archive does: upload the skill's folder as a plain ZIP archive, not as a " +
		"self-extracting one")
}

func errOther(what string) error {
	return bad("the file is %s: upload the skill's folder as a ZIP archive", what)
}

func errEmpty() error {
	return bad("the archive is empty: put the skill's files with its SKILL.md into it")
}

func errTable() error {
	return bad("the archive's table of contents is damaged: pack it again")
}

// findTable finds the only end record. An end record counts if its comment reaches to the end of
// the file. If the comment contained another such record, different programs would see different
// archives.
func findTable(r io.ReaderAt, size int64) (table, error) {
	tail := make([]byte, min(size, endLen+maxCommentLen))
	if err := readAt(r, tail, size-int64(len(tail))); err != nil {
		return table{}, unreadable(err)
	}
	found, any := -1, false
	for i := len(tail); ; {
		if i = bytes.LastIndex(tail[:i], []byte(endMagic)); i < 0 {
			break
		}
		any = true
		if i+endLen > len(tail) || i+endLen+int(le.Uint16(tail[i+20:])) != len(tail) {
			continue
		}
		if found >= 0 {
			return table{}, bad("the archive has two ends, one in the comment of the other: pack it again, without a comment")
		}
		found = i
	}
	switch {
	case found < 0 && any:
		return table{}, bad("the archive is cut off or has other data after its end: pack it again and upload it completely")
	case found < 0:
		return table{}, bad("the archive is cut off, its table of contents is missing: upload it again, completely")
	}
	return parseEnd(r, tail[found:found+endLen], size-int64(len(tail)-found))
}

// parseEnd reads the end record at the offset end, and the ZIP64 one before it, if there is one.
func parseEnd(r io.ReaderAt, b []byte, end int64) (table, error) {
	disk, tableDisk := le.Uint16(b[4:]), le.Uint16(b[6:])
	here, all := uint64(le.Uint16(b[8:])), uint64(le.Uint16(b[10:]))
	size, offset := uint64(le.Uint32(b[12:])), uint64(le.Uint32(b[16:]))
	wide := here == math.MaxUint16 || all == math.MaxUint16 || size == math.MaxUint32 || offset == math.MaxUint32 ||
		disk == math.MaxUint16 || tableDisk == math.MaxUint16

	locator := make([]byte, locatorLen)
	if end >= locatorLen {
		if err := readAt(r, locator, end-locatorLen); err != nil {
			return table{}, unreadable(err)
		}
	}
	switch {
	case string(locator[:4]) == locatorMagic:
		record, err := readEnd64(r, locator, end-locatorLen)
		if err != nil {
			return table{}, err
		}
		agrees := func(short, max, long uint64) bool { return short == max || short == long }
		here64, all64, size64, offset64 := le.Uint64(record[24:]), le.Uint64(record[32:]), le.Uint64(record[40:]), le.Uint64(record[48:])
		if !agrees(here, math.MaxUint16, here64) || !agrees(all, math.MaxUint16, all64) ||
			!agrees(size, math.MaxUint32, size64) || !agrees(offset, math.MaxUint32, offset64) {
			return table{}, errTable()
		}
		if disk == math.MaxUint16 {
			disk = 0 // the ZIP64 record, which was checked, has it
		}
		if tableDisk == math.MaxUint16 {
			tableDisk = 0
		}
		here, all, size, offset = here64, all64, size64, offset64
		end = int64(le.Uint64(locator[8:]))
	case wide:
		return table{}, errTable()
	}
	if disk != 0 || tableDisk != 0 || here != all {
		return table{}, errSplit()
	}
	// In a proper archive the table ends where the end record begins. Otherwise something was
	// inserted.
	if size > uint64(end) || offset != uint64(end)-size {
		return table{},
			bad("the archive's table of contents is not where it says: something was put before or into the archive; pack it again")
	}
	return table{int64(offset), int64(size), int64(min(all, math.MaxInt64/entryLen))}, nil
}

func errSplit() error {
	return bad("the archive is one part of several: upload the skill's folder as one ZIP archive")
}

// readEnd64 reads the ZIP64 end record to which the locator at the offset at points.
func readEnd64(r io.ReaderAt, locator []byte, at int64) ([]byte, error) {
	if le.Uint32(locator[4:]) != 0 || le.Uint32(locator[16:]) > 1 {
		return nil, errSplit()
	}
	offset := le.Uint64(locator[8:])
	if at < end64Len || offset > uint64(at-end64Len) {
		return nil, errTable()
	}
	record := make([]byte, end64Len)
	if err := readAt(r, record, int64(offset)); err != nil {
		return nil, unreadable(err)
	}
	if string(record[:4]) != end64Magic || le.Uint64(record[4:]) != uint64(at)-offset-12 {
		return nil, errTable()
	}
	if le.Uint32(record[16:]) != 0 || le.Uint32(record[20:]) != 0 {
		return nil, errSplit()
	}
	return record, nil
}

// checkRanges sorts the entries by offset, sets their limits, and refuses entries that overlap:
// with them a small archive could unpack to a huge one although no single entry is suspicious.
func checkRanges(entries []*entry, tableAt int64) error {
	slices.SortStableFunc(entries, func(a, b *entry) int { return cmp.Compare(a.offset, b.offset) })
	if entries[0].offset != 0 {
		return bad("the archive begins with data that is in none of its entries: pack it again")
	}
	for n, e := range entries {
		e.limit = tableAt
		if n+1 < len(entries) {
			e.limit = entries[n+1].offset
		}
		if room := e.limit - e.offset; room < localLen+int64(len(e.raw)) || room-localLen-int64(len(e.raw)) < e.packed {
			return errShared(e.label())
		}
	}
	return nil
}

func errShared(name string) error {
	return badEntry(name, "overlaps another entry or the table of contents, as in a bomb: pack the archive again")
}

// readAt fills b. An early end is io.ErrUnexpectedEOF for any reader.
func readAt(r io.ReaderAt, b []byte, offset int64) error {
	n, err := r.ReadAt(b, offset)
	switch {
	case n == len(b):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
