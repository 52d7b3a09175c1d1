//go:build unix

package pack_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"

	"secbox/workspace/pack"
	"secbox/workspace/tree"
)

// archived is the archive in a pack of these entries, with its beginning and end.
func archived(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	record := func(key, value string) {
		must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{key: value}}))
	}
	record("SECBOX.version", "1")
	for _, h := range entries {
		h.Format, h.Uid, h.Gid = tar.FormatPAX, os.Geteuid(), os.Getegid()
		must(t, w.WriteHeader(&h))
		_, err := io.CopyN(w, endlessX{}, h.Size)
		must(t, err)
	}
	record("SECBOX.entries", string(rune('0'+len(entries))))
	must(t, w.Close())
	return b.Bytes()
}

type endlessX struct{}

func (endlessX) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

var packTop = tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}

// hostilePacks hold entries that secbox never writes.
var hostilePacks = map[string][]tar.Header{
	"up":                    {packTop, {Typeflag: tar.TypeReg, Name: "../secret", Size: 1}},
	"up from below":         {packTop, {Typeflag: tar.TypeDir, Name: "a/"}, {Typeflag: tar.TypeReg, Name: "a/../../secret", Size: 1}},
	"absolute":              {packTop, {Typeflag: tar.TypeReg, Name: "/tmp/secret", Size: 1}},
	"through a link":        {packTop, {Typeflag: tar.TypeSymlink, Name: "l", Linkname: ".."}, {Typeflag: tar.TypeReg, Name: "l/secret", Size: 1}},
	"a directory of a link": {packTop, {Typeflag: tar.TypeSymlink, Name: "l", Linkname: ".."}, {Typeflag: tar.TypeDir, Name: "l/"}},
	"a hard link up":        {packTop, {Typeflag: tar.TypeLink, Name: "l", Linkname: "../secret"}},
	"a hard link to a link": {packTop, {Typeflag: tar.TypeSymlink, Name: "a", Linkname: "../secret"}, {Typeflag: tar.TypeLink, Name: "l", Linkname: "a"}},
	"twice":                 {packTop, {Typeflag: tar.TypeReg, Name: "a"}, {Typeflag: tar.TypeReg, Name: "a"}},
	"a device":              {packTop, {Typeflag: tar.TypeBlock, Name: "a"}},
	"a FIFO":                {packTop, {Typeflag: tar.TypeFifo, Name: "a"}},
	"no top":                {{Typeflag: tar.TypeReg, Name: "a"}},
	"no directory":          {packTop, {Typeflag: tar.TypeReg, Name: "a/b"}},
	"back to a directory": {
		packTop, {Typeflag: tar.TypeDir, Name: "a/"}, {Typeflag: tar.TypeDir, Name: "b/"}, {Typeflag: tar.TypeReg, Name: "a/x"},
	},
	"a piece beyond the end": {packTop, {Typeflag: tar.TypeReg, Name: "a", Size: 1, PAXRecords: map[string]string{
		"SECBOX.size": "5", "SECBOX.extents": "5+1",
	}}},
	"pieces on each other": {packTop, {Typeflag: tar.TypeReg, Name: "a", Size: 4, PAXRecords: map[string]string{
		"SECBOX.size": "5", "SECBOX.extents": "0+3,2+1",
	}}},
	"a size below nothing": {packTop, {Typeflag: tar.TypeReg, Name: "a", PAXRecords: map[string]string{
		"SECBOX.size": "-1", "SECBOX.extents": "none",
	}}},
}

// unpackIn unpacks an archive below a fresh directory, beside which nothing may change.
func unpackIn(t testing.TB, archive []byte) error {
	t.Helper()
	base := t.TempDir()
	write(t, filepath.Join(base, "secret"), "secret")
	must(t, os.Mkdir(filepath.Join(base, "in"), 0o755))
	parent, err := os.OpenRoot(filepath.Join(base, "in"))
	must(t, err)
	defer parent.Close()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	must(t, err)
	_, err = z.Write(archive)
	must(t, err)
	must(t, z.Close())
	err = pack.Unpack(&b, parent, "out")
	for dir, want := range map[string]int{base: 2, filepath.Join(base, "in"): 1} {
		if entries, e := os.ReadDir(dir); e != nil || len(entries) > want {
			t.Errorf("in %s are %v (%v)", dir, entries, e)
		}
	}
	if read(t, filepath.Join(base, "secret")) != "secret" {
		t.Error("a file outside was changed")
	}
	_, e := tree.RemoveTree(t.Context(), parent, "out") // some are too deep for others
	must(t, e)
	return err
}

func TestHostilePacks(t *testing.T) {
	t.Parallel()
	must(t, unpackIn(t, archived(t, packTop, tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 3})))
	for name, entries := range hostilePacks {
		if err := unpackIn(t, archived(t, entries...)); !errors.Is(err, pack.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(archived(f, packTop, tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 3}, tar.Header{Typeflag: tar.TypeLink, Name: "b", Linkname: "a"}))
	for _, entries := range hostilePacks {
		f.Add(archived(f, entries...))
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		_ = unpackIn(t, archive) // checks the directory beside
	})
}
