package archive

import (
	"bytes"
	"compress/flate"
	"context"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"secbox/fault"
)

// raw is an entry as it will stand in an archive that no honest writer would make.
type raw struct {
	name    string
	data    string
	deflate bool
	mode    uint32 // Unix, with its type; 0: none
	flags   uint16
	extra   string // in both headers
	packed  string // instead of what data packs to

	local, central func(b []byte) // change the header; b begins with its fixed part
}

// ending is what follows and surrounds the entries.
type ending struct {
	prefix, between, comment, suffix string
	end                              func(b []byte)
	wide                             func(table, size uint64) string // what replaces the part between the table of contents and the end
}

// makeZip writes entries one after the other, with their false values.
func makeZip(e ending, entries ...raw) []byte {
	out := []byte(e.prefix)
	var table []byte
	for _, r := range entries {
		offset := len(out)
		packed, method := r.data, uint16(stored)
		if r.deflate {
			var b bytes.Buffer
			w, _ := flate.NewWriter(&b, flate.BestCompression)
			w.Write([]byte(r.data))
			w.Close()
			packed, method = b.String(), deflated
		}
		if r.packed != "" {
			packed = r.packed
		}
		sum := crc32.ChecksumIEEE([]byte(r.data))
		local := make([]byte, localLen)
		copy(local, localMagic)
		central := make([]byte, entryLen)
		copy(central, entryMagic)
		le.PutUint16(central[4:], 3<<8|20)
		for _, h := range [][]byte{local[4:], central[6:]} {
			le.PutUint16(h, 20)
			le.PutUint16(h[2:], r.flags)
			le.PutUint16(h[4:], method)
			le.PutUint32(h[10:], sum)
			le.PutUint32(h[14:], uint32(len(packed)))
			le.PutUint32(h[18:], uint32(len(r.data)))
			le.PutUint16(h[22:], uint16(len(r.name)))
			le.PutUint16(h[24:], uint16(len(r.extra)))
		}
		le.PutUint32(central[38:], r.mode<<16)
		le.PutUint32(central[42:], uint32(offset))
		local = append(append(local, r.name...), r.extra...)
		central = append(append(central, r.name...), r.extra...)
		if r.local != nil {
			r.local(local)
		}
		if r.central != nil {
			r.central(central)
		}
		out = append(append(out, local...), packed...)
		table = append(table, central...)
	}
	out = append(out, e.between...)
	end := make([]byte, endLen)
	copy(end, endMagic)
	le.PutUint16(end[8:], uint16(len(entries)))
	le.PutUint16(end[10:], uint16(len(entries)))
	le.PutUint32(end[12:], uint32(len(table)))
	le.PutUint32(end[16:], uint32(len(out)))
	le.PutUint16(end[20:], uint16(len(e.comment)))
	tableAt := len(out)
	if e.end != nil {
		e.end(end)
	}
	out = append(out, table...)
	if e.wide != nil {
		out = append(out, e.wide(uint64(tableAt), uint64(len(table)))...)
	}
	out = append(out, end...)
	return append(append(out, e.comment...), e.suffix...)
}

// skillMD is a description that no rule minds.
func skillMD(name string) raw { return raw{name: name, data: "# Demo\n"} }

// demo is a good skill with some entries more.
func demo(more ...raw) []byte {
	return makeZip(ending{}, append([]raw{skillMD("demo/SKILL.md")}, more...)...)
}

// unpack unpacks an archive into a new directory and returns the files.
func unpack(t testing.TB, b []byte, filename string, lim Limits) (Skill, map[string]string, error) {
	t.Helper()
	dir, into := newDir(t)
	skill, err := unpackAll(context.Background(), bytes.NewReader(b), int64(len(b)), filename, into, lim)
	return skill, tree2map(t, dir), err
}

func newDir(t testing.TB) (string, *os.Root) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return dir, root
}

// tree2map gives the content of files by their paths; an executable's path ends in *, a directory's
// in /.
func tree2map(t testing.TB, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		rel = filepath.ToSlash(rel)
		fi, err := d.Info()
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if fi.Mode().Perm() != folder {
				t.Errorf("%s has the mode %v", rel, fi.Mode())
			}
			got[rel+"/"] = "-rwxr-xr-x"
			return nil
		case !d.Type().IsRegular():
			t.Errorf("%s is no regular file", rel)
			return nil
		}
		b, err := os.ReadFile(path)
		switch fi.Mode().Perm() {
		case executable:
			rel += star
		case plain:
		default:
			t.Errorf("%s has the mode %v", rel, fi.Mode())
		}
		got[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func paths(tree map[string]string) string { return strings.Join(slices.Sorted(maps.Keys(tree)), " ") }

// wantFault checks the code, and that the message contains the text.
func wantFault(t testing.TB, err error, code fault.Code, says string) {
	t.Helper()
	if err == nil {
		t.Fatal("it was taken")
	}
	f := fault.From(err)
	if f.Code != code || !strings.Contains(f.Message, says) {
		t.Errorf("got %v, want %s and %q", err, code, says)
	}
	if strings.ContainsAny(f.Message, "\x00\r\n\x1b") || len(f.Message) > 700 {
		t.Errorf("the message is not fit for people: %q", f.Message)
	}
}

// unpackAll opens an archive and unpacks it.
func unpackAll(ctx context.Context, zip io.ReaderAt, size int64, filename string, into *os.Root, lim Limits) (Skill, error) {
	a, err := Open(ctx, zip, size, filename, lim)
	if err != nil {
		return Skill{}, err
	}
	return a.Skill(), a.Unpack(ctx, into)
}
