package archive

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"secbox/fault"
	"secbox/pathadapter"
)

// FuzzUnpack checks for any bytes that nothing is written outside, no limit is exceeded, every
// system accepts the names, and other programs see the same files in an accepted archive.
func FuzzUnpack(f *testing.F) {
	made, err := filepath.Glob("testdata/made/*.zip")
	if err != nil || len(made) < 10 {
		f.Fatalf("found %v, %v", made, err)
	}
	for _, file := range made {
		f.Add(read(f, filepath.Base(file)), "uploaded.zip")
	}
	for _, b := range [][]byte{
		some(), demo(raw{name: "../x"}), makeZip(ending{comment: "a comment"}, skillMD("a/a/SKILL.md")),
		makeZip(ending{wide: end64(func(_, _ []byte) {})}, skillMD("SKILL.md")), demo(raw{name: "demo/\xc4\xa3", extra: unicodePath("demo/\xc4\xa3", "x")}),
		demo(raw{name: "demo/a", data: "xy", flags: flagDescriptor, deflate: true}), demo(raw{name: "demo/\xcb\xb5\xc3\xf7"}, raw{name: "__MACOSX/x"}),
	} {
		f.Add(b, `..\x.zip`)
	}
	f.Fuzz(func(t *testing.T, b []byte, filename string) { checkUnpack(t, b, filename) })
}

// FuzzEntry puts one entry into a good archive, so that the structure around it is valid.
func FuzzEntry(f *testing.F) {
	f.Add("demo/a", "hello hello hello", "", uint32(0o100755), uint16(0), true, int32(0), int32(0))
	f.Add("demo\\\xcb\xb5\xc3\xf7", "x", field(extraAsi, "\x00\x00\x00\x00\xa4\x81\x00\x00\x00\x00\x00\x00\x00\x00"), uint32(0), uint16(flagDescriptor), false,
		int32(0), int32(0))
	f.Add("demo/\x8b", "x", unicodePath("demo/\x8b", "demo/../x"), uint32(0o120777), uint16(flagUTF8), true, int32(-1), int32(1))
	f.Add("__MACOSX/x", "x", field(extraZip64, "\x01\x00\x00\x00\x00\x00\x00\x00"), uint32(0o40755), uint16(flagEncrypted), false, int32(1), int32(-1))
	f.Fuzz(func(t *testing.T, name, data, extra string, mode uint32, flags uint16, deflate bool, size, packed int32) {
		if len(name) > 1<<15 || len(extra) > 1<<15 {
			return // the builder writes no longer ones
		}
		lie := func(at int) func([]byte) {
			return func(b []byte) {
				le.PutUint32(b[at:], le.Uint32(b[at:])+uint32(packed))
				le.PutUint32(b[at+4:], le.Uint32(b[at+4:])+uint32(size))
			}
		}
		checkUnpack(t, demo(raw{name: name, data: data, extra: extra, mode: mode, flags: flags, deflate: deflate, local: lie(18), central: lie(20)}), "x.zip")
	})
}

// checkUnpack checks the guarantees of Unpack for any bytes.
func checkUnpack(t *testing.T, b []byte, filename string) {
	lim := small()
	lim.Bytes, lim.FileBytes = 1<<19, 1<<18
	outside := t.TempDir()
	dir := filepath.Join(outside, "into")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	into, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer into.Close()
	skill, err := unpackAll(context.Background(), bytes.NewReader(b), int64(len(b)), filename, into, lim)
	if list, _ := os.ReadDir(outside); len(list) != 1 {
		t.Fatalf("outside there is %v", list)
	}
	files, size, sums := inspect(t, dir)
	if files > lim.Files || size > lim.Bytes {
		t.Fatalf("%d files of %d bytes", files, size)
	}
	if err != nil {
		checkRefusal(t, err)
		return
	}
	if skill.Files != files || skill.Bytes != size || idFault(skill.ID) != "" || pathadapter.FoldName(skill.ID) == ReservedID {
		t.Fatalf("got %+v of %d files and %d bytes", skill, files, size)
	}
	others, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatalf("another program does not take it: %v", err)
	}
	for _, o := range others.File {
		delete(sums, fmt.Sprintf("%08x %d", o.CRC32, o.UncompressedSize64))
	}
	if len(sums) > 0 {
		t.Fatalf("only we see %v", sums)
	}
}

// inspect walks the written files.
func inspect(t *testing.T, dir string) (files int, size int64, sums map[string]string) {
	sums = map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if why := partFault(d.Name()); why != "" {
			t.Errorf("%q %s", path, why)
		}
		if d.IsDir() {
			return nil
		}
		if !d.Type().IsRegular() {
			t.Errorf("%q is %v", path, d.Type())
			return nil
		}
		b, err := os.ReadFile(path)
		files, size = files+1, size+int64(len(b))
		sums[fmt.Sprintf("%08x %d", crc32.ChecksumIEEE(b), len(b))] = path
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, size, sums
}

func checkRefusal(t *testing.T, err error) {
	f := fault.From(err)
	switch f.Code {
	case fault.InvalidArchive, fault.ArchiveTooLarge, fault.ReservedSkill, fault.SeveralSkills:
	default:
		t.Fatalf("got %v", err)
	}
	if !utf8.ValidString(f.Message) || strings.ContainsAny(f.Message, "\x00\n\x1b") || len(f.Message) > 700 {
		t.Fatalf("the message is not fit for people: %q", f.Message)
	}
}

// FuzzNames decodes two names of one archive: the results never contain "..", and lose nothing of
// what other programs read in the same bytes.
func FuzzNames(f *testing.F) {
	for _, s := range []string{
		"demo/a", `demo\..\x`, "\xcb\xb5\xc3\xf7/\x81\\", "\xc4\xa3", "/x", "C:x", "a//./b", "\xc0\xae\xc0\xae/x", "cafe\u0301/\u202e", "天气/🦆",
		"\x95\x32\x82\x36",
	} {
		f.Add(s, "\xcb\xb5\xc3\xf7", uint16(0))
		f.Add("a", s, uint16(flagUTF8))
	}
	f.Fuzz(func(t *testing.T, one, two string, flags uint16) {
		entries := []*entry{{raw: one, flags: flags}, {raw: two}}
		if err := decodeNames(entries); err != nil {
			checkRefusal(t, err)
			return
		}
		for _, e := range entries {
			if !utf8.ValidString(e.label()) || strings.Contains(e.label(), `\`) {
				t.Fatalf("%q became %q", e.raw, e.label())
			}
			for _, part := range e.parts {
				if part == "" || part == "." || part == ".." || strings.Contains(part, "/") {
					t.Fatalf("%q became %q", e.raw, e.parts)
				}
			}
		}
	})
}
