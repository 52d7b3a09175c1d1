//go:build unix

package workspace_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"secbox/fault"
	"secbox/workspace"
)

const plenty = int64(50 << 20)

func digest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func file(path, content string) workspace.ManifestEntry {
	return workspace.ManifestEntry{Path: path, Size: int64(len(content)), SHA256: digest(content), Kind: workspace.KindFile}
}

func wantFiles(t *testing.T, m workspace.Manifest, want ...workspace.ManifestEntry) {
	t.Helper()
	if len(m.Files) != len(want) || len(want) > 0 && !reflect.DeepEqual(m.Files, want) {
		t.Errorf("got  %+v\nwant %+v", m.Files, want)
	}
	var total int64
	for _, f := range m.Files {
		total += f.Size
	}
	if m.TotalBytes != total {
		t.Errorf("total_bytes is %d, the files have %d", m.TotalBytes, total)
	}
}

func TestCollectNothing(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	m := f.collect(t, plenty)
	wantFiles(t, m)
	data, err := m.JSON()
	must(t, err)
	var got map[string]any
	must(t, json.Unmarshal(data, &got))
	want := map[string]any{"exec_id": execID, "files": []any{}, "total_bytes": 0.0, "truncated": false, "omitted": []any{}, "omitted_count": 0.0}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestCollectListsInOrderWithDigests(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for _, name := range []string{"b/z", "b/a/x", "a.txt", "c", "b.txt", "sub/stdout.txt", "empty", "name\nwith newline", "日本語"} {
		write(t, filepath.Join(f.left, name), "content of "+name)
	}
	write(t, filepath.Join(f.left, "empty"), "")
	must(t, os.Mkdir(filepath.Join(f.left, "empty dir"), 0o755))
	m := f.collect(t, plenty)
	var want []workspace.ManifestEntry
	for _, name := range []string{"a.txt", "b/a/x", "b/z", "b.txt", "c", "empty", "name\nwith newline", "sub/stdout.txt", "日本語"} {
		content := "content of " + name
		if name == "empty" {
			content = ""
		}
		want = append(want, file(name, content))
	}
	wantFiles(t, m, want...)
	if m.Truncated || m.OmittedCount != 0 || len(m.Omitted) != 0 {
		t.Errorf("got %+v", m)
	}
	f.publish(t, m)
	back := f.artifacts(t).Manifest
	if !reflect.DeepEqual(back.Files, m.Files) {
		t.Errorf("read back %+v", back)
	}
}

// TestLinksAndSpecialFiles: opening the FIFO would block this test, following a link out of the
// project would show the secret. A link to a file that the job could read in its directories
// becomes a copy.
func TestLinksAndSpecialFiles(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for name, target := range map[string]string{
		"passwd": "/etc/passwd", "up": "../../../../outside/secret", "loop": "loop", "a": "b", "b": "a", "dir": f.outside, "root": "/", "self": ".",
		"fifolink": "fifo",
		"inside":   "real", "inwork": "../work/w", "absolute": "/workspace/work/w", "twice": "/workspace/work/d/hop", "input": "/workspace/inputs/i",
		"onhost": "../../work/w", "private": "/workspace/work/private", "behind": "/workspace/work/locked/w", "throughdir": "/workspace/work/link/w",
		"out":     "/workspace/work/out",
		"workdir": "/workspace/work/d", "others": "/workspace/artifacts/../../artifacts/other/secret", "dangling": "/workspace/work/none",
	} {
		must(t, os.Symlink(target, filepath.Join(f.left, name)))
	}
	write(t, filepath.Join(f.left, "real"), "real")
	work := filepath.Join(f.dir, "work")
	for _, name := range []string{"w", "private", "locked/w", "d/w"} {
		write(t, filepath.Join(work, name), "w")
	}
	write(t, filepath.Join(f.dir, "inputs", "i"), "w")
	for name, target := range map[string]string{"d/hop": "../w", "link": "d", "out": f.outside + "/secret"} {
		must(t, os.Symlink(target, filepath.Join(work, name)))
	}
	must(t, os.Chmod(filepath.Join(work, "private"), 0o600)) // of core-api's user
	must(t, os.Chmod(filepath.Join(work, "locked"), 0o700))
	must(t, unix.Mkfifo(filepath.Join(f.left, "fifo"), 0o644))
	socket, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	must(t, err)
	defer socket.Close()
	must(t, os.Rename(socket.Addr().String(), filepath.Join(f.left, "socket")))

	m := f.collect(t, plenty)
	f.publish(t, m)
	kinds := map[string]string{}
	for _, entry := range m.Files {
		kinds[entry.Path] = entry.Kind
		if entry.Kind != workspace.KindFile && (entry.SHA256 != "" || entry.Size != 0) {
			t.Errorf("%+v was looked into", entry)
		}
	}
	want := map[string]string{"fifo": "fifo", "socket": "socket"}
	for _, name := range []string{"real", "inside", "inwork", "absolute", "twice", "input", "throughdir"} {
		want[name] = workspace.KindFile
	}
	for _, name := range []string{
		"passwd", "up", "loop", "a", "b", "dir", "root", "self", "fifolink", "onhost", "private", "behind", "out", "workdir",
		"others", "dangling",
	} {
		want[name] = workspace.KindSymlink
	}
	if os.Geteuid() != 0 { // the job's user is core-api's, and may read them
		want["private"], want["behind"] = workspace.KindFile, workspace.KindFile
	}
	if !reflect.DeepEqual(kinds, want) {
		t.Errorf("got %v", kinds)
	}
	for name, kind := range kinds {
		_, err := f.content(t, name)
		if kind == workspace.KindFile {
			must(t, err)
			continue
		}
		wantCode(t, err, fault.UnknownArtifact)
	}
}

// TestLinksAsTheJobSawThem: a link leads where it led in the container, whatever the walk has
// renamed or taken before.
func TestLinksAsTheJobSawThem(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	deep := "/workspace/work" + strings.Repeat("/d", 200)
	must(t, os.MkdirAll(f.dir+strings.TrimPrefix(deep, "/workspace"), 0o755))
	write(t, f.dir+strings.TrimPrefix(deep, "/workspace")+"/w", "deep")
	must(t, os.MkdirAll(f.dir+"/work/sub", 0o755))
	write(t, f.dir+"/work/x", "right")
	for name, content := range map[string]string{"x": "wrong", "f": "f", "stdout.txt": "the job's", "d\xe9": "latin", "p/s": "private"} {
		write(t, f.left+"/"+name, content)
	}
	for _, name := range []string{"f", "p", "p/s"} {
		must(t, os.Chmod(f.left+"/"+name, 0o700))
		if os.Geteuid() == 0 {
			must(t, os.Lchown(f.left+"/"+name, owner(), owner()))
		}
	}
	want := map[string]string{}
	for name, link := range map[string][2]string{
		"back": {"dir/../x", "right"}, "dir": {"/workspace/work/sub", ""}, "nodir": {"none/../f", ""}, "slash": {"f/", ""}, "filedir": {"f/../f", ""},
		"deep": {deep + "/w", ""},
		"a":    {"stdout.txt", "the job's"}, "z": {"stdout.txt", "the job's"}, "b": {"d\xe9", "latin"}, "zz": {"d\xe9", "latin"},
		"c": {"p/s", "private"}, "t": {"p/s", "private"}, "e": {"f", "f"}, "g": {"./f", "f"},
	} {
		must(t, os.Symlink(link[0], f.left+"/"+name))
		want[name] = link[1]
	}
	m := f.collect(t, plenty)
	f.publish(t, m)
	for _, entry := range m.Files {
		content, isLink := want[entry.Path]
		if !isLink {
			continue
		}
		delete(want, entry.Path)
		got, err := f.content(t, entry.Path)
		if (entry.Kind == workspace.KindFile) != (content != "") || got != content || (err == nil) != (content != "") {
			t.Errorf("%s: %+v, %q, %v; want %q", entry.Path, entry, got, err, content)
		}
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
}

func TestHardLinksCountEach(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	write(t, filepath.Join(f.left, "a"), "12345")
	must(t, os.Link(filepath.Join(f.left, "a"), filepath.Join(f.left, "b")))
	wantFiles(t, f.collect(t, plenty), file("a", "12345"), file("b", "12345"))
}

// TestLinksWithoutAccess: a link shows nothing of a directory that the container did not have.
func TestLinksWithoutAccess(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	write(t, f.dir+"/work/w", "w")
	must(t, os.Symlink("/workspace/work/w", f.left+"/link"))
	m, err := f.project.Collect(deadline(t), execID, plenty, workspace.Access{Artifacts: workspace.ReadWrite})
	must(t, err)
	wantFiles(t, m, workspace.ManifestEntry{Path: "link", Kind: workspace.KindSymlink})
}

// TestCopiesOfLinksCount: a copy counts like any file, and is no link to the original.
func TestCopiesOfLinksCount(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	write(t, f.dir+"/work/w", "12345")
	for _, name := range []string{"a", "b", "c"} {
		must(t, os.Symlink("/workspace/work/w", filepath.Join(f.left, name)))
	}
	m := f.collect(t, 12)
	copied := func(path string) workspace.ManifestEntry {
		entry := file(path, "12345")
		entry.Link = "/workspace/work/w"
		return entry
	}
	wantFiles(t, m, copied("a"), copied("b"))
	if !m.Truncated || len(m.Omitted) != 1 || m.Omitted[0].Path != "c" || m.Omitted[0].Reason != workspace.OmitOverLimit {
		t.Errorf("omitted: %+v", m.Omitted)
	}
	write(t, f.dir+"/work/w", "changed")
	f.publish(t, m)
	if got, err := f.content(t, "a"); err != nil || got != "12345" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestNamesOfOurFiles: a job's entries with the names of core-api's own files, in any spelling, are
// moved, and served under their names.
func TestNamesOfOurFiles(t *testing.T) {
	t.Parallel()
	for kind, plant := range map[string]func(t *testing.T, f *fixture, path string){
		"file":           func(t *testing.T, f *fixture, path string) { write(t, path, "planted") },
		"link to secret": func(t *testing.T, f *fixture, path string) { must(t, os.Symlink(f.outside+"/secret", path)) },
		"link to dir":    func(t *testing.T, f *fixture, path string) { must(t, os.Symlink(f.outside, path)) },
		"dangling link":  func(t *testing.T, f *fixture, path string) { must(t, os.Symlink(f.outside+"/new", path)) },
		"fifo":           func(t *testing.T, f *fixture, path string) { must(t, unix.Mkfifo(path, 0o644)) },
		"tree":           func(t *testing.T, f *fixture, path string) { write(t, path+"/a/b/c", "planted") },
		"locked tree": func(t *testing.T, f *fixture, path string) {
			write(t, path+"/a/b/c", "planted")
			must(t, os.Chmod(path+"/a", 0))
			must(t, os.Chmod(path, 0))
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			planted := []string{"STDOUT.TXT", "Meta.Json", "manifest.json", "meta.json", "stderr.txt", "stdout.txt"}
			for _, name := range planted {
				plant(t, f, filepath.Join(f.left, name))
			}
			write(t, f.left+"/.job-stdout.txt", "the job's own")
			m := f.collect(t, plenty)
			f.publish(t, m)
			listed := map[string]workspace.ManifestEntry{}
			for _, entry := range m.Files {
				name, _, _ := strings.Cut(entry.Path, "/")
				listed[name] = entry
			}
			for _, name := range planted {
				entry := listed[name]
				if entry.Stored == "" || !strings.HasPrefix(entry.Stored, ".job-") || entry.Stored == ".job-stdout.txt" {
					t.Errorf("%s: %+v", name, entry)
				}
				if name != workspace.ManifestName {
					gone(t, filepath.Join(f.left, name))
				}
				content, err := f.content(t, entry.Path)
				if isFile := kind == "file" || strings.HasSuffix(kind, "tree"); isFile && (err != nil || content != "planted") ||
					!isFile && !fault.Is(err, fault.UnknownArtifact) {
					t.Errorf("%s: %q, %v", name, content, err)
				}
			}
			if content, err := f.content(t, ".job-stdout.txt"); err != nil || content != "the job's own" {
				t.Errorf("%q, %v", content, err)
			}
			if len(listed) != len(planted)+1 || m.OmittedCount != 0 || m.Truncated {
				t.Errorf("%+v", m)
			}
		})
	}
}

// TestOversizedFilesAreOmitted: by name, first fit; a sparse file of 10 GiB is never read.
func TestOversizedFilesAreOmitted(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	write(t, f.left+"/a", "1234")
	sparse(t, f.left+"/b-sparse", 10<<30)
	write(t, f.left+"/c", "12345678")
	write(t, f.left+"/d/e", "1234")
	write(t, f.left+"/f", "1234")
	write(t, f.left+"/g", "12")
	m := f.collect(t, 10)
	wantFiles(t, m, file("a", "1234"), file("d/e", "1234"), file("g", "12"))
	want := []workspace.OmittedEntry{
		{Path: "b-sparse", Size: 10 << 30, Reason: "over_limit"},
		{Path: "c", Size: 8, Reason: "over_limit"},
		{Path: "f", Size: 4, Reason: "over_limit"},
	}
	if !reflect.DeepEqual(m.Omitted, want) || m.OmittedCount != 3 || !m.Truncated {
		t.Errorf("got %+v", m)
	}
	for _, o := range want {
		gone(t, filepath.Join(f.left, o.Path))
	}
}

func TestExactlyTheLimitFits(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	write(t, f.left+"/a", "12345")
	write(t, f.left+"/b", "12345")
	if m := f.collect(t, 10); m.Truncated || len(m.Files) != 2 {
		t.Errorf("got %+v", m)
	}
}

func TestNamesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	write(t, f.left+"/bad\xff\n", "x")
	write(t, f.left+"/dir\xfe/inner", "x")
	write(t, f.left+"/good", "x")
	write(t, f.left+"/taken%FF", "x")
	write(t, f.left+"/taken\xff", "x")
	write(t, f.left+"/"+strings.Repeat("\xff", 100), "x")
	m := f.collect(t, plenty)
	wantFiles(t, m, file("bad%FF\n", "x"), file("dir%FE/inner", "x"), file("good", "x"), file("taken%FF", "x"))
	want := []workspace.OmittedEntry{
		{Path: `taken\xff`, Size: 1, Reason: "name_not_utf8"},
		{Path: strings.Repeat(`\xff`, 100), Size: 1, Reason: "name_not_utf8"},
	}
	if !reflect.DeepEqual(m.Omitted, want) || m.OmittedCount != 2 || m.Truncated {
		t.Errorf("got %+v", m.Omitted)
	}
	f.publish(t, m)
	if got, err := f.content(t, "dir%FE/inner"); err != nil || got != "x" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestModeZeroEntriesAreCollected runs as an ordinary user too, see TestAsAnOrdinaryUser.
func TestModeZeroEntriesAreCollected(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	write(t, f.left+"/file", "x")
	write(t, f.left+"/dir/inner", "y")
	write(t, f.left+"/dir/sub/deep", "z")
	write(t, f.left+"/setuid", "s")
	must(t, os.Chmod(f.left+"/setuid", 0o755|os.ModeSetuid))
	for _, path := range []string{"file", "dir/inner", "dir/sub/deep", "dir/sub", "dir"} {
		must(t, os.Chmod(filepath.Join(f.left, path), 0))
	}
	must(t, os.Chmod(f.left, 0))
	m := f.collect(t, plenty)
	want := []workspace.ManifestEntry{file("dir/inner", "y"), file("dir/sub/deep", "z"), file("file", "x"), file("setuid", "s")}
	wantFiles(t, m, want...)
	f.publish(t, m)
	for _, entry := range want {
		_, err := f.content(t, entry.Path)
		must(t, err)
	}
	fi, err := os.Lstat(f.left + "/setuid")
	must(t, err)
	if fi.Mode()&os.ModeSetuid != 0 {
		t.Error("a set-uid file stayed one")
	}
	fi, err = os.Lstat(f.left)
	must(t, err)
	if fi.Mode().Perm() != 0o755 || !ownedBy(fi, os.Geteuid()) {
		t.Errorf("the artifacts directory has the mode %v and is not ours alone", fi.Mode())
	}
}

func TestLockedTreesAreRemoved(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for i := range 5 {
		write(t, fmt.Sprintf("%s/bad\xff/d%d/e/f/g", f.left, i), "x")
		must(t, os.Chmod(fmt.Sprintf("%s/bad\xff/d%d/e/f", f.left, i), 0))
		must(t, os.Chmod(fmt.Sprintf("%s/bad\xff/d%d/e", f.left, i), 0o400))
		must(t, os.Chmod(fmt.Sprintf("%s/bad\xff/d%d", f.left, i), 0o500))
	}
	must(t, os.Chmod(f.left+"/bad\xff", 0o100))
	write(t, f.left+"/bad%FF", "takes the name")
	if m := f.collect(t, plenty); m.OmittedCount != 21 {
		t.Errorf("got %+v", m)
	}
	gone(t, f.left+"/bad\xff")
}

// TestHundredThousandFiles: the first 10,000 names stay, the others are removed and counted.
func TestHundredThousandFiles(t *testing.T) {
	t.Parallel()
	f := setUpIn(t, inMemory(t))
	const n = 100_000
	fill(t, f.left, n)
	m := f.collect(t, plenty)
	if len(m.Files) != 10_000 || m.Files[0].Path != "f000000" || m.Files[9_999].Path != "f009999" {
		t.Errorf("%d files are listed", len(m.Files))
	}
	if m.OmittedCount != n-10_000 || len(m.Omitted) != 1_000 || m.Omitted[0].Reason != workspace.OmitTooMany || !m.Truncated {
		t.Errorf("%d are omitted in %d lines", m.OmittedCount, len(m.Omitted))
	}
	if len(m.Limits) != 1 || m.Limits[0] != workspace.OmitTooMany {
		t.Errorf("the limits that were reached: %q", m.Limits)
	}
	if left := count(t, f.left); left != 10_000 {
		t.Errorf("%d entries stayed", left)
	}
}

// TestManyDirectoriesCountToo: directories are not listed, but they are kept, so they use up the
// room.
func TestManyDirectoriesCountToo(t *testing.T) {
	t.Parallel()
	f := setUpIn(t, inMemory(t))
	for i := range 30 {
		dir := fmt.Sprintf("%s/d%02d", f.left, i)
		must(t, os.Mkdir(dir, 0o755))
		for j := range 500 {
			must(t, os.Mkdir(fmt.Sprintf("%s/%03d", dir, j), 0o755))
		}
	}
	m := f.collect(t, plenty)
	if left := count(t, f.left); left != 10_000 {
		t.Errorf("%d entries stayed", left)
	}
	if m.OmittedCount != 30+15_000-10_000 || !m.Truncated || len(m.Files) != 0 {
		t.Errorf("%d are omitted", m.OmittedCount)
	}
}

// TestThousandsOfNestedDirectories: the path is longer than the system takes, and the directories
// are more than the usual limit of open files.
func TestThousandsOfNestedDirectories(t *testing.T) {
	t.Parallel()
	f := setUpIn(t, inMemory(t))
	const n = 5_000
	nest(t, f.left, n)
	write(t, f.left+"/z", "z")
	m := f.collect(t, plenty)
	wantFiles(t, m, file("z", "z"))
	if len(m.Omitted) != 1 || m.Omitted[0].Reason != workspace.OmitTooDeep || m.Omitted[0].Path != strings.Repeat("d/", 64)+"d" || !m.Truncated {
		t.Errorf("got %+v", m.Omitted)
	}
	if m.OmittedCount != n-64+1 {
		t.Errorf("%d are omitted", m.OmittedCount)
	}
	if left := count(t, f.left); left != 64+1 {
		t.Errorf("%d entries stayed", left)
	}
}

func TestMaximumDepth(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	nest(t, f.left, 64)
	m := f.collect(t, plenty)
	wantFiles(t, m, file(strings.Repeat("d/", 64)+"file", ""))
	f.publish(t, m)
	_, err := f.content(t, m.Files[0].Path)
	must(t, err)
}

// TestPathRoomIsBounded: the manifest stays readable and is read back whole.
func TestPathRoomIsBounded(t *testing.T) {
	t.Parallel()
	f := setUpIn(t, inMemory(t))
	long := f.left
	for range 12 {
		long += "/" + strings.Repeat("\x01", 250)
	}
	must(t, os.MkdirAll(long, 0o755))
	for i := range 2_000 {
		write(t, fmt.Sprintf("%s/%s%04d", long, strings.Repeat("\x01", 200), i), "")
	}
	m := f.collect(t, plenty)
	total := 0
	for _, entry := range m.Files {
		total += len(entry.Path)
	}
	if total > 4<<20 || len(m.Files) < 1_000 || m.OmittedCount != int64(2_000-len(m.Files)) || !m.Truncated {
		t.Errorf("%d files with %d bytes of paths, %d omitted", len(m.Files), total, m.OmittedCount)
	}
	f.publish(t, m)
	back := f.artifacts(t).Manifest
	m.Limits = nil // are not in the file
	if !reflect.DeepEqual(back, m) {
		t.Error("the manifest read back differs")
	}
}

func TestCollectEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	write(t, f.left+"/a", "a")
	write(t, f.left+"/stdout.txt/x", "x")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	m, err := f.project.Collect(ctx, execID, plenty, workspace.FullAccess)
	if err == nil || !strings.Contains(err.Error(), "enough") || m.ExecID != execID {
		t.Errorf("got %+v, %v", m, err)
	}
}
