//go:build unix

package e2e

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// passwd is the beginning of /etc/passwd of host and containers; no answer may contain it.
const passwd = "root:x:0:0"

// left is the expected manifest of an exec: files by path to kind, omitted ones by path to reason.
type left struct {
	files     map[string]string
	omitted   map[string]string
	truncated bool
}

// checkLeft compares manifest, list, zip and downloads of an exec with the expected files.
func (s *testServer) checkLeft(result object, want left) {
	s.t.Helper()
	id := result.str("exec_id")
	manifest := s.manifest(result)
	files, sums := map[string]string{}, map[string]string{}
	for _, f := range manifest.list("files") {
		files[f.str("path")], sums[f.str("path")] = f.str("kind"), f.str("sha256")
	}
	omitted := map[string]string{}
	for _, f := range manifest.list("omitted") {
		omitted[f.str("path")] = f.str("reason")
	}
	if !maps.Equal(files, want.files) {
		s.t.Errorf("files %q, want %q", files, want.files)
	}
	if !maps.Equal(omitted, want.omitted) {
		s.t.Errorf("omitted %q, want %q", omitted, want.omitted)
	}
	if manifest.at("truncated") != want.truncated {
		s.t.Errorf("truncated %v", manifest.at("truncated"))
	}
	listed := map[string]string{}
	for _, a := range s.get("/sandbox/execs/" + id + "/artifacts").list("items") {
		listed[a.str("path")] = a.str("sha256")
	}
	inAnswer := map[string]string{}
	for _, a := range result.list("artifacts") {
		inAnswer[a.str("path")] = a.str("sha256")
	}
	zipped := s.zipSums(id)
	for path, kind := range files {
		a := s.artifact(id, url.PathEscape(path))
		if kind != "file" {
			delete(sums, path)
			s.noArtifact(path, a)
			continue
		}
		sum := sha256.Sum256(a.Body)
		if a.Code != http.StatusOK || hex.EncodeToString(sum[:]) != sums[path] || !strings.HasPrefix(a.Header.Get("Content-Disposition"), "attachment") {
			s.t.Errorf("download of %q: %d, %d bytes, %v", path, a.Code, len(a.Body), a.Header)
		}
	}
	for path := range omitted {
		s.noArtifact(path, s.artifact(id, url.PathEscape(path)))
	}
	if !maps.Equal(listed, sums) || !maps.Equal(inAnswer, sums) {
		s.t.Errorf("the list has %q, the answer %q, the manifest %q", listed, inAnswer, sums)
	}
	if !slices.Equal(slices.Sorted(maps.Values(zipped)), slices.Sorted(maps.Values(sums))) {
		s.t.Errorf("the zip has %q, the manifest %q", zipped, sums)
	}
	s.checkPublished(result)
}

// noArtifact checks that an answer is 404 unknown_artifact.
func (s *testServer) noArtifact(path string, a answer) {
	s.t.Helper()
	if a.Code != http.StatusNotFound || a.json(s.t).str("code") != "unknown_artifact" || bytes.Contains(a.Body, []byte(passwd)) {
		s.t.Errorf("download of %q: %d %.200q", path, a.Code, a.Body)
	}
}

// zipSums are the digests of the members of the archive, by name. Names that lead out of where it
// is unpacked are an error.
func (s *testServer) zipSums(id string) map[string]string {
	s.t.Helper()
	a := s.send(http.MethodGet, "/sandbox/execs/"+id+"/artifacts?format=zip", nil)
	archive, err := zip.NewReader(bytes.NewReader(a.Body), int64(len(a.Body)))
	if err != nil {
		s.t.Fatalf("zip: %d %v", a.Code, err)
	}
	sums := map[string]string{}
	for _, member := range archive.File {
		f, err := member.Open()
		if err != nil {
			s.t.Fatal(err)
		}
		content, err := io.ReadAll(f)
		if err != nil || !filepath.IsLocal(member.Name) || strings.ContainsAny(member.Name, "\\:\n") || !member.Mode().IsRegular() {
			s.t.Errorf("zip member %q: %v", member.Name, err)
		}
		sum := sha256.Sum256(content)
		sums[member.Name] = hex.EncodeToString(sum[:])
	}
	return sums
}

// checkPublished checks the four files that the server writes, whatever the job's files are called.
func (s *testServer) checkPublished(result object) {
	s.t.Helper()
	dir := filepath.Join(s.dir, "workspace", result.str("artifacts_dir"))
	for _, name := range []string{"stdout.txt", "stderr.txt", "manifest.json", "meta.json"} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o644 || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() ||
			info.Sys().(*syscall.Stat_t).Nlink != 1 {
			s.t.Errorf("%s: %v %+v", name, err, info)
		}
	}
	id := result.str("exec_id")
	content, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	sum := sha256.Sum256(content)
	if got := s.get("/sandbox/execs/" + id).str("manifest_digest"); err != nil || got != "sha256:"+hex.EncodeToString(sum[:]) {
		s.t.Errorf("manifest_digest %s, %v", got, err)
	}
	for _, stream := range []string{"stdout", "stderr"} {
		onDisk, err := os.ReadFile(filepath.Join(dir, stream+".txt"))
		if served := s.send(http.MethodGet, "/sandbox/execs/"+id+"/"+stream, nil); err != nil || served.Code != http.StatusOK ||
			!bytes.Equal(served.Body, onDisk) {
			s.t.Errorf("%s: served %d %.100q, on disk %.100q, %v", stream, served.Code, served.Body, onDisk, err)
		}
	}
}

// python wraps a program so that bash runs it in artifacts/.
func python(program string) string {
	return "cd /workspace/artifacts && python3 - <<'PROGRAM'\nimport os, socket, stat\n" + program + "\nPROGRAM"
}

// ourNames is a script that runs the given one for each name of a file that the server writes, and
// STDERR.TXT.
func ourNames(script string) string {
	return "cd /workspace/artifacts; echo real; echo real error >&2; for n in stdout.txt STDERR.TXT stderr.txt manifest.json meta.json; do " + script + "; done"
}

// eachOurName are the entries below each name of a file that the server writes, by path to kind. ""
// is the name itself.
func eachOurName(below map[string]string) map[string]string {
	out := map[string]string{}
	for _, name := range []string{"stdout.txt", "STDERR.TXT", "stderr.txt", "manifest.json", "meta.json"} {
		for path, kind := range below {
			out[name+path] = kind
		}
	}
	return out
}

// with returns the entries of both.
func with(entries, more map[string]string) map[string]string {
	maps.Copy(entries, more)
	return entries
}

// TestHostileArtifacts runs jobs that leave links, FIFOs, reserved names, huge files and
// unprintable names in artifacts/.
func TestHostileArtifacts(t *testing.T) {
	t.Parallel()
	onWaiting(t, hostileArtifacts)
}

func hostileArtifacts(t *testing.T, s *testServer) {
	long := strings.Repeat("n", 255)
	for _, c := range []struct {
		name   string
		script string
		policy object
		want   left
		stdout string
		check  func(*testing.T, *testServer, object)
		again  bool // the project's next exec must find it in order
	}{
		{
			name: "links, a loop, a FIFO, a socket, hard links",
			script: python(`
os.symlink("/etc/passwd", "passwd"); os.symlink("/etc", "etc"); os.symlink("loop2", "loop1"); os.symlink("loop1", "loop2"); os.symlink(".", "self")
os.symlink("../../../../../state", "state"); os.symlink("manifest.json", "to-ours"); os.symlink("file", "to-file")
os.mkfifo("fifo"); socket.socket(socket.AF_UNIX).bind("socket")
open("file", "w").write("content"); os.link("file", "hard"); os.mkdir("d"); os.link("file", "d/hard"); os.symlink("..", "d/up")`),
			want: left{files: map[string]string{
				"passwd": "symlink", "etc": "symlink", "loop1": "symlink", "loop2": "symlink", "self": "symlink", "state": "symlink", "to-ours": "symlink",
				"to-file": "file", "fifo": "fifo", "socket": "socket", "file": "file", "hard": "file", "d/hard": "file", "d/up": "symlink",
			}},
			check: func(_ *testing.T, s *testServer, result object) {
				for _, path := range []string{
					"etc/passwd", "self/file", "d/up/file", "state/secbox.db", "loop1/x", "fifo/x", "passwd/", "/file", "./file",
					"d/../file", "d",
				} {
					s.noArtifact(path, s.artifact(result.str("exec_id"), url.PathEscape(path)))
				}
			},
		},
		{
			name: "our names as files", stdout: "real\n",
			script: ourNames(`echo '{"exec_id": "x", "files": [{"path": "../../../../../../etc/passwd", "kind": "file"}]}' > $n`),
			want:   left{files: eachOurName(map[string]string{"": "file"})},
		},
		{
			name: "our names as links", stdout: "real\n",
			script: `echo victim > /workspace/work/victim; ` + ourNames(`ln -s /workspace/work/victim $n`) +
				`; ln -sf /etc/passwd manifest.json; ln -sf /nowhere meta.json`,
			want: left{files: with(eachOurName(map[string]string{"": "file"}), map[string]string{"manifest.json": "symlink", "meta.json": "symlink"})},
			check: func(t *testing.T, s *testServer, result object) {
				if victim, err := os.ReadFile(filepath.Join(s.project(result.str("project_id")), "work/victim")); string(victim) != "victim\n" {
					t.Errorf("written through a link: %q %v", victim, err)
				}
			},
		},
		{
			name: "our names as directories", stdout: "real\n",
			script: ourNames(`mkdir -p $n/a/b; ln -s /etc $n/etc; echo x > $n/stdout.txt; chmod 0 $n/a`),
			want:   left{files: eachOurName(map[string]string{"/etc": "symlink", "/stdout.txt": "file"})},
		},
		{
			name: "our names as FIFOs, and below a directory", stdout: "real\n",
			script: ourNames(`mkfifo $n`) + `; mkdir d; echo mine > d/stdout.txt`,
			want:   left{files: with(eachOurName(map[string]string{"": "fifo"}), map[string]string{"d/stdout.txt": "file"})},
		},
		{
			name:   "our names as hard links to one file, unwritable", // a file of ours must not be written into theirs
			script: ourNames(`ln -f /workspace/artifacts/theirs $n 2>/dev/null || { echo theirs > theirs; chmod 0 theirs; ln theirs $n; }`), stdout: "real\n",
			want: left{files: with(eachOurName(map[string]string{"": "file"}), map[string]string{"theirs": "file"})},
		},
		{
			name: "a sparse file of 10 GiB", script: "cd /workspace/artifacts; truncate -s 10G big; echo small > small",
			want: left{files: map[string]string{"small": "file"}, omitted: map[string]string{"big": "over_limit"}, truncated: true},
		},
		{
			name: "more than the limit", policy: object{"max_artifacts_bytes_total": 1000},
			script: "cd /workspace/artifacts; mkdir d; head -c 600 /dev/zero > a; head -c 600 /dev/zero > b; head -c 300 /dev/zero > c; head -c 101 " +
				"/dev/zero > d/e; head -c 100 /dev/zero > d/f",
			want: left{
				files:   map[string]string{"a": "file", "c": "file", "d/f": "file"},
				omitted: map[string]string{"b": "over_limit", "d/e": "over_limit"}, truncated: true,
			},
		},
		{
			name: "names that are hard to say",
			script: python(`
for i, name in enumerate([b"new\nline", b"tab\t", b"back\\slash", b" blank ", b"-rf", b"..dots", b"...", b"%2e%2e", b"q?uery#", b"CON", b"a:b", b"quote\"'", "\u202egnp.exe".encode(), "e\u0301".encode(), "\u00e9".encode(), b"n" * 255, b"\x7f\x1b[31m"]):
    open(name, "w").write(str(i))
open(b"broken\xff", "w").write("x"); os.mkdir(b"\xc3"); open(b"\xc3/inside", "w").write("x"); os.mkdir("d"); os.symlink("x", b"d/\xed\xa0\x80")`),
			want: left{
				files: map[string]string{
					"new\nline": "file", "tab\t": "file", `back\slash`: "file", " blank ": "file", "-rf": "file", "..dots": "file", "...": "file",
					"%2e%2e":  "file",
					"q?uery#": "file", "CON": "file", "a:b": "file", `quote"'`: "file", "\u202egnp.exe": "file", "e\u0301": "file", "\u00e9": "file",
					long:           "file",
					"\x7f\x1b[31m": "file", "broken%FF": "file", "%C3/inside": "file", "d/%ED%A0%80": "symlink",
				},
			},
		},
		{
			name: "entries without any rights", again: true,
			script: `cd /workspace/artifacts; echo x > f; mkdir -p d/e; echo y > d/e/g; echo z > d/s; chmod 06777 d/s; chmod 0 f d/e/g; chmod 0 d/e; chmod 0 d; chmod 0 .
				mkdir /workspace/work/none; echo w > /workspace/work/none/f; chmod 0 /workspace/work/none; chmod 0 /workspace/work`,
			want: left{files: map[string]string{"f": "file", "d/e/g": "file", "d/s": "file"}},
			check: func(t *testing.T, s *testServer, result object) {
				info, err := os.Stat(filepath.Join(s.dir, "workspace", result.str("artifacts_dir"), "d/s"))
				if err != nil || info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
					t.Errorf("%v %v", info.Mode(), err)
				}
			},
		},
		{
			name: "everything removed", again: true, script: "rm -rf /workspace/artifacts /workspace/work /workspace/inputs; ls -A /workspace; true",
			stdout: "artifacts\ninputs\nwork\n",
			want:   left{files: map[string]string{}},
		},
		{
			name: "directories only", script: "mkdir -p /workspace/artifacts/a/b/c", want: left{files: map[string]string{}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := s.with(t)
			request := shell(projectFor(c.name), c.script)
			if c.policy != nil {
				request["policy_overrides"] = c.policy
			}
			result := s.exec(request)
			if result.str("status") != "succeeded" || result.str("stdout") != c.stdout {
				t.Errorf("%v", result)
			}
			if c.want.omitted == nil {
				c.want.omitted = map[string]string{}
			}
			s.checkLeft(result, c.want)
			if c.check != nil {
				c.check(t, s, result)
			}
			if c.again {
				s.works(result.str("project_id"))
			}
		})
	}
}
