package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"secbox/access/tokens"
)

const feishuSecret = "the-app-secret-0123456789"

// feishuDrive is Feishu's drive with one file to download, boxlarge, and one upload at a time.
// Package feishu tests the requests.
type feishuDrive struct {
	t    *testing.T
	size int64

	mu     sync.Mutex
	issued int
	valid  string // the token; empty: none
	got    hash.Hash
	parts  int
	lost   int // the part at which all tokens were revoked
}

// content is the file to download.
func (d *feishuDrive) content() io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{7}), d.size)
}

func (d *feishuDrive) sum(r io.Reader) string {
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		d.t.Error(err)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

func (d *feishuDrive) revoke() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.valid = ""
}

func (d *feishuDrive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reply := func(status, code int, msg string, data any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"code": code, "msg": msg, "data": data, "tenant_access_token": msg, "expire": 7200})
	}
	d.mu.Lock()
	if r.URL.Path == "/open-apis/auth/v3/tenant_access_token/internal" {
		body, _ := io.ReadAll(r.Body)
		if !bytes.Contains(body, []byte(feishuSecret)) {
			d.t.Errorf("a token was asked for with %s", body)
		}
		d.issued++
		d.valid = fmt.Sprintf("t-secret-%d", d.issued)
		reply(200, 0, d.valid, nil)
		d.mu.Unlock()
		return
	}
	if strings.HasSuffix(r.URL.Path, "/upload_part") && d.parts == 2 && d.lost == 0 { // in the middle of a file
		d.lost, d.valid = d.parts, ""
	}
	valid := d.valid != "" && r.Header.Get("Authorization") == "Bearer "+d.valid
	d.mu.Unlock()
	switch {
	case !valid:
		reply(400, 99991663, "Invalid access token for authorization.", nil)
	case strings.HasSuffix(r.URL.Path, "/boxlarge/download"):
		_, _ = io.Copy(w, d.content())
	case strings.HasSuffix(r.URL.Path, "/boxtalks/download"):
		reply(400, 1061001, "cannot use "+feishuSecret+" with "+r.Header.Get("Authorization"), nil)
	case strings.HasSuffix(r.URL.Path, "/upload_prepare"):
		d.got, d.parts, d.lost = sha256.New(), 0, 0
		reply(200, 0, "", map[string]any{"upload_id": "u1", "block_size": 4 << 20, "block_num": (d.size + 4<<20 - 1) / (4 << 20)})
	case strings.HasSuffix(r.URL.Path, "/upload_part"):
		file, _, err := r.FormFile("file")
		if err != nil || r.FormValue("seq") != fmt.Sprint(d.parts) {
			d.t.Errorf("part %s instead of %d: %v", r.FormValue("seq"), d.parts, err)
			return
		}
		_, _ = io.Copy(d.got, file)
		d.parts++
		reply(200, 0, "", map[string]any{})
	case strings.HasSuffix(r.URL.Path, "/upload_finish"):
		reply(200, 0, "", map[string]any{"file_token": "boxnew"})
	default:
		d.t.Errorf("%s %s", r.Method, r.URL)
	}
}

// TestFeishuThroughCoreAPI moves a large file, of 500 MiB in a long run, from Feishu into a sandbox
// and back through a whole core-api. Its memory is bounded, a token that ends in the middle is
// renewed, and neither the app's secret nor a token is in an answer, log, row or file.
func TestFeishuThroughCoreAPI(t *testing.T) {
	t.Parallel()
	drive := &feishuDrive{t: t, size: int64(scaled(96, 500)) << 20}
	lark := httptest.NewServer(drive)
	t.Cleanup(lark.Close)
	dir := t.TempDir()
	p := serveAs(t, releasedBinary(t), dir, "CORE_API_POOL_MAX=0",
		"CORE_API_FEISHU_APP_ID=cli_1", "CORE_API_FEISHU_APP_SECRET="+feishuSecret, "CORE_API_FEISHU_BASE_URL="+lark.URL)
	p.db = newLazyDatabase(t, settingsIn(t, dir))
	_, p.token = p.newToken(tokens.Spec{Role: tokens.Admin})
	laptop := t.TempDir()
	p.dialIn("u", "laptop", laptop, "write")
	want := drive.sum(drive.content())
	var said strings.Builder
	for backend, files := range map[string]string{"docker": filepath.Join(dir, "workspace/projects/ag~u/work"), "remote": laptop} {
		p.worksIn("u", object{"backend": backend})
		session := p.mcpClient("?project_id=ag~u", nil)
		call := func(name string, arguments map[string]any, failed bool) string {
			t.Helper()
			r := tool(t, session, name, arguments)
			text := mcpText(r)
			said.WriteString(text)
			if r.IsError != failed {
				t.Fatalf("%s in %s: %s", name, backend, text)
			}
			return text
		}
		call("files.write", map[string]any{"path": "small", "content": "x"}, false) // what the first call needs is there
		before := p.peak()
		drive.revoke()
		got := call("feishu.download", map[string]any{"file_token": "boxlarge", "path": "in/large.bin"}, false)
		f, err := os.Open(filepath.Join(files, "in/large.bin"))
		if err != nil {
			t.Fatal(err)
		}
		if sum := drive.sum(f); sum != want || !strings.Contains(got, want) {
			t.Errorf("%s: %s was written, not %s: %s", backend, sum, want, got)
		}
		f.Close()
		call("feishu.upload", map[string]any{"path": "in/large.bin", "folder": "fldnew"}, false)
		if sum := fmt.Sprintf("%x", drive.got.Sum(nil)); sum != want || drive.lost != 2 {
			t.Errorf("%s: %s was uploaded, not %s; part %d had to be sent again", backend, sum, want, drive.lost)
		}
		if grown := p.peak() - before; grown > 64<<10 {
			t.Errorf("%s: it took %d MiB of memory", backend, grown>>10)
		}
		call("feishu.download", map[string]any{"file_token": "boxtalks", "path": "in/talks"}, true)
	}
	rows := p.send(http.MethodGet, "/sandbox/execs?user_id=u&kind=all", nil)
	if n := strings.Count(string(rows.Body), `"feishu.`); n < 6 {
		t.Errorf("%d rows of transfers: %s", n, rows.Body)
	}
	p.terminate()
	<-p.ended
	nowhere(t, "answers", said.String())
	nowhere(t, "rows", string(rows.Body))
	nowhere(t, "the log", p.log.String())
	if err := filepath.WalkDir(filepath.Join(dir, "state"), func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(name)
		nowhere(t, name, string(content))
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// nowhere fails the test if a text has the app's secret or a token.
func nowhere(t *testing.T, what, text string) {
	t.Helper()
	for _, secret := range []string{feishuSecret, "t-secret-"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s has %s", what, secret)
		}
	}
}
