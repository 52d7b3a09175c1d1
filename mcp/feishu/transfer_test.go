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
	"strings"
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

// TestDownload (004 l277, l533–540): the content arrives in the sandbox, whose directories are
// made.
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

// TestFailedDownloadWritesNothing: cut off, refused, redirected, out of the workspace, or with ids
// that are none.
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
		"no key": {MessageID: "om_1", Type: "file"}, "another type": {MessageID: "om_1", FileKey: "x", Type: "sticker"},
		"long": {FileToken: strings.Repeat("x", 300)},
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
}

func TestDownloadThroughALinkIsRefused(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	box, dir := workspace(t)
	f.resources[inMessage] = serves("x")
	if err := os.Symlink(t.TempDir(), filepath.Join(dir, "link")); err != nil {
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

// TestUploadAndSend (004 l278, l279, l541–547): the file is read in the sandbox and sent as the
// kind of message that shows it.
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
		{"报告.xlsx", "报告 \"1\".xlsx", "file", "file_key", false},
		{"voice.opus", "", "audio", "file_key", false},
		{"clip.mp4", "", "media", "file_key", false},
		{"anything", "other name.bin", "file", "file_key", false},
		{"picture.png", "", "image", "image_key", true},
	} {
		write(t, dir, c.name, content)
		file, err := f.client.Upload(t.Context(), Upload{Path: "/workspace/" + c.name, Name: c.as, Image: c.image}, box, ann)
		if err != nil || !bytes.Equal(f.files[file.Key], content) || file.Bytes != int64(len(content)) || file.SHA256 != digest(content) {
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

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
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
		if err != nil || got.Token == "" || got.Key != "" || !f.drive.finished || !bytes.Equal(f.drive.content, content) || f.drive.name != "large.bin" ||
			f.drive.folder != "fldcn1" || got.SHA256 != digest(content) || got.Bytes != int64(size) {
			t.Errorf("%d: %+v %v", size, got, err)
		}
		if _, err := f.client.Send(t.Context(), got, "chat_id", "oc_1"); !fault.Is(err, fault.InvalidInputs) {
			t.Errorf("a file in the drive was sent: %v", err)
		}
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

// TestFileThatChangesDuringUpload: it grows, shrinks or cannot be read to its end, and nothing is
// uploaded. What was sent of it is known.
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
		got, err := f.client.Upload(t.Context(), Upload{Path: "/workspace/a", Folder: "fldcn1"}, c.file, ann)
		if !fault.Is(err, c.code) {
			t.Errorf("%s: %v", name, err)
		}
		if zeros := make([]byte, got.Bytes); got.Bytes > min(c.file.says, c.file.has) || got.Bytes > 0 && got.SHA256 != digest(zeros) ||
			got.Bytes == 0 && got.SHA256 != "" || c.file.has == 5<<20 && got.Bytes != c.file.has {
			t.Errorf("%s: %+v were sent", name, got)
		}
		if len(f.files) > 0 || f.drive.finished {
			t.Errorf("%s: it was uploaded", name)
		}
	}
}
