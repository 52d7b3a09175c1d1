package feishu

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"hash/adler32"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

const (
	testID     = "cli_a1b2c3"
	testSecret = "the-app-secret-0123456789"
)

// fake is Feishu as its documentation describes it. A request that the documentation does not allow
// fails the test.
type fake struct {
	t      *testing.T
	client *Client
	expire int // seconds, of new tokens

	mu        sync.Mutex
	issued    int
	valid     map[string]bool
	resources map[string]func(http.ResponseWriter) // by the path and query of their download
	files     map[string][]byte                    // uploaded, by key
	messages  []message
	uuids     map[string]bool
	drive     driveUpload
	busy      int                                               // calls of drive at the same time
	before    func(w http.ResponseWriter, r *http.Request) bool // answers instead, if it returns true
	seen      []string                                          // methods and paths
}

type message struct{ ReceiveIDType, ReceiveID, Type, Content string }

type driveUpload struct {
	name, folder  string
	size, got     int64
	blocks, parts int64
	discard       bool // the content is not kept
	content       []byte
	finished      bool
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{
		t: t, expire: 7200, valid: map[string]bool{}, resources: map[string]func(http.ResponseWriter){}, files: map[string][]byte{},
		uuids: map[string]bool{},
	}
	server := httptest.NewServer(http.HandlerFunc(f.serve))
	client, err := New(Config{BaseURL: server.URL, AppID: testID, AppSecret: testSecret})
	if err != nil {
		t.Fatal(err)
	}
	f.client = client
	t.Cleanup(func() { client.Close(); server.Close() })
	return f
}

// revoke ends all tokens, as Feishu does when the app's secret is reset.
func (f *fake) revoke() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.valid)
}

func (f *fake) reply(w http.ResponseWriter, status, code int, msg string, more map[string]any) {
	body := map[string]any{"code": code, "msg": msg}
	for key, value := range more {
		body[key] = value
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (f *fake) data(w http.ResponseWriter, data any) {
	f.reply(w, 200, 0, "success", map[string]any{"data": data})
}

func (f *fake) refuse(w http.ResponseWriter, r *http.Request, format string, args ...any) {
	f.t.Errorf("%s %s: %s", r.Method, r.URL, fmt.Sprintf(format, args...))
	f.reply(w, 400, 234001, "Invalid request param.", nil)
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.seen = append(f.seen, r.Method+" "+r.URL.Path)
	before := f.before
	f.mu.Unlock()
	if before != nil && before(w, r) {
		return
	}
	if r.URL.Path == "/open-apis/auth/v3/tenant_access_token/internal" {
		f.issue(w, r)
		return
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	f.mu.Lock()
	valid := f.valid[token]
	f.mu.Unlock()
	switch {
	case !ok:
		f.reply(w, 400, codeMissingToken, "Missing access token for authorization. Please make a request with token attached.", nil)
	case !valid:
		f.reply(w, 400, codeInvalidToken, "Invalid access token for authorization. Please make a request with token attached.", nil)
	case r.Method == http.MethodGet:
		f.download(w, r)
	case r.Method != http.MethodPost:
		f.refuse(w, r, "no such method")
	case r.URL.Path == "/open-apis/im/v1/files":
		f.upload(w, r, "file", 30<<20, "file_type", "file_name")
	case r.URL.Path == "/open-apis/im/v1/images":
		f.upload(w, r, "image", 10<<20, "image_type")
	case r.URL.Path == "/open-apis/im/v1/messages":
		f.send(w, r)
	case strings.HasPrefix(r.URL.Path, "/open-apis/drive/v1/files/upload_"):
		f.mu.Lock()
		if f.busy++; f.busy > 1 {
			f.t.Error("drive takes no calls at the same time")
		}
		f.mu.Unlock()
		f.toDrive(w, r)
		f.mu.Lock()
		f.busy--
		f.mu.Unlock()
	default:
		f.refuse(w, r, "no such endpoint")
	}
}

// body decodes a JSON body that must have exactly the named fields.
func (f *fake) body(w http.ResponseWriter, r *http.Request, fields ...string) map[string]any {
	var got map[string]any
	if r.Header.Get("Content-Type") != "application/json; charset=utf-8" || json.NewDecoder(r.Body).Decode(&got) != nil || len(got) != len(fields) {
		f.refuse(w, r, "%s: %v", r.Header.Get("Content-Type"), got)
		return nil
	}
	for _, name := range fields {
		if got[name] == nil {
			f.refuse(w, r, "no %s: %v", name, got)
			return nil
		}
	}
	return got
}

func (f *fake) issue(w http.ResponseWriter, r *http.Request) {
	got := f.body(w, r, "app_id", "app_secret")
	if got == nil {
		return
	}
	if got["app_id"] != testID || got["app_secret"] != testSecret {
		f.reply(w, 200, 10014, "app secret invalid: "+got["app_secret"].(string), nil)
		return
	}
	f.mu.Lock()
	f.issued++
	token := fmt.Sprintf("t-%d-%s", f.issued, rand.Text())
	f.valid[token] = true
	f.mu.Unlock()
	f.reply(w, 200, 0, "ok", map[string]any{"tenant_access_token": token, "expire": f.expire})
}

func (f *fake) download(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	serve := f.resources[strings.TrimPrefix(r.URL.RequestURI(), "/open-apis")]
	f.mu.Unlock()
	if serve == nil {
		f.reply(w, 400, codeFileNotFound, "File not in message.", nil)
		return
	}
	serve(w)
}

// form reads a multipart form that must have the named fields, and then the file.
func (f *fake) form(w http.ResponseWriter, r *http.Request, file string, names ...string) (map[string]string, *multipart.Part) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || r.ContentLength <= 0 {
		f.refuse(w, r, "%s, length %d", kind, r.ContentLength)
		return nil, nil
	}
	form, fields := multipart.NewReader(r.Body, params["boundary"]), map[string]string{}
	for _, name := range names {
		part, err := form.NextPart()
		if err != nil || part.FormName() != name {
			f.refuse(w, r, "%s is missing: %v", name, err)
			return nil, nil
		}
		value, _ := io.ReadAll(part)
		fields[name] = string(value)
	}
	part, err := form.NextPart()
	if err != nil || part.FormName() != file || part.FileName() == "" {
		f.refuse(w, r, "%s is missing: %v", file, err)
		return nil, nil
	}
	return fields, part
}

func (f *fake) upload(w http.ResponseWriter, r *http.Request, file string, most int, names ...string) {
	fields, part := f.form(w, r, file, names...)
	if part == nil {
		return
	}
	content, err := io.ReadAll(part)
	if err != nil {
		return // the client has hung up
	}
	name, isFile := fields["file_name"]
	switch {
	case len(content) == 0 || len(content) > most:
		f.refuse(w, r, "%d bytes", len(content))
		return
	case isFile && (name == "" || !utf8.ValidString(name) ||
		!slices.Contains([]string{"opus", "mp4", "pdf", "doc", "xls", "ppt", "stream"}, fields["file_type"])),
		!isFile && fields["image_type"] != "message":
		f.refuse(w, r, "%v", fields)
		return
	}
	f.mu.Lock()
	key := fmt.Sprintf("%s_v3_%d", map[bool]string{true: "file", false: "img"}[isFile], len(f.files))
	f.files[key] = content
	f.mu.Unlock()
	f.data(w, map[string]string{map[bool]string{true: "file_key", false: "image_key"}[isFile]: key})
}

func (f *fake) send(w http.ResponseWriter, r *http.Request) {
	got := f.body(w, r, "receive_id", "msg_type", "content", "uuid")
	if got == nil {
		return
	}
	kind, _ := got["msg_type"].(string)
	text, _ := got["content"].(string) // JSON as a string
	var content map[string]string
	key := map[string]string{"file": "file_key", "audio": "file_key", "media": "file_key", "image": "image_key"}[kind]
	f.mu.Lock()
	defer f.mu.Unlock()
	if json.Unmarshal([]byte(text), &content) != nil || len(content) != 1 || f.files[content[key]] == nil {
		f.refuse(w, r, "%s with content %q", kind, text)
		return
	}
	to, uuid := r.URL.Query().Get("receive_id_type"), got["uuid"].(string)
	if len(r.URL.Query()) != 1 || !slices.Contains([]string{"open_id", "union_id", "user_id", "email", "chat_id"}, to) || len(uuid) > 50 {
		f.refuse(w, r, "receive_id_type %q, uuid %q", to, uuid)
		return
	}
	if !f.uuids[uuid] { // within an hour, one message per uuid
		f.messages = append(f.messages, message{to, got["receive_id"].(string), kind, text})
	}
	f.uuids[uuid] = true
	f.data(w, map[string]string{"message_id": fmt.Sprintf("om_%d", len(f.messages))})
}

const blockBytes = 4 << 20

func (f *fake) toDrive(w http.ResponseWriter, r *http.Request) {
	switch d := &f.drive; strings.TrimPrefix(r.URL.Path, "/open-apis/drive/v1/files/upload_") {
	case "prepare":
		got := f.body(w, r, "file_name", "parent_type", "parent_node", "size")
		if got == nil {
			return
		}
		d.name, d.folder, d.size = got["file_name"].(string), got["parent_node"].(string), int64(got["size"].(float64))
		d.blocks = (d.size + blockBytes - 1) / blockBytes
		if got["parent_type"] != "explorer" || utf8.RuneCountInString(d.name) > 250 {
			f.refuse(w, r, "%v", got)
			return
		}
		f.data(w, map[string]any{"upload_id": "7111211691345512356", "block_size": blockBytes, "block_num": d.blocks})
	case "part":
		fields, part := f.form(w, r, "file", "upload_id", "seq", "size", "checksum")
		if part == nil {
			return
		}
		content, err := io.ReadAll(part)
		want := min(blockBytes, d.size-d.got)
		if err != nil || int64(len(content)) != want || fields["size"] != strconv.FormatInt(want, 10) || fields["seq"] != strconv.FormatInt(d.parts, 10) ||
			fields["upload_id"] != "7111211691345512356" || fields["checksum"] != strconv.FormatUint(uint64(adler32.Checksum(content)), 10) {
			f.refuse(w, r, "%d bytes, want %d of part %d: %v %v", len(content), want, d.parts, fields, err)
			return
		}
		if d.parts, d.got = d.parts+1, d.got+want; !d.discard {
			d.content = append(d.content, content...)
		}
		f.data(w, map[string]any{})
	case "finish":
		got := f.body(w, r, "upload_id", "block_num")
		if got == nil {
			return
		}
		if got["block_num"] != float64(d.parts) || d.parts != d.blocks {
			f.refuse(w, r, "%v after %d of %d parts", got, d.parts, d.blocks)
			return
		}
		d.finished = true
		f.data(w, map[string]string{"file_token": "boxcnrHpsg1QDqXAAAyachabcef"})
	default:
		f.refuse(w, r, "no such endpoint")
	}
}

// count returns how many requests of a path there were.
func (f *fake) count(path string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.seen {
		if strings.HasSuffix(one, path) {
			n++
		}
	}
	return n
}

// waits has the client only note how long it would wait.
func (f *fake) waits() *[]time.Duration {
	var all []time.Duration
	f.client.wait = func(ctx context.Context, d time.Duration) error {
		all = append(all, d)
		return ctx.Err()
	}
	return &all
}
