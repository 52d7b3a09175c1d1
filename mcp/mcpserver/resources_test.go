package mcpserver

import (
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/audit"
	"secbox/fault"
)

// left makes an exec of a token that has left a file.
func (f *fixture) left(token, file string, content []byte) (uri string) {
	f.execs.mu.Lock()
	defer f.execs.mu.Unlock()
	const id = "0199c0de-0000-7000-8000-000000000001"
	f.execs.records[id] = audit.Record{ExecID: id, RequestedBy: token, Status: audit.Succeeded}
	f.execs.files[uriOf(id, file)] = content
	return uriOf(id, file)
}

func TestReadResource(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, content, mime string
		blob                bool
	}{
		"a text":                     {file: "a.txt", content: "hi", mime: "text/plain"},
		"a name with a space":        {file: "d/a b#?%.txt", content: "hi", mime: "text/plain"},
		"JSON":                       {file: "a.json", content: "{}", mime: "application/json"},
		"a page is shown as text":    {file: "a.html", content: "<script>alert(1)</script>", mime: "text/plain"},
		"a drawing is shown as text": {file: "a.svg", content: "<svg/>", mime: "text/plain"},
		"bytes":                      {file: "a.bin", content: "\xff\x00\x01", mime: "application/octet-stream", blob: true},
		"bytes that say text":        {file: "a.txt", content: "\xff\xfe", mime: "application/octet-stream", blob: true},
		"a text with a NUL":          {file: "a", content: "a\x00b", mime: "application/octet-stream", blob: true},
		"a picture":                  {file: "a.png", content: "\x89PNG\r\n\x1a\n\xff", mime: "image/png", blob: true},
		"no extension":               {file: "Makefile", content: "all:", mime: "text/plain"},
		"nothing":                    {file: "empty.txt", content: "", mime: "text/plain"},
		"nothing without extension":  {file: "empty", content: "", mime: "text/plain"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			uri := f.left("tok-worker", c.file, []byte(c.content))
			for _, token := range []string{"worker", "admin"} {
				read, err := f.connect(token, "", nil).ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
				if err != nil {
					t.Fatal(err)
				}
				got := read.Contents[0]
				text, blob := c.content, ""
				if c.blob {
					text, blob = "", c.content
				}
				if got.Text != text || string(got.Blob) != blob || got.MIMEType != c.mime {
					t.Errorf("got %+v", got)
				}
			}
			f.downloads.mu.Lock()
			seen := f.downloads.seen
			f.downloads.err = fault.New(fault.DatabaseUnavailable, "no database")
			f.downloads.mu.Unlock()
			if want := "tok-admin artifact " + c.file; len(seen) != 1 || seen[0] != want {
				t.Errorf("downloads of other clients' files: %q, want %q", seen, want)
			}
			if _, err := f.connect("admin", "", nil).ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil {
				t.Error("a file without an event was sent")
			}
		})
	}
}

// TestContentsHaveTextOrBlob: clients refuse contents with neither, also of an empty file.
func TestContentsHaveTextOrBlob(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := f.open("worker")
	for _, content := range []string{"", "text", "\x00"} {
		uri := f.left("tok-worker", "f.txt", []byte(content))
		_, body := f.post("worker", session, `{"jsonrpc":"2.0","id":5,"method":"resources/read","params":{"uri":"`+uri+`"}}`)
		if strings.Contains(body, `"text":`) == strings.Contains(body, `"blob":`) {
			t.Errorf("%q: %s", content, body)
		}
	}
}

// TestNothingIsPublic: no cache may give one client's answer to another.
func TestNothingIsPublic(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := f.open("worker")
	uri := f.left("tok-worker", "f.txt", []byte("private"))
	for _, method := range []string{"tools/list", "resources/list", "resources/templates/list", "prompts/list", "resources/read"} {
		_, body := f.post("worker", session, `{"jsonrpc":"2.0","id":5,"method":"`+method+`","params":{"uri":"`+uri+`"}}`)
		if !strings.Contains(body, `"cacheScope":"private"`) || strings.Contains(body, "public") {
			t.Errorf("%s: %s", method, body)
		}
	}
}

func TestUnknownResources(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	foreign := f.left("tok-other", "a.txt", []byte("theirs"))
	session := f.connect("worker", "", nil)
	const id = "exec://0199c0de-0000-7000-8000-000000000001"
	for name, uri := range map[string]string{
		"another caller's":         foreign,
		"an unknown exec":          "exec://0199c0de-0000-7000-8000-00000000ffff/a.txt",
		"no id":                    "exec:///a.txt",
		"a strange id":             "exec://../a.txt",
		"no path":                  id,
		"an empty path":            id + "/",
		"another scheme":           "file:///etc/passwd",
		"a climb":                  id + "/../../etc/passwd",
		"an encoded climb":         id + "/%2e%2e/%2e%2e/etc/passwd",
		"a bad escape":             id + "/%zz",
		"a NUL":                    id + "/%00",
		"no UTF-8":                 id + "/%ff",
		"a control character":      id + "/\x01",
		"the last code point":      id + "/\U0010ffff",
		"a query":                  id + "/a.txt?x=1",
		"nothing":                  "",
		"longer than any address ": id + "/" + strings.Repeat("a", 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
			if wire := new(jsonrpc.Error); !asError(err, &wire) || wire.Code != codeNotFound {
				t.Errorf("got %v", err)
			}
		})
	}
	f.execs.mu.Lock()
	seen := len(f.execs.seen)
	f.execs.mu.Unlock()
	if seen != 0 {
		t.Errorf("%d invokes", seen)
	}
}

func TestResourceTooLarge(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uri := f.left("tok-worker", "big file", make([]byte, maxResource+1))
	_, err := f.connect("worker", "", nil).ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
	if err == nil || !strings.Contains(err.Error(), "GET /sandbox/execs/0199c0de-0000-7000-8000-000000000001/artifacts/big%20file") {
		t.Errorf("got %v", err)
	}
}

func TestMemoryOfResourcesIsCounted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	room := int64(1 << 20)
	f.hold = func(bytes int64) (func(), error) {
		if bytes > room {
			return nil, fault.New(fault.ServerBusy, "no room")
		}
		room -= bytes
		return func() {}, nil
	}
	session := f.connect("worker", "", nil)
	for _, c := range []struct {
		content string
		least   int64 // that it takes: the content, the text, and three times the answer
	}{
		{strings.Repeat("x", 100<<10), 5 * 100 << 10},
		{strings.Repeat("\x01", 10<<10), 20 * 10 << 10},
		{strings.Repeat("\xff", 30<<10), 6 * 30 << 10},
		{strings.Repeat("\x01", 100<<10), -1},
		{strings.Repeat("x", 6<<20), -1},
	} {
		room = 1 << 20
		uri := f.left("tok-worker", "file", []byte(c.content))
		_, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		if c.least < 0 {
			if err == nil || !strings.Contains(err.Error(), "server_busy") {
				t.Errorf("%d bytes of %q: %v", len(c.content), c.content[:1], err)
			}
		} else if took := 1<<20 - room; err != nil || took < c.least {
			t.Errorf("%d bytes of %q: %v, takes %d", len(c.content), c.content[:1], err, took)
		}
	}
}

func TestReadOutputOfRunningExec(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.left("tok-worker", "a.txt", nil)
	const id = "0199c0de-0000-7000-8000-000000000001"
	f.execs.mu.Lock()
	f.execs.records[id] = audit.Record{ExecID: id, RequestedBy: "tok-worker", Status: audit.Running}
	f.execs.mu.Unlock()
	session := f.connect("worker", "", nil)
	read, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uriOf(id, "stdout.txt")})
	if err != nil || read.Contents[0].Text != "first\nstdout so far\n" {
		t.Errorf("%v, %v", read, err)
	}
	if _, err = session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uriOf(id, "a.txt")}); err == nil ||
		!strings.Contains(err.Error(), "artifacts_pending") {
		t.Errorf("its artifacts: %v", err)
	}
}
