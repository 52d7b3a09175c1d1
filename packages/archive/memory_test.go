package archive

import (
	"bytes"
	"compress/flate"
	"context"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"
)

// segments is an archive that is never in one piece: long stretches of it are the same memory.
type segments struct {
	parts [][]byte
	start []int64
	size  int64
}

func (s *segments) add(b []byte) {
	s.parts, s.start, s.size = append(s.parts, b), append(s.start, s.size), s.size+int64(len(b))
}

func (s *segments) ReadAt(b []byte, off int64) (n int, err error) {
	i, found := slices.BinarySearch(s.start, off)
	if !found {
		i--
	}
	for ; n < len(b) && i < len(s.parts); i++ {
		n += copy(b[n:], s.parts[i][off+int64(n)-s.start[i]:])
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// large makes an archive of more than 200 MiB out of one random megabyte: files of 8 MiB, every
// other one packed.
func large() (archive *segments, bytesUnpacked int64) {
	block := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{1}).Read(block)
	const blocks, files = 8, 6
	var deflate bytes.Buffer
	w, _ := flate.NewWriter(&deflate, flate.HuffmanOnly)
	var sum uint32
	for range blocks {
		sum = crc32.Update(sum, crc32.IEEETable, block)
		w.Write(block)
	}
	w.Close()

	s := &segments{}
	var table []byte
	for n := range files {
		r := raw{name: "demo/f" + strconv.Itoa(n), data: "", packed: ""}
		method, packed := uint16(stored), uint32(blocks<<20)
		if n%2 == 1 {
			method, packed = deflated, uint32(deflate.Len())
		}
		change := func(at int) func([]byte) {
			return func(b []byte) {
				le.PutUint16(b[at+4:], method)
				le.PutUint32(b[at+10:], sum)
				le.PutUint32(b[at+14:], packed)
				le.PutUint32(b[at+18:], blocks<<20)
			}
		}
		r.local, r.central = change(4), func(b []byte) { change(6)(b); le.PutUint32(b[42:], uint32(s.size)) }
		one := makeZip(ending{}, r)
		header := localLen + len(r.name)
		at := s.size
		s.add(one[:header])
		table = append(table, one[header:header+entryLen+len(r.name)]...)
		le.PutUint32(table[len(table)-len(r.name)-4:], uint32(at))
		if method == deflated {
			s.add(deflate.Bytes())
			continue
		}
		for range blocks {
			s.add(block)
		}
	}
	r := skillMD("demo/SKILL.md")
	at := s.size
	r.central = func(b []byte) { le.PutUint32(b[42:], uint32(at)) }
	one := makeZip(ending{}, r)
	header := localLen + len(r.name) + len(r.data)
	s.add(one[:header])
	table = append(table, one[header:header+entryLen+len(r.name)]...)
	tableAt := s.size
	s.add(table)
	end := one[len(one)-endLen:]
	le.PutUint16(end[8:], files+1)
	le.PutUint16(end[10:], files+1)
	le.PutUint32(end[12:], uint32(len(table)))
	le.PutUint32(end[16:], uint32(tableAt))
	s.add(end)
	return s, files*blocks<<20 + int64(len(r.data))
}

// TestArchiveIsStreamed counts every allocated byte. It is not parallel, so that other tests' bytes
// are not counted.
func TestArchiveIsStreamed(t *testing.T) {
	archive, bytesUnpacked := large()
	if archive.size < 40<<20 {
		t.Fatalf("the archive has only %d bytes", archive.size)
	}
	_, into := newDir(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	skill, err := unpackAll(context.Background(), archive, archive.size, "", into, DefaultLimits())
	runtime.ReadMemStats(&after)
	if err != nil || skill.Bytes != bytesUnpacked || skill.Files != 7 {
		t.Fatalf("got %+v, %v", skill, err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 2<<20 {
		t.Errorf("%d bytes were allocated for an archive of %d", n, archive.size)
	}

	// Packing needs no more memory either. One file suffices to show it, as deflate is slow.
	for n := 1; n < 6; n++ {
		if err := into.Remove("f" + strconv.Itoa(n)); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&before)
	err = Pack(context.Background(), io.Discard, into.FS(), "demo")
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
		t.Errorf("%d bytes were allocated to pack 8 MiB", n)
	}
}

// TestLargeTableOfContents is the worst that memory is needed for: a table as long as may be.
func TestLargeTableOfContents(t *testing.T) {
	entries := make([]raw, 40_000)
	entries[0] = skillMD("demo/SKILL.md")
	for n := 1; n < len(entries); n++ {
		entries[n].name = "demo/" + strconv.Itoa(n) + "/" + string(bytes.Repeat([]byte("\xcb\xb5"), 60))
	}
	b := makeZip(ending{}, entries...)
	_, into := newDir(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := unpackAll(context.Background(), bytes.NewReader(b), int64(len(b)), "", into, DefaultLimits())
	runtime.ReadMemStats(&after)
	if err == nil {
		t.Fatal("it was taken")
	}
	n := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d bytes were allocated", n)
	if n > 64<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
}
