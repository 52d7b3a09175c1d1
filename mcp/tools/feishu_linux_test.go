package tools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/mcp/feishu"
	"secbox/mcp/tools"
	"secbox/sandbox"
	"secbox/sandbox/none"
	"secbox/sandbox/sandboxtest"
)

// fakeFeishu keeps one file, file_1, and the last message. Package feishu tests the requests.
func fakeFeishu(t *testing.T) (client *feishu.Client, content, sent *string) {
	t.Helper()
	content, sent = new(string), new(string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data := map[string]string{}
		switch {
		case r.Method == http.MethodGet && r.URL.Path == "/open-apis/im/v1/messages/om_1/resources/file_1":
			_, _ = io.WriteString(w, *content)
			return
		case r.Method == http.MethodGet:
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"code": 234003, "msg": "File not in msg."}`)
			return
		case strings.HasSuffix(r.URL.Path, "/files"):
			file, _, err := r.FormFile("file")
			if err != nil { // a file that changes is not uploaded
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			text, _ := io.ReadAll(file)
			*content, data["file_key"] = string(text), "file_1"
		case strings.HasSuffix(r.URL.Path, "/messages"):
			text, _ := io.ReadAll(r.Body)
			*sent, data["message_id"] = string(text), "om_1"
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"code": 0, "tenant_access_token": "t-1", "expire": 7200, "data": data})
	}))
	client, err := feishu.New(feishu.Config{BaseURL: server.URL, AppID: "cli_1", AppSecret: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, content, sent
}

// withFeishu is a session with fakeFeishu.
func withFeishu(t *testing.T) (session *tools.Session, box *recording, dir string, content, sent *string) {
	t.Helper()
	client, content, sent := fakeFeishu(t)
	dir = t.TempDir()
	box = &recording{Backend: none.New(none.Config{Directories: sandboxtest.Directory(dir), Environ: os.Environ()})}
	return keepingIn(t, box).WithFeishu(client), box, dir, content, sent
}

// recording is a sandbox that notes changes and transfers.
type recording struct {
	sandbox.Backend
	changes []string
}

var _ sandbox.Changer = (*recording)(nil)

func (r *recording) Change(ctx context.Context, c sandbox.Change, do func(context.Context, sandbox.Location) (sandbox.Digests, error)) (string, error) {
	digests, err := do(ctx, sandbox.Location{User: c.User})
	r.changes = append(r.changes, fmt.Sprint(c.Tool, " ", c.Path, " ", c.Args, " ", digests))
	return "an-id", err
}

const reportSHA256 = "90bd35df60f1e27d2236245a4a49f73e1dfb01936f2c2159c70a2bde93eb2977" // of "a report"

// TestFeishuTools (004 l280): content goes from the sandbox to a chat, and back into the sandbox.
func TestFeishuTools(t *testing.T) {
	t.Parallel()
	session, box, dir, content, sent := withFeishu(t)
	mustCall(t, session, "files.write", map[string]any{"path": "out/report.txt", "content": "a report"})
	mustCall(t, session, "files.cd", map[string]any{"path": "out"})
	r := mustCall(t, session, "feishu.upload", map[string]any{"path": "report.txt", "receive_id": "ou_1", "receive_id_type": "open_id"})
	if *content != "a report" || !strings.Contains(*sent, `"receive_id":"ou_1"`) || r.Meta["file_key"] != "file_1" || r.Meta["message_id"] != "om_1" ||
		r.Text != "uploaded /workspace/out/report.txt: 8 bytes\nsha256: "+reportSHA256+"\nfile_key: file_1\nmessage_id: om_1\nsent to ou_1\n" {
		t.Errorf("%q %v, sent %s", r.Text, r.Meta, *sent)
	}
	r = mustCall(t, session, "feishu.download", map[string]any{"message_id": "om_1", "file_key": "file_1", "path": "new/copy.txt"})
	kept, err := os.ReadFile(filepath.Join(dir, "out/new/copy.txt"))
	if err != nil || string(kept) != "a report" || !strings.HasPrefix(r.Text, "wrote /workspace/out/new/copy.txt: 8 bytes\nsha256: ") {
		t.Errorf("%q %q %v", r.Text, kept, err)
	}
	if want := []string{
		"feishu.upload /workspace/out/report.txt [to  ou_1] {" + reportSHA256 + "  0 8}",
		"feishu.download /workspace/out/new/copy.txt [from om_1 file_1 ] { " + reportSHA256 + " 8 0}",
	}; !slices.Equal(box.changes[1:], want) ||
		r.Meta["exec_id"] != "an-id" {
		t.Errorf("on record: %q, %v", box.changes, r.Meta)
	}
	for _, c := range []struct {
		tool      string
		arguments map[string]any
		code      fault.Code
	}{
		{"feishu.download", map[string]any{"path": "x"}, fault.InvalidInputs},
		{"feishu.download", map[string]any{"path": "x", "message_id": "om_1", "file_key": "file_1", "file_token": "box1"}, fault.InvalidInputs},
		{"feishu.download", map[string]any{"path": "x", "message_id": "om_2", "file_key": "file_1"}, fault.UnknownFile},
		{"feishu.download", map[string]any{"path": "/etc/x", "message_id": "om_1", "file_key": "file_1"}, fault.PathRefused},
		{"feishu.upload", map[string]any{"path": "/etc/hostname"}, fault.PathRefused},
		{"feishu.upload", map[string]any{"path": "none"}, fault.UnknownFile},
		{"feishu.upload", map[string]any{"path": "new"}, fault.InvalidInputs},
		{"feishu.upload", map[string]any{"path": "report.txt", "receive_id": "ou 1"}, fault.InvalidInputs},
		{"feishu.upload", map[string]any{"path": "report.txt", "receive_id": "ou_1", "folder": "fld1"}, fault.InvalidInputs},
	} {
		if r, err := callTool(t, session, c.tool, c.arguments); !fault.Is(err, c.code) {
			t.Errorf("%s %v: %+v %v", c.tool, c.arguments, r, err)
		}
	}
	without, _ := keeping(t)
	for _, tool := range without.Tools() {
		if strings.HasPrefix(tool.Name, "feishu.") {
			t.Errorf("%s is offered without an app", tool.Name)
		}
	}
}
