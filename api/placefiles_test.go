package api_test

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/sse/ssetest"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
	"secbox/sandbox/places"
	"secbox/workspace"
)

// projects are the projects of a workspace root.
type projects struct{ *workspace.Workspace }

// Files implements api.Projects.
func (p projects) Files(id string, create bool) (places.Files, error) {
	open := p.Existing
	if create {
		open = p.Project
	}
	project, err := open(id)
	if errors.Is(err, fs.ErrNotExist) {
		err = fault.Wrap(fault.UnknownFile, err, "there is no such project")
	}
	return places.Project{Of: project}, err
}

// List implements api.Projects.
func (p projects) List(_ context.Context, after string, limit int, may func(string) bool) (list []api.Project, more bool, err error) {
	ids, more, err := p.ProjectIDs(after, limit, may)
	for _, id := range ids {
		list = append(list, api.Project{ID: id})
	}
	return list, more, err
}

// Remove implements api.Projects.
func (p projects) Remove(ctx context.Context, id string) (int64, error) {
	bytes, _, err := p.RemoveProject(ctx, id, func(int64) (bool, error) { return true, nil })
	if errors.Is(err, fs.ErrNotExist) {
		err = fault.Wrap(fault.UnknownFile, err, "there is no such project")
	}
	return bytes, err
}

// filesPlace is the files of a session or a project over HTTP.
type filesPlace struct {
	*fixture
	token string
	route string // of its files
	name  string // of its operations
	path  string // of a directory
}

func (p filesPlace) at(route, name string) string {
	return p.route + route + "?path=" + url.QueryEscape(p.path+"/"+name)
}

func (p filesPlace) do(method, route, name string, body any, header ...string) reply {
	r := request{method: method, path: p.at(route, name), body: body, token: p.token, header: map[string]string{}}
	for i := 0; i+1 < len(header); i += 2 {
		r.header[header[i]] = header[i+1]
	}
	return p.fixture.do(r)
}

// inPlaces runs a test for a session and a project of a token of the project.
func inPlaces(t *testing.T, test func(t *testing.T, p filesPlace)) {
	t.Run("session", func(t *testing.T) {
		t.Parallel()
		f := start(t)
		id, secret := f.token(tokens.Spec{Role: tokens.Worker, Projects: []string{"demo"}})
		rec := f.record(func(r *audit.Record) {
			r.Status, r.SessionID, r.Cmd, r.ProjectID, r.RequestedBy = audit.Running, r.ExecID, "session", "demo", id
			r.ExitCode, r.EndedAt = nil, r.EndedAt.Truncate(1).AddDate(-9999, 0, 0)
		})
		test(t, filesPlace{f, secret, "/sandbox/sessions/" + rec.ExecID + "/files", "Session", t.TempDir()})
	})
	t.Run("project", func(t *testing.T) {
		t.Parallel()
		f := start(t)
		_, secret := f.token(tokens.Spec{Role: tokens.Worker, Projects: []string{"demo"}})
		test(t, filesPlace{f, secret, "/sandbox/projects/demo/files", "Project", "/workspace/work"})
	})
}

func TestFilesOfPlaces(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p filesPlace) {
		content := noise(300_000)
		tag, digest := digests(content)
		r := p.do("PUT", "/content", "d/a b", content)
		if got := decodeAs[wire.V1Written](t, r, 200); got.Size != int64(len(content)) || r.Header.Get("ETag") != tag {
			t.Errorf("%+v %v", got, r.Header)
		}
		rec := decodeAs[wire.ExecRecord](t, p.fixture.do(request{path: "/sandbox/execs/" + r.Header.Get("X-Exec-Id"), token: p.token}), 200)
		if rec.Cmd != "write"+p.name+"File" || rec.Kind != audit.KindChange || rec.ProjectID != "demo" || rec.Status != audit.Succeeded ||
			rec.Args[0] != p.path+"/d/a b" || rec.SHA256After != strings.Trim(tag, `"`)[len("sha256:"):] || rec.SHA256Before != "absent" ||
			rec.SizeAfter == nil || *rec.SizeAfter != int64(len(content)) || (rec.SessionID != "") != (p.name == "Session") {
			t.Errorf("%+v", rec)
		}
		r = p.do("GET", "/content", "d/a b", nil)
		if r.StatusCode != 200 || string(r.body) != string(content) || r.Header.Get("ETag") != tag || r.Header.Get("Repr-Digest") != digest {
			t.Errorf("%d, %d bytes, %v", r.StatusCode, len(r.body), r.Header)
		}
		if r = p.do("GET", "/content", "d/a b", nil, "Range", "bytes=10-19"); r.StatusCode != 206 || string(r.body) != string(content[10:20]) {
			t.Errorf("%d %q", r.StatusCode, r.body)
		}
		p.do("GET", "/content", "d", nil).wants(t, fault.InvalidRequest, "path")
		p.do("GET", "/content", "missing", nil).wants(t, fault.UnknownFile)
		p.do("PUT", "/content", "d/a b", []byte("x"), "If-None-Match", "*").wants(t, fault.PreconditionFailed)
		p.do("PUT", "/content", "d/a b", []byte("x"), "Repr-Digest", digest).wants(t, fault.InvalidRequest, "Repr-Digest")
		decodeAs[wire.V1Written](t, p.do("PUT", "/content", "d/a b", []byte("x"), "If-Match", tag), 200)

		move := func(body string) reply {
			return p.fixture.do(request{method: "POST", path: p.route + "/move", body: strings.ReplaceAll(body, "@", p.path), token: p.token})
		}
		for _, r := range []reply{
			p.do("PUT", "/directory", "e/f", nil), move(`{"path": "@/d/a b", "to": "@/e/f/g"}`), p.do("PUT", "/content", "d/h", []byte("h")),
		} {
			if r.StatusCode >= 300 || r.Header.Get("X-Exec-Id") == "" {
				t.Errorf("%d %s", r.StatusCode, r.body)
			}
		}
		move(`{"path": "@/d/h", "to": "@/e/f/g"}`).wants(t, fault.InputConflict)
		move(`{"path": "@/d/h", "to": "h"}`).wants(t, fault.InvalidRequest, "path")

		list := decodeAs[wire.FileListing](t, p.do("GET", "", "", nil), 200)
		if list.Type != "directory" || len(list.Entries) != 2 || list.Entries[0].Name != "d" || list.NextCursor != nil {
			t.Errorf("%+v", list)
		}
		first := decodeAs[wire.FileListing](t, p.fixture.do(request{path: p.at("", "") + "&limit=1", token: p.token}), 200)
		next := decodeAs[wire.FileListing](t, p.fixture.do(request{path: p.at("", "") + "&limit=1&cursor=" + *first.NextCursor, token: p.token}), 200)
		if len(next.Entries) != 1 || next.Entries[0].Name != "e" || next.NextCursor != nil {
			t.Errorf("%+v", next)
		}
		file := decodeAs[wire.FileListing](t, p.do("GET", "", "e/f/g", nil), 200)
		if file.Type != "file" || file.Size != 1 || file.Mode != "0644" || file.ModifiedAt == (wire.FileListing{}).ModifiedAt || len(file.Entries) != 0 {
			t.Errorf("%+v", file)
		}
		p.do("DELETE", "", "e", nil).wants(t, fault.InputConflict)
		if r := p.fixture.do(request{method: "DELETE", path: p.at("", "e") + "&recursive=true", token: p.token}); r.StatusCode != 204 {
			t.Errorf("%d %s", r.StatusCode, r.body)
		}
		p.do("DELETE", "", "e", nil).wants(t, fault.UnknownFile)
		changes := decodeAs[wire.ExecList](t, p.fixture.do(request{path: "/sandbox/execs?kind=change&limit=100", token: p.token}), 200)
		refused := 0
		for _, c := range changes.Items {
			if c.Status == audit.Rejected {
				refused++
			}
		}
		if len(changes.Items) != 12 || refused != 6 {
			t.Errorf("%d changes are on record, %d of them refused", len(changes.Items), refused)
		}
	})
}

// TestFilesAreOfTheirTokens: no token reaches files of a project or session that it may not use.
func TestFilesAreOfTheirTokens(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p filesPlace) {
		decodeAs[wire.V1Written](t, p.do("PUT", "/content", "a", []byte("secret")), 200)
		_, p.token = p.fixture.token(tokens.Spec{Role: tokens.Worker, Projects: []string{"other"}})
		code, field := fault.Forbidden, "project_id"
		if p.name == "Session" {
			code, field = fault.UnknownExec, "session_id"
		}
		for _, r := range []reply{
			p.do("GET", "", "a", nil), p.do("GET", "/content", "a", nil), p.do("PUT", "/content", "a", []byte("x")), p.do("PUT", "/directory", "b", nil),
			p.do("DELETE", "", "a", nil),
			p.fixture.do(request{method: "POST", path: p.route + "/move", body: `{"path": "/a", "to": "/b"}`, token: p.token}),
		} {
			r.wants(t, code, field)
		}
		_, p.token = p.fixture.token(tokens.Spec{Role: tokens.Auditor})
		p.do("GET", "/content", "a", nil).wants(t, fault.Forbidden)
	})
}

// TestLargeFileIsStreamed: a file that is larger than an answer in memory is sent while it is read.
func TestLargeFileIsStreamed(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p filesPlace) {
		content := noise(11 << 20)
		decodeAs[wire.V1Written](t, p.do("PUT", "/content", "large", content), 200)
		r := p.do("GET", "/content", "large", nil)
		if r.StatusCode != 200 || string(r.body) != string(content) || r.Header.Get("ETag") != "" {
			t.Errorf("%d, %d bytes", r.StatusCode, len(r.body))
		}
		r = p.do("GET", "/content", "large", nil, "Range", "bytes=11000000-11000009")
		if r.StatusCode != 206 || string(r.body) != string(content[11000000:11000010]) {
			t.Errorf("%d %q", r.StatusCode, r.body)
		}
	})
}

func TestUnknownProject(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.get("/sandbox/projects/none/files?path=/workspace/work").wants(t, fault.UnknownFile)
	f.get("/sandbox/projects/..bad/files?path=/workspace/work").wants(t, fault.InvalidRequest, "project_id")
	if _, err := os.Stat(filepath.Join(f.root, "projects", "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestProjectsAreListed(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, id := range []string{"c", "a", "ag~u", "b"} {
		if r := f.do(request{method: "PUT", path: "/sandbox/projects/" + id + "/files/directory?path=/workspace/work/d"}); r.StatusCode != 204 {
			t.Fatalf("%s", r.body)
		}
	}
	_, some := f.token(tokens.Spec{Role: tokens.Worker, Projects: []string{"b", "c"}})
	_, all := f.token(tokens.Spec{Role: tokens.Auditor})
	for token, want := range map[string]string{some: "b c", all: "a ag~u b c"} {
		var got []string
		for cursor := ""; ; {
			list := decodeAs[wire.ProjectList](t, f.do(request{path: "/sandbox/projects?limit=1" + cursor, token: token}), 200)
			for _, p := range list.Items {
				got = append(got, p.ProjectID)
			}
			if list.NextCursor == nil {
				break
			}
			cursor = "&cursor=" + *list.NextCursor
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q, want %s", got, want)
		}
	}
	f.do(request{path: "/sandbox/projects?cursor=*", token: all}).wants(t, fault.InvalidCursor)
	_, admin := f.token(tokens.Spec{Role: tokens.Admin})
	f.do(request{method: "DELETE", path: "/sandbox/projects/b", token: some}).wants(t, fault.Forbidden)
	f.do(request{method: "DELETE", path: "/sandbox/projects/none", token: admin}).wants(t, fault.UnknownFile)
	decodeAs[wire.ProjectRemoved](t, f.do(request{method: "DELETE", path: "/sandbox/projects/a", token: admin}), 200)
	f.do(request{path: "/sandbox/projects/a/files?path=/workspace/work", token: admin}).wants(t, fault.UnknownFile)
}

// TestSessionFilesAreWatched: what changes in a directory comes as events; what is no directory is
// refused before the stream.
func TestSessionFilesAreWatched(t *testing.T) {
	t.Parallel()
	f := start(t)
	dir := t.TempDir()
	path := "/sandbox/sessions/" + f.session().ExecID + "/files/watch?path="
	f.get(path+"/dev/null").wants(t, fault.InvalidRequest, "path")
	f.get(path+dir+"/missing").wants(t, fault.UnknownFile)
	f.get(path+dir+"&recursive=yes").wants(t, fault.InvalidRequest, "recursive")
	stream := f.open(request{path: path + dir})
	next := func() ssetest.Event {
		t.Helper()
		e, err := stream.Next()
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	if got := next(); got.Name != "watching" || !strings.Contains(got.Data, dir) {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := next(); got.Name != "created" || got.Data != `{"path":"`+dir+`/a","directory":false}` {
		t.Errorf("%+v", got)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for {
		if got := next(); got.Name == "removed" && strings.Contains(got.Data, dir+`"`) {
			return
		}
	}
}
