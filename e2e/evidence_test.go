package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestEvidenceThatWasAltered changes what an exec left, always without a change of size, and reads
// it back over every route.
func TestEvidenceThatWasAltered(t *testing.T) {
	t.Parallel()
	s := start(t, noPool)
	request := shell("demo", "mkdir -p d; cd ../artifacts; echo good > hi.txt; mkdir d; echo good > d/other; chmod -R 777 .; echo good; echo good >&2")
	result := s.exec(request, "Idempotency-Key", "k1")
	base := "/sandbox/execs/" + result.str("exec_id")
	dir := filepath.Join(s.dir, "workspace", result.str("artifacts_dir"))

	// The record vouches for the manifest, and the manifest for everything else.
	manifest := s.send(http.MethodGet, base+"/manifest", nil)
	if digest := "sha256:" + sum(manifest.Body); s.get(base).str("manifest_digest") != digest || manifest.Header.Get("ETag") != `"`+digest+`"` {
		t.Errorf("the manifest's digest is %s, the record is %v", digest, s.get(base))
	}
	published := map[string]string{}
	for _, entry := range manifest.json(t).list("published") {
		published[entry.str("path")] = entry.str("sha256")
	}
	meta := s.send(http.MethodGet, base+"/meta", nil)
	for name, content := range map[string][]byte{"stdout.txt": []byte("good\n"), "stderr.txt": []byte("good\n"), "meta.json": meta.Body} {
		if published[name] != sum(content) {
			t.Errorf("%s is not what the manifest says: %s", name, manifest.Body)
		}
	}
	if m := meta.json(t); m.str("exec_id") != result.str("exec_id") || len(m.list("docker_mounts")) != 3 || m.str("status") != "succeeded" {
		t.Errorf("meta: %s", meta.Body)
	}

	// A person who has the container's uid on this host reaches none of it.
	if os.Geteuid() == 0 {
		if err := os.Chmod(filepath.Dir(s.dir), 0o755); err != nil { // the test's own directory must not be what stops that person
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-c", `echo evil > "$1/hi.txt"; echo evil > "$1/d/new"; ls "$1"`, "sh", dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
		if out, err := cmd.CombinedOutput(); err == nil || strings.Count(strings.ToLower(string(out)), "permission denied") != 3 {
			t.Errorf("as uid 1000: %v\n%s", err, out)
		}
		info, err := os.Stat(filepath.Join(dir, "hi.txt"))
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 || info.Mode().Perm()&0o022 != 0 {
			t.Errorf("%v %+v", err, info)
		}
	}

	altered := func(name, method, path string, header ...string) {
		t.Helper()
		a := s.send(method, path, nil, header...)
		if a.Code != http.StatusConflict || strings.Contains(string(a.Body), "evil") {
			t.Errorf("%s %s: %d %q", method, path, a.Code, a.Body)
		} else if method == http.MethodGet && (a.json(t).str("code") != "artifact_altered" || !strings.Contains(a.json(t).str("detail"), name)) {
			t.Errorf("%s %s: %s", method, path, a.Body)
		}
	}
	served := func(path, want string) {
		t.Helper()
		if a := s.send(http.MethodGet, base+path, nil); a.Code != http.StatusOK || want != "" && string(a.Body) != want {
			t.Errorf("GET %s: %d %q", path, a.Code, a.Body)
		}
	}
	alter := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	etag := s.artifact(result.str("exec_id"), "hi.txt").Header.Get("ETag")
	served("/artifacts?format=zip", "")

	alter("hi.txt", "evil\n")
	altered("hi.txt", http.MethodGet, base+"/artifacts/hi.txt")
	altered("hi.txt", http.MethodHead, base+"/artifacts/hi.txt")
	altered("hi.txt", http.MethodGet, base+"/artifacts/hi.txt", "Range", "bytes=0-1")
	altered("hi.txt", http.MethodGet, base+"/artifacts/hi.txt", "If-None-Match", etag)
	altered("hi.txt", http.MethodGet, base+"/artifacts?format=zip")
	served("/artifacts/d/other", "good\n")
	served("/stdout", "good\n")

	alter("stdout.txt", "evil\n")
	altered("stdout.txt", http.MethodGet, base+"/stdout")
	served("/stderr", "good\n")
	if p := s.refused(http.StatusConflict, "artifact_altered", request, "Idempotency-Key", "k1"); p.str("exec_id") != result.str("exec_id") {
		t.Errorf("asked again: %v", p)
	}

	alter("meta.json", strings.Replace(string(meta.Body), "succeeded", "succedeed", 1))
	altered("meta.json", http.MethodGet, base+"/meta")
	served("/manifest", string(manifest.Body))

	// A manifest that goes with the changed file does not help.
	alter("manifest.json", strings.ReplaceAll(string(manifest.Body), sum([]byte("good\n")), sum([]byte("evil\n"))))
	for _, path := range []string{
		"/manifest", "/meta", "/stdout", "/stderr", "/artifacts", "/artifacts?format=zip", "/artifacts/hi.txt",
		"/artifacts/d/other",
	} {
		altered("manifest.json", http.MethodGet, base+path)
	}
}

func sum(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}
