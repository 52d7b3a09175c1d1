package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/retention"
	"secbox/fault"
	"secbox/replay"
)

// keptInputs has the contents of all tokens' inputs by digest.
type keptInputs map[string]string

// add keeps a content, and returns the input.
func (k keptInputs) add(path, content string) audit.Input {
	sum := sha256.Sum256([]byte(content))
	digest := hex.EncodeToString(sum[:])
	k[digest] = content
	return audit.Input{Path: path, Size: int64(len(content)), SHA256: digest}
}

func (k keptInputs) Get(_ string, in audit.Input) ([]byte, error) {
	content, ok := k[in.SHA256]
	if !ok {
		return nil, fault.New(fault.NotReplayable, "the input is not kept")
	}
	return []byte(content), nil
}

func (k keptInputs) Kept(_ context.Context, _ string, inputs []audit.Input) ([]bool, error) {
	kept := make([]bool, len(inputs))
	for i, in := range inputs {
		_, kept[i] = k[in.SHA256]
	}
	return kept, nil
}

// startWithInputs starts a server that keeps inputs.
func startWithInputs(t *testing.T, change ...func(*api.Config)) (*fixture, keptInputs) {
	t.Helper()
	kept := keptInputs{}
	f := start(t, append(change, func(c *api.Config) { c.Replayer = replay.New(c.Runner.(*fakeRunner), kept, nil) })...)
	return f, kept
}

// TestInputDownloads: kept inputs are sent as attachments, whatever they contain and are called.
func TestInputDownloads(t *testing.T) {
	t.Parallel()
	f, kept := startWithInputs(t)
	files := map[string]string{
		"main.py": "print(1)", "a/b/page.html": "<script>alert(1)</script>", "blank here.txt": "1", "100%.txt": "2", "q?&#.txt": "3", "ü/日本.txt": "4",
		"empty": "", "a\u202ebin.exe": "MZ\x00",
	}
	rec := f.record(func(r *audit.Record) {
		for path, content := range files {
			r.Inputs = append(r.Inputs, kept.add(path, content))
		}
	})
	base := "/sandbox/execs/" + rec.ExecID + "/inputs"
	list := decodeAs[wire.ExecInputList](t, f.get(base), 200)
	if list.ExecID != rec.ExecID || len(list.Items) != len(files) || list.TotalBytes == 0 || list.Truncated {
		t.Errorf("%+v", list)
	}
	for i, item := range list.Items {
		if item.Path != rec.Inputs[i].Path || !item.Kept {
			t.Errorf("%+v", item)
		}
		for _, path := range []string{(&url.URL{Path: item.Path}).EscapedPath(), url.PathEscape(item.Path)} {
			r := f.get(base + "/" + path)
			kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Disposition"))
			if r.StatusCode != 200 || string(r.body) != files[item.Path] || kind != "attachment" || err != nil ||
				strings.ContainsAny(params["filename"], "/\\\u202e") {
				t.Errorf("%q as %s: %d %q, %q", item.Path, path, r.StatusCode, r.body, r.Header.Get("Content-Disposition"))
			}
			if r.Header.Get("Content-Type") != "application/octet-stream" || r.Header.Get("ETag") != `"sha256:`+item.SHA256+`"` ||
				!strings.HasPrefix(r.Header.Get("Content-Security-Policy"), "sandbox") {
				t.Errorf("%q: %v", item.Path, r.Header)
			}
			if again := f.do(request{
				path:   base + "/" + path,
				header: map[string]string{"If-None-Match": r.Header.Get("ETag")},
			}); again.StatusCode != http.StatusNotModified {
				t.Errorf("%q: If-None-Match: %d", item.Path, again.StatusCode)
			}
		}
	}
	if part := f.do(request{path: base + "/main.py", header: map[string]string{"Range": "bytes=2-4"}}); part.StatusCode != http.StatusPartialContent ||
		string(part.body) != "int" {
		t.Errorf("%d %q", part.StatusCode, part.body)
	}
	f.do(request{path: base + "/main.py", header: map[string]string{"Range": "bytes=99-"}}).wants(t, fault.RangeUnsatisfiable)
	if r := f.do(request{method: "HEAD", path: base + "/main.py"}); r.StatusCode != 200 || len(r.body) > 0 || r.ContentLength != 8 {
		t.Errorf("HEAD: %d, %d bytes", r.StatusCode, r.ContentLength)
	}
	for _, path := range []string{
		"none", "../main.py", "..%2fmain.py", "/main.py", "%2fmain.py", "./main.py", "main.py/", "main.py%00", "MAIN.PY", "a/b",
		"%ff", "main%252Epy", strings.Repeat("a/", 2500),
	} {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", f.url, nil)
		req.URL.Opaque = base + "/" + path // no client cleans it
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound || resp.Header.Get("Content-Disposition") != "" {
			t.Errorf("%.40q: %d", path, resp.StatusCode)
		}
	}
	f.get(base+"/none").wants(t, fault.UnknownInput)

	lost := rec.Inputs[0]
	delete(kept, lost.SHA256)
	gone := f.get(base + "/" + (&url.URL{Path: lost.Path}).EscapedPath())
	if p := gone.wants(t, fault.InputNotKept); gone.StatusCode != http.StatusGone || !strings.Contains(p.Detail, lost.SHA256) ||
		gone.Header.Get("Content-Disposition") != "" {
		t.Errorf("%d %s", gone.StatusCode, gone.body)
	}
	if list := decodeAs[wire.ExecInputList](t, f.get(base), 200); list.Items[0].Kept || !list.Items[1].Kept {
		t.Errorf("%+v", list)
	}
	if list := decodeAs[wire.ExecInputList](t, f.get("/sandbox/execs/"+f.record(nil).ExecID+"/inputs"), 200); len(list.Items) != 0 {
		t.Errorf("without inputs: %+v", list)
	}
}

// TestInputsAreForThoseWhoMaySee: a worker gets the inputs of its own execs. An auditor gets all
// inputs, and each of its downloads is on record.
func TestInputsAreForThoseWhoMaySee(t *testing.T) {
	t.Parallel()
	f, kept := startWithInputs(t)
	worker, own := f.token(tokens.Spec{Role: tokens.Worker})
	_, other := f.token(tokens.Spec{Role: tokens.Worker})
	_, agents := f.token(tokens.Spec{Role: tokens.AgentAdmin, Agents: []string{"ag"}})
	auditor, secret := f.token(tokens.Spec{Role: tokens.Auditor, Name: "eve"})
	rec := f.record(func(r *audit.Record) { r.RequestedBy, r.Inputs = worker, []audit.Input{kept.add("in.txt", "content")} })
	f.logEvents()
	base := "/sandbox/execs/" + rec.ExecID + "/inputs"
	for _, path := range []string{base, base + "/in.txt"} {
		for _, token := range []string{own, secret} {
			if r := f.do(request{path: path, token: token}); r.StatusCode != 200 {
				t.Errorf("%s: %d %s", path, r.StatusCode, r.body)
			}
			f.do(request{method: "HEAD", path: path, token: token})
		}
		f.do(request{path: path, token: other}).wants(t, fault.UnknownExec)
		f.do(request{path: path, token: agents}).wants(t, fault.Forbidden)
	}
	f.do(request{path: base + "/none", token: secret}).wants(t, fault.UnknownInput)
	want := []string{"token " + auditor + " eve " + rec.ExecID + ` {"path":"in.txt","what":"input"}`}
	if got := f.told(secret, admin.Download); !slices.Equal(got, want) {
		t.Errorf("events %q", got)
	}

	f.removePart(retention.Artifacts, rec.ExecID)
	if r := f.do(request{path: base + "/in.txt", token: own}); r.StatusCode != 200 { // its content waits for a sweep
		t.Errorf("while it is kept: %d", r.StatusCode)
	}
	clear(kept)
	f.do(request{path: base + "/in.txt", token: own}).wants(t, fault.RemovedByRetention)
	f.removePart(retention.Records, rec.ExecID)
	f.do(request{path: base, token: own}).wants(t, fault.RemovedByRetention)
	f.do(request{path: base + "/in.txt", token: other}).wants(t, fault.UnknownExec)
}

// TestInputsAreCountedAsMemory: a content that does not fit into the caller's memory is refused,
// and no event says that it was sent.
func TestInputsAreCountedAsMemory(t *testing.T) {
	t.Parallel()
	f, kept := startWithInputs(t, small)
	worker, _ := f.token(tokens.Spec{Role: tokens.Worker})
	_, secret := f.token(tokens.Spec{Role: tokens.Auditor})
	rec := f.record(func(r *audit.Record) {
		r.RequestedBy, r.Inputs = worker, []audit.Input{kept.add("small", "x"), kept.add("large", strings.Repeat("x", 1<<20))}
	})
	f.logEvents()
	base := "/sandbox/execs/" + rec.ExecID + "/inputs/"
	f.do(request{path: base + "large", token: secret}).wants(t, fault.ServerBusy)
	if got := f.told(secret, admin.Download); len(got) != 0 {
		t.Errorf("events %q", got)
	}
	if r := f.do(request{path: base + "small", token: secret}); r.StatusCode != 200 {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
}

// TestNoInputWithoutEvent: what the database does not record is not sent.
func TestNoInputWithoutEvent(t *testing.T) {
	t.Parallel()
	f, kept := startWithInputs(t, func(c *api.Config) { c.Downloads = noDownloads{} })
	worker, _ := f.token(tokens.Spec{Role: tokens.Worker})
	_, secret := f.token(tokens.Spec{Role: tokens.Auditor})
	rec := f.record(func(r *audit.Record) { r.RequestedBy, r.Inputs = worker, []audit.Input{kept.add("in.txt", "content")} })
	f.do(request{path: "/sandbox/execs/" + rec.ExecID + "/inputs/in.txt", token: secret}).wants(t, fault.DatabaseUnavailable)
}
