package feishu

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/none"
	"secbox/sandbox/sandboxtest"
)

var ann = sandbox.User{AgentID: "a1", ID: "ann"}

const inMessage = "/im/v1/messages/om_1/resources/file_v3_1?type=file"

var message1 = Resource{MessageID: "om_1", FileKey: "file_v3_1", Type: "file"}

// workspace is a sandbox in a directory of this machine.
func workspace(t *testing.T) (box sandbox.Backend, dir string) {
	t.Helper()
	dir = t.TempDir()
	s := none.New(none.Config{Directories: sandboxtest.Directory(dir), Environ: os.Environ()})
	t.Cleanup(func() { _ = s.Close() })
	return s, dir
}

func write(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
		t.Fatal(err)
	}
}

func serves(content string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { _, _ = io.WriteString(w, content) }
}

// TestDownload (004 l533–540): the content arrives in the sandbox, whose directories are made.
func TestDownload(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	box, dir := workspace(t)
	const content = "any \x00 bytes \xff"
	sum := sha256.Sum256([]byte(content))
	f.resources[inMessage] = serves(content)
	f.resources["/im/v1/messages/om_1/resources/img_v3_1?type=image"] = serves(content)
	f.resources["/drive/v1/files/boxcn1/download"] = serves(content)
	for at, from := range map[string]Resource{
		"new/deep/a.bin": message1,
		"b.png":          {MessageID: "om_1", FileKey: "img_v3_1", Type: "image"},
		"c":              {FileToken: "boxcn1"},
	} {
		got, err := f.client.Download(t.Context(), from, box, "/workspace/"+at, ann)
		kept, e := os.ReadFile(filepath.Join(dir, at))
		if err != nil || e != nil || string(kept) != content || got.Bytes != int64(len(content)) || got.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: %+v %v %q", at, got, err, kept)
		}
	}
	if n := f.count("/internal"); n != 1 {
		t.Errorf("%d tokens for three downloads", n)
	}
}

// TestFailedDownloadWritesNothing: cut off, refused, redirected, out of the workspace, or with ids that are none.
func TestFailedDownloadWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	box, dir := workspace(t)
	write(t, dir, "old", []byte("old"))
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the redirect was followed: %s", r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	hangUp := func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "100000")
		_, _ = io.WriteString(w, strings.Repeat("x", 50000))
		panic(http.ErrAbortHandler)
	}
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		code   fault.Code
	}{
		"cut off": {hangUp, fault.UpstreamFailed},
		"cut off without a length": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "x")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, fault.UpstreamFailed},
		"too long": {func(w http.ResponseWriter) { w.Header().Set("Content-Length", "524288001") }, fault.FileTooLarge},
		"redirect": {func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(http.StatusFound)
		}, fault.UpstreamFailed},
		"no JSON": {func(w http.ResponseWriter) { w.WriteHeader(500); _, _ = io.WriteString(w, "<html>") }, fault.UpstreamFailed},
		"endless error": {func(w http.ResponseWriter) {
			w.WriteHeader(500)
			for block := bytes.Repeat([]byte(" "), 1<<20); ; {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}, fault.UpstreamFailed},
		"unknown":    {func(w http.ResponseWriter) { f.reply(w, 400, codeFileNotFound, "File not in msg.", nil) }, fault.UnknownFile},
		"forbidden":  {func(w http.ResponseWriter) { f.reply(w, 403, codeNoPermission, "Access denied.", nil) }, fault.UpstreamFailed},
		"empty JSON": {func(w http.ResponseWriter) { f.reply(w, 500, 0, "", nil) }, fault.UpstreamFailed},
	} {
		f.resources[inMessage] = c.answer
		if _, err := f.client.Download(t.Context(), message1, box, "/workspace/old", ann); !fault.Is(err, c.code) {
			t.Errorf("%s: %v", name, err)
		}
		if kept, err := os.ReadFile(filepath.Join(dir, "old")); string(kept) != "old" {
			t.Errorf("%s: %q %v", name, kept, err)
		}
	}
	for name, r := range map[string]Resource{
		"another endpoint": {MessageID: "../../auth", FileKey: "x", Type: "file"}, "a query": {MessageID: "om_1?x=", FileKey: "x", Type: "file"},
		"no key": {MessageID: "om_1", Type: "file"}, "another type": {MessageID: "om_1", FileKey: "x", Type: "sticker"}, "long": {FileToken: strings.Repeat("x", 300)},
	} {
		before := f.count("")
		if _, err := f.client.Download(t.Context(), r, box, "/workspace/x", ann); !fault.Is(err, fault.InvalidInputs) || f.count("") != before {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.resources[inMessage] = serves("x")
	if _, err := f.client.Download(t.Context(), message1, box, "/workspace/../x", ann); err == nil {
		t.Error("written out of the workspace")
	}
	if err := os.Symlink("/tmp", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.client.Download(t.Context(), message1, box, "/workspace/link/x", ann); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("through a link: %v", err)
	}
}

// TestStalledDownloadEnds: a body that stops without an end does not hold the call.
func TestStalledDownloadEnds(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.client.stall = 20 * time.Millisecond
	box, _ := workspace(t)
	ended := make(chan struct{})
	defer close(ended)
	f.resources[inMessage] = func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, "x")
		w.(http.Flusher).Flush()
		<-ended
	}
	if _, err := f.client.Download(t.Context(), message1, box, "/workspace/a", ann); !fault.Is(err, fault.UpstreamFailed) {
		t.Errorf("%v", err)
	}
}

// TestUploadAndSend (004 l541–547): the file is read in the sandbox and sent as the kind of message that shows it.
func TestUploadAndSend(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	box, dir := workspace(t)
	content := bytes.Repeat([]byte("0123456789"), 300_000)
	for _, c := range []struct {
		name, as, kind, key string
		image               bool
	}{
		{"report.pdf", "", "file", "file_key", false},
		{"报告 \"1\".xlsx", "", "file", "file_key", false},
		{"voice.opus", "", "audio", "file_key", false},
		{"clip.mp4", "", "media", "file_key", false},
		{"anything", "other name.bin", "file", "file_key", false},
		{"picture.png", "", "image", "image_key", true},
	} {
		write(t, dir, c.name, content)
		file, err := f.client.Upload(t.Context(), Upload{Path: "/workspace/" + c.name, Name: c.as, Image: c.image}, box, ann)
		if err != nil || !bytes.Equal(f.files[file.Key], content) || file.Bytes != int64(len(content)) {
			t.Fatalf("%s: %+v %v", c.name, file, err)
		}
		id, err := f.client.Send(t.Context(), file, "chat_id", "oc_1")
		want := message{"chat_id", "oc_1", c.kind, `{"` + c.key + `":"` + file.Key + `"}`}
		if err != nil || id == "" || f.messages[len(f.messages)-1] != want {
			t.Errorf("%s: %q %v, sent %+v", c.name, id, err, f.messages)
		}
	}
	if n := f.count("/internal"); n != 1 {
		t.Errorf("%d tokens", n)
	}
	for name, c := range map[string]struct {
		upload Upload
		code   fault.Code
	}{
		"empty":     {Upload{Path: "/workspace/empty"}, fault.InvalidInputs},
		"too large": {Upload{Path: "/workspace/large"}, fault.FileTooLarge},
		"image":     {Upload{Path: "/workspace/image", Image: true}, fault.FileTooLarge},
		"name":      {Upload{Path: "/workspace/image", Name: "a\nb"}, fault.InvalidInputs},
		"slash":     {Upload{Path: "/workspace/image", Name: "a/b"}, fault.InvalidInputs},
		"folder":    {Upload{Path: "/workspace/large", Folder: "../x"}, fault.InvalidInputs},
	} {
		write(t, dir, "empty", nil)
		for file, size := range map[string]int64{"large": maxFileBytes + 1, "image": maxImageBytes + 1} {
			write(t, dir, file, nil)
			if err := os.Truncate(filepath.Join(dir, file), size); err != nil {
				t.Fatal(err)
			}
		}
		before := f.count("")
		if _, err := f.client.Upload(t.Context(), c.upload, box, ann); !fault.Is(err, c.code) || f.count("") != before {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, path := range map[string]string{"directory": "/workspace", "missing": "/workspace/none", "outside": "/etc/hostname"} {
		if _, err := f.client.Upload(t.Context(), Upload{Path: path}, box, ann); err == nil {
			t.Errorf("%s: uploaded", name)
		}
	}
	for _, c := range [][2]string{{"phone", "x"}, {"chat_id", ""}, {"chat_id", "a b"}, {"chat_id", strings.Repeat("x", 300)}, {"", "oc_1"}} {
		if _, err := f.client.Send(t.Context(), Uploaded{Key: "file_v3_0", messageType: "file"}, c[0], c[1]); !fault.Is(err, fault.InvalidInputs) {
			t.Errorf("%q: %v", c, err)
		}
	}
}

// TestUploadToDrive: in blocks of 4 MiB, one after the other, with the last one shorter or not.
func TestUploadToDrive(t *testing.T) {
	t.Parallel()
	for _, size := range []int{maxFileBytes + 1, maxFileBytes + 2<<20} {
		f := newFake(t)
		box, dir := workspace(t)
		content := bytes.Repeat([]byte("0123456789abcde\n"), size/16+1)[:size]
		write(t, dir, "large.bin", content)
		got, err := f.client.Upload(t.Context(), Upload{Path: "/workspace/large.bin", Folder: "fldcn1"}, box, ann)
		if err != nil || got.Token == "" || got.Key != "" || !f.drive.finished || !bytes.Equal(f.drive.content, content) || f.drive.name != "large.bin" || f.drive.folder != "fldcn1" {
			t.Errorf("%d: %+v %v", size, got, err)
		}
		if _, err := f.client.Send(t.Context(), got, "chat_id", "oc_1"); !fault.Is(err, fault.InvalidInputs) {
			t.Errorf("a file in the drive was sent: %v", err)
		}
	}
}

// TestTokenIsSharedAndRenewed: one request for all callers, again before the end of the token, and once more after it was refused.
func TestTokenIsSharedAndRenewed(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	now := time.Now()
	f.client.now = func() time.Time { return now }
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := f.client.accessToken(t.Context(), ""); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	issued := func(want int, when string) {
		t.Helper()
		if _, err := f.client.Send(t.Context(), Uploaded{Key: "file_v3_0", messageType: "file"}, "open_id", "ou_1"); err != nil {
			t.Error(when, err)
		}
		if n := f.count("/internal"); n != want {
			t.Errorf("%s: %d tokens, want %d", when, n, want)
		}
	}
	f.files["file_v3_0"] = []byte("x")
	issued(1, "20 callers")
	now = now.Add(109 * time.Minute)
	issued(1, "11 minutes before the end")
	now = now.Add(2 * time.Minute)
	issued(2, "9 minutes before the end")
	f.revoke()
	issued(3, "after it was refused")
	f.expire = 60
	f.revoke()
	issued(4, "a short one")
	now = now.Add(29 * time.Second)
	issued(4, "half of a short one")
	now = now.Add(2 * time.Second)
	issued(5, "after half of a short one")

	f.mu.Lock()
	f.before = func(w http.ResponseWriter, r *http.Request) bool {
		refuse := !strings.HasSuffix(r.URL.Path, "/internal")
		if refuse {
			f.reply(w, 400, codeInvalidToken, "Invalid access token", nil)
		}
		return refuse
	}
	f.mu.Unlock()
	if _, err := f.client.Send(t.Context(), Uploaded{Key: "file_v3_0", messageType: "file"}, "open_id", "ou_1"); !fault.Is(err, fault.UpstreamFailed) || f.count("/internal") != 6 {
		t.Errorf("always refused: %v after %d tokens", err, f.count("/internal"))
	}
}

// TestTooFrequentRequestsWait: as long as Feishu says, and not for ever. A message is sent once.
func TestTooFrequentRequestsWait(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	waited := f.waits()
	box, dir := workspace(t)
	content := bytes.Repeat([]byte("0123456789"), 100_000)
	write(t, dir, "a", content)
	refusals := 0
	f.before = func(w http.ResponseWriter, r *http.Request) bool {
		if refusals == 0 || strings.HasSuffix(r.URL.Path, "/internal") {
			return false
		}
		refusals--
		w.Header().Set("x-ogw-ratelimit-reset", "52")
		f.reply(w, http.StatusTooManyRequests, codeTooFrequent, "request trigger frequency limit", nil)
		return true
	}
	refusals = 2
	file, err := f.client.Upload(t.Context(), Upload{Path: "/workspace/a"}, box, ann)
	if err != nil || !bytes.Equal(f.files[file.Key], content) {
		t.Errorf("%+v %v", file, err)
	}
	refusals = 1
	if _, err := f.client.Send(t.Context(), file, "email", "a@b.c"); err != nil || len(f.messages) != 1 {
		t.Errorf("%v, %d messages", err, len(f.messages))
	}
	if want := []time.Duration{52 * time.Second, 52 * time.Second, 52 * time.Second}; !slices.Equal(*waited, want) {
		t.Errorf("waited %v", *waited)
	}
	refusals = 100
	if _, err := f.client.Send(t.Context(), file, "email", "a@b.c"); !fault.Is(err, fault.UpstreamFailed) || fault.From(err).RetryAfter != 52*time.Second || refusals != 100-maxTries {
		t.Errorf("%v, %d refusals", err, 100-refusals)
	}
	for _, c := range []struct {
		status, code int
		header       string
		waits        bool
	}{
		{400, codeTooFrequent, "3", true},
		{400, codeMessageLimit, "", true},
		{400, codeChatLimit, "1", true},
		{200, codeDriveRetry, "", true},
		{429, 0, "61", false},
		{429, 0, "999999999", false},
		{429, 0, "-1", true},
		{400, 230001, "3", false},
	} {
		first := true
		f.mu.Lock()
		f.before = func(w http.ResponseWriter, r *http.Request) bool {
			defer func() { first = false }()
			if first {
				w.Header().Set("Retry-After", c.header)
				f.reply(w, c.status, c.code, "no", nil)
			}
			return first
		}
		f.mu.Unlock()
		*waited = nil
		_, err := f.client.Send(t.Context(), file, "email", "a@b.c")
		if (err == nil) != c.waits || (len(*waited) == 1) != c.waits {
			t.Errorf("%+v: %v, waited %v", c, err, *waited)
		}
	}
}

// TestErrorsShowNoSecrets: neither the token nor the app's secret, whatever Feishu's answer contains; and a bounded part of it.
func TestErrorsShowNoSecrets(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.client.appSecret = "wrong-secret-0123456789"
	if _, err := f.client.accessToken(t.Context(), ""); err == nil || strings.Contains(err.Error(), "wrong-secret") || !strings.Contains(err.Error(), "code 10014") {
		t.Errorf("%v", err)
	}
	f.client.appSecret = testSecret
	var token string
	f.before = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/internal") {
			return false
		}
		token = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		f.reply(w, 400, 230001, "bad \x1b[31m\u202e "+token+" "+testSecret+strings.Repeat(" long", 1000), nil)
		return true
	}
	_, err := f.client.Send(t.Context(), Uploaded{Key: "x", messageType: "file"}, "open_id", "ou_1")
	text := fault.From(err).Message
	if token == "" || strings.Contains(err.Error(), token) || strings.Contains(err.Error(), testSecret) || strings.ContainsAny(text, "\x1b\u202e") || len(text) > 400 || !strings.Contains(text, "code 230001") {
		t.Errorf("%q", text)
	}
}

// TestLostAnswerOfAMessage: it is unknown whether it was sent.
func TestLostAnswerOfAMessage(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/messages") {
			panic(http.ErrAbortHandler)
		}
		return false
	}
	if _, err := f.client.Send(t.Context(), Uploaded{Key: "x", messageType: "file"}, "open_id", "ou_1"); !fault.Is(err, fault.OutcomeUnknown) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.client.Send(ctx, Uploaded{Key: "x", messageType: "file"}, "open_id", "ou_1"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestUploadsToDriveAtOnce: the fake fails the test if two calls of the drive overlap.
func TestUploadsToDriveAtOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				var got struct{}
				if err := f.client.callDrive(t.Context(), &got, f.client.post("/open-apis/drive/v1/files/upload_prepare", map[string]any{
					"file_name": "a", "parent_type": "explorer", "parent_node": "fldcn1", "size": 1,
				})); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestNewChecksTheAddress(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"https://open.feishu.cn": true, "https://open.larksuite.com/": true, "http://127.0.0.1:8080": true, "http://localhost": true, "http://[::1]:1": true,
		"http://open.feishu.cn": false, "ftp://localhost": false, "open.feishu.cn": false, "https://u:p@open.feishu.cn": false, "https://open.feishu.cn/x": false,
		"https://open.feishu.cn?a=b": false, "": false, "https://": false, "http://127.0.0.1.evil.example": false, "http://localhost.evil.example": false,
	} {
		if _, err := New(Config{BaseURL: address, AppID: "x", AppSecret: "y"}); (err == nil) != ok || err != nil && !fault.Is(err, fault.InvalidSettings) {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := New(Config{BaseURL: "https://open.feishu.cn", AppID: "x"}); !fault.Is(err, fault.InvalidSettings) {
		t.Errorf("without a secret: %v", err)
	}
}

// shifty is a file that is not as long as it was.
type shifty struct {
	says, has int64
	err       error
}

func (s shifty) Stat(context.Context, string, sandbox.User) (*sandbox.FileInfo, error) {
	return &sandbox.FileInfo{Size: s.says}, nil
}

func (s shifty) ReadFileTo(_ context.Context, _ string, w io.Writer, _ sandbox.User) (int64, error) {
	block := make([]byte, 64<<10)
	for done := int64(0); done < s.has; {
		n, err := w.Write(block[:min(int64(len(block)), s.has-done)])
		if done += int64(n); err != nil {
			return done, err
		}
	}
	return s.has, s.err
}

// TestFileThatChangesDuringUpload: it grows, shrinks or cannot be read to its end, and nothing is uploaded.
func TestFileThatChangesDuringUpload(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	away := fault.New(fault.RunnerOffline, "away")
	for name, c := range map[string]struct {
		file shifty
		code fault.Code
	}{
		"grows":                 {shifty{1000, 1 << 30, nil}, fault.FileChanged},
		"shrinks":               {shifty{1 << 20, 1000, nil}, fault.FileChanged},
		"breaks":                {shifty{1 << 20, 1000, away}, fault.RunnerOffline},
		"breaks at its end":     {shifty{1 << 20, 1 << 20, away}, fault.RunnerOffline},
		"grows in the drive":    {shifty{maxFileBytes + 1, 1 << 30, nil}, fault.FileChanged},
		"shrinks in the drive":  {shifty{maxFileBytes + 1, 5 << 20, nil}, fault.FileChanged},
		"breaks in the drive":   {shifty{maxFileBytes + 1, 5 << 20, away}, fault.RunnerOffline},
		"larger than a sandbox": {shifty{sandbox.MaxFileBytes + 1, 0, nil}, fault.FileTooLarge},
	} {
		f.drive = driveUpload{}
		if _, err := f.client.Upload(t.Context(), Upload{Path: "/workspace/a", Folder: "fldcn1"}, c.file, ann); !fault.Is(err, c.code) {
			t.Errorf("%s: %v", name, err)
		}
		if len(f.files) > 0 || f.drive.finished {
			t.Errorf("%s: it was uploaded", name)
		}
	}
}
