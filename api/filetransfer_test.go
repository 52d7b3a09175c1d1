package api_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"secbox/api"
	"secbox/api/wire"
	"secbox/fault"
	"secbox/packages/library"
)

// both runs a test for a user of this server and for one with a machine of their own. dir is where
// the files are.
func both(t *testing.T, run func(t *testing.T, f *fixture, dir string)) { bothWith(t, impatient, run) }

func bothWith(t *testing.T, change func(*api.Config), run func(t *testing.T, f *fixture, dir string)) {
	t.Run("here", func(t *testing.T) {
		t.Parallel()
		f := start(t, change)
		run(t, f, filepath.Join(f.root, "projects", "ag~u", "work"))
	})
	t.Run("remote", func(t *testing.T) {
		t.Parallel()
		f := start(t, change)
		data[wire.V1Backend](t, f.do(request{method: "PUT", path: whereU, body: `{"backend": "remote"}`}))
		run(t, f, f.sandboxes.machine)
	})
}

func impatient(c *api.Config) { c.Bounds.Rest = time.Second }

const transfer = "/v1/sandbox/u/ag/file?path="

func (f *fixture) put(path string, body any, header map[string]string) reply {
	f.t.Helper()
	return f.do(request{method: "PUT", path: transfer + path, body: body, header: header})
}

func noise(size int) []byte {
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(content)
	return content
}

// digests returns the entity tag and the Repr-Digest of content.
func digests(content []byte) (tag, digest string) {
	sum := sha256.Sum256(content)
	return `"sha256:` + hex.EncodeToString(sum[:]) + `"`, "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// onDisk fails unless the directory has a file with this content, and no temporary ones.
func onDisk(t *testing.T, dir, name string, want []byte) {
	t.Helper()
	if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes, not %d: %v", name, len(got), len(want), err)
	}
	noRemains(t, dir)
}

func noRemains(t *testing.T, dir string) {
	t.Helper()
	for _, where := range []string{dir, filepath.Join(dir, "../.staging")} {
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			left, _ := filepath.Glob(filepath.Join(where, ".secbox-*"))
			if strings.HasSuffix(where, ".staging") {
				left, _ = filepath.Glob(filepath.Join(where, "*"))
			}
			if len(left) == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("left behind: %v", left)
			}
		}
	}
}

func TestFileTransfer(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *fixture, dir string) {
		for _, size := range []int{0, 1, 100_000, library.MaxFileBytes, library.MaxFileBytes + 1} {
			name := fmt.Sprintf("deep/down/f%d", size)
			content := noise(size)
			tag, digest := digests(content)
			r := f.put(name, io.MultiReader(bytes.NewReader(content)), map[string]string{"Repr-Digest": "md5=:AA==:, " + digest})
			if w := data[wire.V1Written](t, r); w.Size != int64(size) || `"sha256:`+w.Sha256+`"` != tag || r.Header.Get("ETag") != tag {
				t.Errorf("%d bytes: wrote %+v %s", size, w, r.Header.Get("ETag"))
			}
			onDisk(t, dir, name, content)
			if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || runtime.GOOS != "windows" && fi.Mode().Perm() != 0o644 {
				t.Error(fi.Mode(), err)
			}
			r = f.do(request{path: transfer + name, header: map[string]string{"Want-Repr-Digest": "sha-256=1"}})
			has := r.Header
			if size > library.MaxFileBytes {
				has, tag = r.Trailer, ""
			}
			if r.StatusCode != 200 || !bytes.Equal(r.body, content) || has.Get("Repr-Digest") != digest || r.Header.Get("ETag") != tag {
				t.Errorf("%d bytes: %d bytes came, %v %v", size, len(r.body), r.Header, r.Trailer)
			}
			if size == 0 {
				for _, header := range []string{"bytes=0-", "bytes=-1", "bytes=-0"} {
					if r := f.do(request{path: transfer + name, header: map[string]string{"Range": header}}); r.StatusCode != 200 ||
						r.Header.Get("Content-Range") != "" {
						t.Errorf("%s of an empty file: %d %v", header, r.StatusCode, r.Header)
					}
				}
			}
			r = f.do(request{method: "HEAD", path: transfer + name})
			if r.StatusCode != 200 || r.ContentLength != int64(size) || r.Header.Get("ETag") != tag {
				t.Errorf("%d bytes: HEAD %v", size, r.Header)
			}
			if size > 0 && size != library.MaxFileBytes { // under the race detector, ten copies of it cost seconds
				ranged(t, f, name, content)
			}
		}
	})
}

func ranged(t *testing.T, f *fixture, name string, content []byte) {
	t.Helper()
	size := len(content)
	for header, want := range map[string][]byte{
		"bytes=0-0": content[:1], "bytes=-1": content[size-1:], fmt.Sprintf("bytes=%d-", size/2): content[size/2:],
		fmt.Sprintf("bytes=%d-%d", size/3, size/2): content[size/3 : min(size, size/2+1)], "bytes=0-99999999999": content, "bytes=0-0,2-3": content,
	} {
		r := f.do(request{path: transfer + name, header: map[string]string{"Range": header}})
		whole := strings.Contains(header, ",")
		if r.StatusCode != map[bool]int{true: 200, false: 206}[whole] || !bytes.Equal(r.body, want) {
			t.Errorf("%s of %d bytes: %d, %d bytes", header, size, r.StatusCode, len(r.body))
		}
	}
	for _, header := range []string{fmt.Sprintf("bytes=%d-", size), "bytes=-0"} {
		r := f.do(request{path: transfer + name, header: map[string]string{"Range": header}})
		r.refused(t, fault.RangeUnsatisfiable)
		if got, want := r.Header.Get("Content-Range"), fmt.Sprintf("bytes */%d", size); got != want {
			t.Errorf("%s: Content-Range %q, want %q", header, got, want)
		}
	}
}

func TestConditionalUpload(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *fixture, dir string) {
		one, two := []byte("one\xff\x00"), noise(5<<20)
		data[wire.V1Written](t, f.put("f", one, map[string]string{"If-None-Match": "*", "Content-Type": ""}))
		f.put("f", two, map[string]string{"If-None-Match": "*"}).refused(t, fault.PreconditionFailed)
		onDisk(t, dir, "f", one)
		tag, digest := digests(one)
		f.put("none", two, map[string]string{"If-Match": tag}).refused(t, fault.PreconditionFailed)
		r := f.put("f", two, map[string]string{"If-Match": tag})
		data[wire.V1Written](t, r)
		onDisk(t, dir, "f", two)
		f.put("f", one, map[string]string{"If-Match": tag}).refused(t, fault.PreconditionFailed)
		f.put("f", two[1:], map[string]string{"If-Match": tag}).refused(t, fault.PreconditionFailed)
		for _, header := range []map[string]string{
			{"If-Match": "*"},
			{"If-Match": `"abc"`},
			{"If-Match": `W/` + tag},
			{"If-Match": tag + ", " + tag},
			{"If-None-Match": tag},
			{"If-None-Match": "*", "If-Match": tag},
			{"Repr-Digest": "sha-256=abc"},
			{"Repr-Digest": "sha-256=:AA==:"},
			{"Content-Range": "bytes 0-1/2"},
		} {
			if r := f.put("f", one, header); r.StatusCode != 400 {
				t.Errorf("%v: %d %s", header, r.StatusCode, r.body)
			}
		}
		for _, header := range []map[string]string{{"Content-Encoding": "gzip"}, {"Content-Type": "multipart/form-data; boundary=x"}} {
			f.put("f", one, header).refused(t, fault.UnsupportedMedia)
		}
		// The header's digest is not the digest of what arrived, in one piece and in several.
		for _, content := range [][]byte{[]byte("small"), noise(6 << 20)} {
			f.put("f", content, map[string]string{"Repr-Digest": digest}).refused(t, fault.InvalidRequest, "Repr-Digest")
			f.put("new", content, map[string]string{"Repr-Digest": digest}).refused(t, fault.InvalidRequest, "Repr-Digest")
		}
		onDisk(t, dir, "f", two)
		if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
			t.Error("a file with a wrong digest was made")
		}
	})
}

// TestUploadTooLarge: one byte too much is refused, announced before it is read.
func TestUploadTooLarge(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *fixture, dir string) {
		req, err := http.NewRequestWithContext(t.Context(), "PUT", f.url+transfer+"f", io.LimitReader(neverRead{t}, library.MaxStreamBytes+1))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = library.MaxStreamBytes + 1
		req.Header.Set("Expect", "100-continue")
		patient := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Hour}}
		resp, err := patient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("status %d", resp.StatusCode)
		}
		noRemains(t, dir)

		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "huge"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, "huge"), library.MaxStreamBytes+1); err != nil { // with a hole, which takes no room
			t.Fatal(err)
		}
		f.get(transfer+"huge").refused(t, fault.FileTooLarge)
	})
}

type neverRead struct{ t *testing.T }

func (n neverRead) Read([]byte) (int, error) {
	n.t.Error("the body was sent")
	return 0, io.EOF
}

// TestUploadThatStops: a body that is cut off or stalls leaves the file as it was.
func TestUploadThatStops(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *fixture, dir string) {
		data[wire.V1Written](t, f.put("f", "old", nil))
		part := string(noise(5 << 20))
		f.stall("", "PUT", transfer+"f", part).answer().refused(t, fault.BodyTooSlow)
		conn := f.stall("", "PUT", transfer+"f", part)
		conn.Close()
		f.stall("", "PUT", transfer+"f", "small").answer().refused(t, fault.BodyTooSlow)
		onDisk(t, dir, "f", []byte("old"))
	})
}

// TestTransferOfSkillFiles: a file below skills/ is written as an edit would, into the user's copy.
func TestTransferOfSkillFiles(t *testing.T) {
	t.Parallel()
	f := start(t)
	data[string](t, f.upload("u/ag", "baseline", "x.zip", weather(t)))
	tag, _ := digests([]byte("X = 1\n"))
	if r := f.get(transfer + "skills/skill-creator/SKILL.md"); r.StatusCode != 404 { // this server has none
		t.Error(r.StatusCode)
	}
	data[wire.V1Written](t, f.put("skills/weather_skill/utils/helper.py", "X = 2\n", map[string]string{"If-Match": tag}))
	if files := data[[]string](t, f.get("/v1/skills/u/ag/weather_skill/files")); len(files) != 3 {
		t.Errorf("files %v", files)
	}
	data[wire.V1Written](t, f.put("skills/own/SKILL.md", "# Own\n", map[string]string{"If-None-Match": "*"}))
	data[wire.V1Written](t, f.put("skills/own/deep/SKILL.md", "# Deep\n", nil))
	for _, path := range []string{"skills/own/Skill.md", "skills/x", "Skills/x/y", "skills/skill-creator/SKILL.md"} {
		if r := f.put(path, "x", nil); r.StatusCode < 400 {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
}

// TestDownloadOfAShrinkingFile: content that differs from its announcement is visibly incomplete.
func TestDownloadOfAShrinkingFile(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]int64{"shorter": -1, "longer": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := onTheirMachine(t)
			file := filepath.Join(f.sandboxes.machine, "f")
			if err := os.WriteFile(file, noise(11<<20), 0o644); err != nil {
				t.Fatal(err)
			}
			f.sandboxes.reading = func() {
				if err := os.Truncate(file, 11<<20+change); err != nil {
					t.Error(err)
				}
			}
			for _, header := range []string{"", "sha-256=1"} {
				if err := os.Truncate(file, 11<<20); err != nil {
					t.Fatal(err)
				}
				req, err := http.NewRequestWithContext(t.Context(), "GET", f.url+transfer+"f", nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Want-Repr-Digest", header)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err == nil {
					t.Errorf("%q: the answer looks whole", header)
				}
				resp.Body.Close()
			}
		})
	}
}

// TestDownloadsAreLimited: large downloads count with the downloads of skills.
func TestDownloadsAreLimited(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *api.Config) { c.Bounds.Downloads, c.Bounds.DownloadsPerToken = 1, 1 })
	data[wire.V1Written](t, f.put("f", noise(16<<20), nil)) // more than the buffers of a connection hold
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", f.url+transfer+"f", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req) // its body is not read
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	f.get(transfer+"f").refused(t, fault.SkillsBusy)
	cancel()
	for deadline := time.Now().Add(20 * time.Second); f.do(request{method: "HEAD", path: transfer + "f"}).StatusCode != 200; {
		if time.Now().After(deadline) {
			t.Fatal("the place of a download that was cut off is not free")
		}
	}
}
