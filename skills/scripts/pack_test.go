//go:build unix

package scripts

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unpack reads the archive of a call: "name mode content" of each entry, in the archive's order.
func unpack(t testing.TB, a object) (entries []string, raw []byte) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(a.str("left"), a.str("outputs.archive")))
	must(t, err)
	if float64(len(raw)) != a.num("outputs.size") {
		t.Fatalf("archive: %d bytes of %v", len(raw), a["outputs"])
	}
	z, err := zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
	must(t, err)
	for _, f := range z.File {
		r, err := f.Open()
		must(t, err)
		content, err := io.ReadAll(r) // checks the CRC
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		entries = append(entries, strings.TrimSpace(fmt.Sprintf("%s %v %s", f.Name, f.Mode(), content)))
	}
	return entries, raw
}

// TestPack packs folders and files with every option.
func TestPack(t *testing.T) {
	t.Parallel()
	r := inRow(t, `
mkdir -p src/build/x src/empty 'ünï'; printf a > src/a.py; printf b > src/b.pyc; printf '#!' > src/run; chmod 755 src/run; printf c > src/build/x/c
printf ü > 'ünï/ÿ ÿ.txt'; printf secret > src/.hidden; : > src/nothing; chmod 600 src/a.py
`)
	const a, b, c, hidden, nothing, run = "a.py -rw-r--r-- a", "b.pyc -rw-r--r-- b", "build/x/c -rw-r--r-- c", ".hidden -rw-r--r-- secret",
		"nothing -rw-r--r--", "run -rwxr-xr-x #!"
	const build, x, empty = "build/ drwxr-xr-x", "build/x/ drwxr-xr-x", "empty/ drwxr-xr-x"
	for name, c := range map[string]struct {
		inputs  object
		archive string
		files   int
		want    []string
	}{
		"folder":           {object{"path": "src"}, "archive.zip", 6, []string{hidden, a, b, build, x, c, empty, nothing, run}},
		"named":            {object{"path": "./src/build/", "name": "ein Päckchen.zip"}, "ein Päckchen.zip", 1, []string{"x/ drwxr-xr-x", "x/c -rw-r--r-- c"}},
		"file":             {object{"path": "src/a.py"}, "archive.zip", 1, []string{a}},
		"unicode":          {object{"path": "ünï"}, "archive.zip", 1, []string{"ÿ ÿ.txt -rw-r--r-- ü"}},
		"exclude names":    {object{"path": "src", "exclude": []string{"*.pyc", "build", ".*"}}, "archive.zip", 3, []string{a, empty, nothing, run}},
		"exclude a path":   {object{"path": "src", "exclude": []string{"build/x", "n*"}}, "archive.zip", 4, []string{hidden, a, b, build, empty, run}},
		"exclude all":      {object{"path": "src", "exclude": []string{"*"}}, "archive.zip", 0, nil},
		"exclude nothing":  {object{"path": "src/build", "exclude": []string{}}, "archive.zip", 1, []string{"x/ drwxr-xr-x", "x/c -rw-r--r-- c"}},
		"of nothing":       {object{"path": "src/empty"}, "archive.zip", 0, nil},
		"whole work":       {object{"exclude": []string{"src"}}, "archive.zip", 1, []string{"ünï/ drwxr-xr-x", "ünï/ÿ ÿ.txt -rw-r--r-- ü"}},
		"like an option":   {object{"path": "src/build", "name": "--x.zip"}, "", 0, nil},
		"exclude no match": {object{"path": "src/a.py", "exclude": []string{"[", "--help"}}, "archive.zip", 1, []string{a}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.archive == "" {
				refusesInputs(t, "archive.pack", c.inputs, "inputs.name")
				return
			}
			got := r.with(t).use("archive.pack", c.inputs)
			if got.str("exec.status") != "succeeded" || got.str("outputs.archive") != c.archive || got.num("outputs.files") != float64(c.files) ||
				got.num("outputs.skipped_total") != 0 {
				t.Fatalf("%v", got)
			}
			entries, _ := unpack(t, got)
			slices.Sort(entries)
			want := slices.Sorted(slices.Values(c.want))
			same(t, "entries", entries, want)
		})
	}
}

// TestPackIsReproducible: the same files, made in another order at another time, give the same
// bytes.
func TestPackIsReproducible(t *testing.T) {
	t.Parallel()
	one := inRow(t, `mkdir -p a/b; seq 1000 > a/b/n; echo x > z; echo y > a.txt; touch -d 2001-01-01 z`)
	two := inRow(t, `umask 077; echo y > a.txt; echo x > z; mkdir a; mkdir a/b; seq 1000 > a/b/n; touch -d 1970-01-01 a/b/n`)
	entries, first := unpack(t, one.use("archive.pack", object{}))
	_, second := unpack(t, two.use("archive.pack", object{}))
	if !bytes.Equal(first, second) || len(entries) != 5 {
		t.Errorf("%d and %d bytes, %v", len(first), len(second), entries)
	}
}

// TestPackHostileTree lists what it leaves out, and opens nothing of it.
func TestPackHostileTree(t *testing.T) {
	t.Parallel()
	r := inRow(t, `
echo ok > ok; mkfifo fifo; ln -s /etc/passwd link; ln -s .. up; ln -s nowhere broken; echo x > 'back\slash'; echo x > '..\..\evil'; echo x > $'bad\xff'
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'; echo x > $'new\nline'
`)
	before := r.snapshot()
	got := r.use("archive.pack", object{})
	entries, raw := unpack(t, got)
	same(t, "entries", entries, []string{"new\nline -rw-r--r-- x", "ok -rw-r--r-- ok"})
	reasons := map[string]string{}
	for _, skipped := range got.list("outputs.skipped") {
		reasons[skipped.str("path")] = skipped.str("reason")
	}
	const link, none, slash = "a link, which is not followed", "neither a file nor a folder",
		"its name has a backslash, which some programs take for a folder's slash"
	same(t, "skipped", reasons, map[string]string{
		"fifo": none, "socket": none, "link": link, "up": link, "broken": link, `back\slash`: slash, `..\..\evil`: slash, "bad\ufffd": "its name is not UTF-8",
	})
	if bytes.Contains(raw, []byte("root:")) || got.num("outputs.skipped_total") != 8 {
		t.Errorf("%v", got)
	}
	same(t, "work/", r.snapshot(), before)
}

// TestPackALot checks that skipped files are counted, and that a too large archive is removed.
func TestPackALot(t *testing.T) {
	t.Parallel()
	r := inRow(t, `for i in $(seq 1 1200); do ln -s x l$i; done; echo x > x`)
	out := r.uses("archive.pack", object{})
	if len(out.list("skipped")) != 1000 || out.num("skipped_total") != 1200 || out.num("files") != 1 {
		t.Errorf("%d of %v skipped, %v files", len(out.list("skipped")), out["skipped_total"], out["files"])
	}
	var large *row
	if os.Getenv("SECBOX_SOAK") == "1" {
		large = inRow(t, `head -c 265000000 /dev/urandom > large`)
	} else {
		large = inRow(t, `head -c 2000000 /dev/urandom > large`, "BYTES_AT_MOST = 250 << 20", "BYTES_AT_MOST = 1 << 20")
	}
	a := large.useFails("archive.pack", object{}, 1, "exclude")
	if len(a.list("exec.artifacts")) != 0 || a["outputs"] != nil {
		t.Errorf("left: %v", a)
	}
	// A sparse file costs next to nothing, and there are no zeros in its archive either.
	if out := inRow(t, `truncate -s 20M sparse`).uses("archive.pack", object{}); out.num("files") != 1 || out.num("size") > 1<<20 {
		t.Errorf("%v", out)
	}
}

// TestPackRefuses names that could be anything else than a file's among the artifacts.
func TestPackRefuses(t *testing.T) {
	t.Parallel()
	for _, name := range []any{
		"", ".zip", "a.tar", "a.zip/b", "../a.zip", "/a.zip", "a/b.zip", `a\b.zip`, "a\x00.zip", "a\n.zip", "-a.zip", "c:a.zip",
		strings.Repeat("x", 60) + ".zip", 7, nil,
	} {
		refusesInputs(t, "archive.pack", object{"name": name}, "inputs.name")
	}
	refusesInputs(t, "archive.pack", object{"exclude": "x"}, "inputs.exclude")
	refusesInputs(t, "archive.pack", object{"exclude": []string{"x", ""}}, "inputs.exclude[1]")
	refusesInputs(t, "archive.pack", object{"exclude": slices.Repeat([]string{"x"}, 101)}, "inputs.exclude")
	r := inRow(t, "mkfifo fifo")
	a := r.use("archive.pack", object{"path": "fifo"})
	same(t, "a FIFO", a.at("outputs.skipped"), []object{{"path": "fifo", "reason": "not readable: neither a file nor a folder"}})
	a = inRow(t, "").use("archive.pack", object{})
	if entries, _ := unpack(t, a); len(entries) != 0 || a.str("exec.status") != "succeeded" {
		t.Errorf("an empty work/: %v", a)
	}
}
