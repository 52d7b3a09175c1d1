package api_test

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/fault"
	"secbox/packages/library"
)

func TestSkillFromUploadToDownload(t *testing.T) {
	t.Parallel()
	f := start(t)
	const base = "/v1/skills/1001/agent001/weather_skill"
	if got := data[string](t, f.upload("1001/agent001", "overlay", "myskill.zip",
		weather(t))); got != "Upload successful: skill 'weather_skill' to 'overlay/1001/agent001/weather_skill'" {
		t.Error(got)
	}
	f.nothingWaits()
	list := data[[]map[string]any](t, f.get("/v1/skills/1001/agent001/list"))
	if want := []map[string]any{{"name": "天气查询技能", "description": "提供全球实时天气查询服务"}}; !reflect.DeepEqual(list, want) {
		t.Errorf("listed %v", list)
	}
	status := data[[]map[string]any](t, f.get("/v1/skills/1001/agent001/status"))
	if len(status) != 1 || status[0]["skill_id"] != "weather_skill" || status[0]["status"] != "NEW" || status[0]["baseline_changed"] != false {
		t.Errorf("status %v", status)
	}
	if got := data[[]string](t, f.get(base+"/files")); !slices.Equal(got, []string{"SKILL.md", "main.py", "utils/helper.py"}) {
		t.Errorf("files %q", got)
	}
	for query, want := range map[string]any{
		"path=utils/helper.py":           "X = 1\n",
		"path=main.py":                   "import sys\nimport os\n\ndef main():\n    print('Hello Sandbox')\n",
		"path=main.py&start=1&end=2":     []any{"import sys", "import os"},
		"path=main.py&start=5":           []any{"    print('Hello Sandbox')"},
		"path=main.py&end=1":             []any{"import sys"},
		"path=main.py&start=5&end=90":    []any{"    print('Hello Sandbox')"},
		"path=main.py&start=80&end=90":   []any{},
		"path=.%2Futils%2Fhelper.py":     "X = 1\n",
		"path=main.py&start=3&end=3":     []any{""},
		"path=utils/helper.py&start=001": []any{"X = 1"},
	} {
		if got := data[map[string]any](t, f.get(base+"/content?"+query)); !reflect.DeepEqual(got["content"], want) {
			t.Errorf("%s: %q, want %q", query, got["content"], want)
		}
	}
	edit := f.do(request{
		method: "PUT", path: base + "/edit?path=main.py&start=1&end=2", body: "import json",
		header: map[string]string{"Content-Type": "text/plain"},
	})
	if got := data[string](t, edit); got != "Skill file updated successfully." {
		t.Error(got)
	}
	if got := data[map[string]any](t, f.get(base+"/content?path=main.py&end=2")); !reflect.DeepEqual(got["content"], []any{"import json", ""}) {
		t.Errorf("after the edit: %q", got)
	}
	r := f.get(base + "/download")
	archive, err := zip.NewReader(bytes.NewReader(r.body), int64(len(r.body)))
	if err != nil || r.Header.Get("Content-Type") != "application/zip" ||
		!strings.Contains(r.Header.Get("Content-Disposition"), `filename="weather_skill.zip"`) {
		t.Fatalf("%v %v", err, r.Header)
	}
	var names []string
	for _, file := range archive.File {
		if !strings.HasSuffix(file.Name, "/") {
			names = append(names, file.Name)
		}
	}
	if slices.Sort(names); !slices.Equal(names, []string{"weather_skill/SKILL.md", "weather_skill/main.py", "weather_skill/utils/helper.py"}) {
		t.Errorf("the archive holds %q", names)
	}
	if head := f.do(request{method: "HEAD", path: base + "/download"}); head.StatusCode != 200 || len(head.body) > 0 {
		t.Errorf("HEAD: %d %q", head.StatusCode, head.body)
	}
	if got := data[string](t, f.upload("2/agent001", "", "x.zip", string(r.body))); !strings.Contains(got, "'overlay/2/agent001/weather_skill'") {
		t.Errorf("a downloaded archive cannot be uploaded: %s", got)
	}
	if got := data[string](t, f.do(request{method: "DELETE", path: base})); got != "Skill 'weather_skill' deleted from 'overlay/1001/agent001/weather_skill'" {
		t.Error(got)
	}
	f.get(base+"/files").refused(t, fault.UnknownSkill)
	f.get(base+"/download").refused(t, fault.UnknownSkill)
	if head := f.do(request{method: "HEAD", path: base + "/download"}); head.StatusCode != 404 {
		t.Errorf("HEAD of a missing skill: %d", head.StatusCode)
	}
	if r := f.get("/v1/skills/1001/agent001/list"); string(r.body) != `{"status":"success","data":[]}`+"\n" {
		t.Errorf("%s", r.body)
	}
}

// TestUnusualSkillIDs: ids may be Unicode, and equal to a part of a route.
func TestUnusualSkillIDs(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, id := range []string{"技能", "two words", "100%", "a+b", "list", "status", "upload", "Ärger", "x'y&z=1", "(1)"} {
		archive := zipOf(t, map[string]string{id + "/SKILL.md": "# " + id, id + "/ü.txt": "hi"})
		if got := data[string](t, f.upload("u/ag", "overlay", "x.zip", archive)); !strings.Contains(got, "skill '"+id+"'") {
			t.Errorf("%q: %s", id, got)
		}
		base := "/v1/skills/u/ag/" + url.PathEscape(id)
		if got := data[[]string](t, f.get(base+"/files")); !slices.Equal(got, []string{"SKILL.md", "ü.txt"}) {
			t.Errorf("%q: files %q", id, got)
		}
		if got := data[map[string]string](t, f.get(base+"/content?path="+url.QueryEscape("ü.txt"))); got["content"] != "hi" {
			t.Errorf("%q: %q", id, got)
		}
		data[string](t, f.do(request{method: "DELETE", path: base}))
	}
	// An archive without a top folder has the file's name.
	if got := data[string](t, f.upload("u/ag", "overlay", "我的技能.zip", zipOf(t, map[string]string{"SKILL.md": "# x"}))); !strings.Contains(got, "'我的技能'") {
		t.Error(got)
	}
	data[string](t, f.upload("u/ag", "overlay", "x.zip", zipOf(t, map[string]string{"plain/run.py": "1"})))
	if one := f.statusOf("u", "plain", ""); one["name"] != "plain" || one["description"] != "No description available." {
		t.Errorf("without a SKILL.md it is %v", one)
	}
}

// TestUploadsOfArchivesAsPeopleHaveThem: an archive of several skills is named, and what of a
// description is not read is said in all lists.
func TestUploadsOfArchivesAsPeopleHaveThem(t *testing.T) {
	t.Parallel()
	f := start(t)
	repository := zipOf(t, map[string]string{
		"repo-main/README.md": "# Skills", "repo-main/pdf/SKILL.md": "---\nname: pdf\ndescription: Use when: a PDF comes\n---\n",
		"repo-main/docx/SKILL.md": "---\nname: Docx\n---\n",
	})
	r := f.upload("u/ag", "overlay", "repo.zip", repository)
	if says := r.refused(t, fault.SeveralSkills, "path", "path"); !strings.Contains(says, `"docx", "pdf"`) ||
		!strings.Contains(string(r.body), `{"field":"path","reason":"docx"},{"field":"path","reason":"pdf"}`) {
		t.Errorf("%s", r.body)
	}
	const undescribed = "there is no description, so agents cannot tell when to use it: add one to the front matter of SKILL.md"
	for query, want := range map[string]string{
		"path=pdf": `{"status":"success","data":"Upload successful: skill 'pdf' to 'overlay/u/ag/pdf'"}`,
		"all=true": `{"status":"success","data":"Upload successful: skill 'docx' to 'overlay/u/ag/docx', skill 'pdf' to 'overlay/u/ag/pdf'","warnings":["skill 'docx': ` + undescribed + `"]}`,
	} {
		if r := f.upload("u/ag", "overlay&"+query, "repo.zip", repository); r.StatusCode != 200 || strings.TrimSpace(string(r.body)) != want {
			t.Errorf("%s: %d %s", query, r.StatusCode, r.body)
		}
	}
	for query, field := range map[string]string{"path=pd": "path", "path=pdf&all=true": "path", "all=yes": "all"} {
		f.upload("u/ag", "overlay&"+query, "repo.zip", repository).refused(t, fault.InvalidRequest, field)
	}
	if r := f.get("/v1/skills/u/ag/list"); string(r.body) != `{"status":"success","data":[{"name":"Docx","description":"No description available.","warning":"`+
		undescribed+
		`"},{"name":"pdf","description":"Use when: a PDF comes"}]}`+"\n" {
		t.Errorf("%s", r.body)
	}
	if one := f.statusOf("u", "docx", ""); one["warning"] != undescribed {
		t.Errorf("%v", one)
	}
}

func TestBaselineAndOverlayOfTwoUsers(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, admin := f.token(tokens.Spec{Role: tokens.AgentAdmin, Agents: []string{"ag"}})
	_, worker := f.token(tokens.Spec{Role: tokens.Worker})
	_, ofUser := f.token(tokens.Spec{Role: tokens.Worker, Agents: []string{"ag"}, Users: []string{"ann"}})
	_, ofProject := f.token(tokens.Spec{Role: tokens.Worker, Projects: []string{"ag~ann"}})
	message := f.upload("ann/ag", "baseline", "x.zip", weather(t), as(worker)).refused(t, fault.Forbidden)
	if !strings.Contains(message, "agent-admin, admin") {
		t.Errorf("%q does not say who may", message)
	}
	f.upload("ann/other", "baseline", "x.zip", weather(t), as(admin)).refused(t, fault.Forbidden, "agentId")
	if got := data[string](t, f.upload("ann/ag", "baseline", "x.zip", weather(t),
		as(admin))); got != "Upload successful: skill 'weather_skill' to 'baseline/ag/weather_skill'" {
		t.Error(got)
	}
	data[string](t, f.upload("bob/ag", "overlay", "x.zip", weather(t, "main.py", "bob\n"), as(worker)))
	read := func(user, secret string) reply {
		return f.do(request{path: "/v1/skills/" + user + "/ag/weather_skill/content?path=main.py&end=1", token: secret})
	}
	for user, want := range map[string]string{"ann": "import sys", "bob": "bob", "cleo": "import sys"} {
		if got := data[map[string][]string](t, read(user, worker)); !slices.Equal(got["content"], []string{want}) {
			t.Errorf("%s reads %q", user, got)
		}
	}
	f.do(request{method: "DELETE", path: "/v1/skills/bob/ag/weather_skill?scope=baseline", token: worker}).refused(t, fault.Forbidden)

	// A token of one user, and of one workspace.
	for _, secret := range []string{ofUser, ofProject} {
		data[map[string][]string](t, read("ann", secret))
		data[string](t, f.upload("ann/ag", "overlay", "x.zip", weather(t), as(secret)))
	}
	for _, r := range []request{
		{path: "/v1/skills/bob/ag/list"},
		{path: "/v1/skills/bob/ag/status"},
		{path: "/v1/skills/bob/ag/weather_skill/files"},
		{path: "/v1/skills/bob/ag/weather_skill/content?path=main.py"},
		{path: "/v1/skills/bob/ag/weather_skill/download"},
		{method: "PUT", path: "/v1/skills/bob/ag/weather_skill/edit?path=main.py", body: "x"},
		{method: "POST", path: "/v1/skills/bob/ag/weather_skill/execute?command=ls", body: "[]"},
		{method: "DELETE", path: "/v1/skills/bob/ag/weather_skill"},
		{path: "/v1/sandbox/bob/ag/files"},
		{path: "/v1/sandbox/bob/ag/content?path=a"},
		{method: "PUT", path: "/v1/sandbox/bob/ag/edit?path=a", body: "x"},
		{method: "POST", path: "/v1/sandbox/bob/ag/execute?command=ls", body: "[]"},
	} {
		r.token = ofUser
		f.do(r).refused(t, fault.Forbidden, "userId")
		r.token = ofProject
		f.do(r).refused(t, fault.Forbidden, "agentId")
	}
	f.upload("bob/ag", "overlay", "x.zip", weather(t), as(ofUser)).refused(t, fault.Forbidden, "userId")
	f.do(request{path: "/v1/skills/ann/other/list", token: ofUser}).refused(t, fault.Forbidden, "agentId")
	if got := data[map[string][]string](t, read("bob", worker)); !slices.Equal(got["content"], []string{"bob"}) {
		t.Errorf("bob's skill was changed: %q", got)
	}
}

func TestBadUploads(t *testing.T) {
	t.Parallel()
	f := start(t, func(cfg *api.Config) { cfg.MaxUploadBytes = 64 << 10 })
	const path = "/v1/skills/u/ag/upload"
	archive := weather(t)
	noise := func(n int) string { return strings.Repeat("not a zip ", n/10) }
	whole, contentType := form(t, [3]string{"file", "a.zip", archive})
	send := func(body any, contentType string) reply {
		return f.do(request{method: "POST", path: path, body: body, header: map[string]string{"Content-Type": contentType}})
	}
	for name, tc := range map[string]struct {
		body, contentType string
		code              fault.Code
		field             string
	}{
		"no form":                {archive, "application/zip", fault.UnsupportedMedia, ""},
		"JSON":                   {`{"file": "a"}`, "application/json", fault.UnsupportedMedia, ""},
		"a form without parts":   {"file=a", "application/x-www-form-urlencoded", fault.UnsupportedMedia, ""},
		"no boundary":            {whole, "multipart/form-data", fault.UnsupportedMedia, ""},
		"another multipart":      {whole, strings.Replace(contentType, "form-data", "mixed", 1), fault.UnsupportedMedia, ""},
		"another boundary":       {whole, "multipart/form-data; boundary=x", fault.InvalidRequest, "file"},
		"nothing":                {"", contentType, fault.InvalidRequest, "file"},
		"cut off in the file":    {whole[:len(whole)/2], contentType, fault.InvalidRequest, ""},
		"cut off before its end": {whole[:len(whole)-10], contentType, fault.InvalidRequest, ""},
	} {
		t.Log(name)
		if tc.field == "" {
			send(tc.body, tc.contentType).refused(t, tc.code)
		} else {
			send(tc.body, tc.contentType).refused(t, tc.code, tc.field)
		}
	}
	for name, tc := range map[string]struct {
		parts [][3]string
		code  fault.Code
		field string
	}{
		"no file":       {nil, fault.InvalidRequest, "file"},
		"another field": {[][3]string{{"archive", "a.zip", archive}}, fault.InvalidRequest, "archive"},
		"a bad scope":   {[][3]string{{"file", "a.zip", archive}, {"scope", "", "mine"}}, fault.InvalidRequest, "scope"},
		"a long scope":  {[][3]string{{"file", "a.zip", archive}, {"scope", "", noise(1000)}}, fault.InvalidRequest, "scope"},
		"two scopes":    {[][3]string{{"scope", "", "overlay"}, {"scope", "", "overlay"}, {"file", "a.zip", archive}}, fault.InvalidRequest, "scope"},
		"two files":     {[][3]string{{"file", "a.zip", archive}, {"file", "b.zip", archive}}, fault.InvalidRequest, "file"},
		"empty":         {[][3]string{{"file", "a.zip", ""}}, fault.InvalidArchive, ""},
		"noise":         {[][3]string{{"file", "a.zip", noise(30_000)}}, fault.InvalidArchive, ""},
		"cut off":       {[][3]string{{"file", "a.zip", archive[:len(archive)-30]}}, fault.InvalidArchive, ""},
		"climbs":        {[][3]string{{"file", "a.zip", zipOf(t, map[string]string{"a/SKILL.md": "# a", "a/../../x": "x"})}}, fault.InvalidArchive, ""},
		"reserved":      {[][3]string{{"file", "a.zip", zipOf(t, map[string]string{"skill-creator/SKILL.md": "# a"})}}, fault.ReservedSkill, ""},
		"a byte more":   {[][3]string{{"file", "a.zip", noise(64<<10 + 10)}}, fault.ArchiveTooLarge, ""},
		"far more":      {[][3]string{{"file", "a.zip", noise(1 << 20)}}, fault.ArchiveTooLarge, ""},
	} {
		body, contentType := form(t, tc.parts...)
		fields := []string{tc.field}
		if tc.field == "" {
			fields = nil
		}
		t.Log(name)
		send(body, contentType).refused(t, tc.code, fields...)
		send(io.MultiReader(strings.NewReader(body)), contentType).refused(t, tc.code, fields...) // without a length
	}
	r := request{method: "POST", path: path, body: whole, header: map[string]string{"Content-Type": contentType, "Content-Encoding": "gzip"}}
	f.do(r).refused(t, fault.UnsupportedMedia)
	for query, field := range map[string]string{"?scope=mine": "scope", "?scope=overlay&scope=baseline": "scope", "?skope=overlay": "skope"} {
		f.do(request{method: "POST", path: path + query, body: whole, header: map[string]string{"Content-Type": contentType}}).refused(t, fault.InvalidRequest,
			field)
	}
	_, worker := f.token(tokens.Spec{Role: tokens.Worker})
	_, admin := f.token(tokens.Spec{Role: tokens.Admin})
	for _, parts := range [][][3]string{{{"scope", "", "baseline"}, {"file", "a.zip", archive}}, {{"file", "a.zip", archive}, {"scope", "", "baseline"}}} {
		body, contentType := form(t, parts...)
		header := map[string]string{"Content-Type": contentType}
		f.do(request{method: "POST", path: path + "?scope=overlay", body: body, header: header, token: admin}).refused(t, fault.InvalidRequest, "scope")
		f.do(request{method: "POST", path: path, body: body, header: header, token: worker}).refused(t, fault.Forbidden)
	}
	send = func(body any, contentType string) reply {
		return f.do(request{method: "POST", path: path, body: body, header: map[string]string{"Content-Type": contentType}, token: admin})
	}
	f.nothingWaits()
	if list := data[[]any](t, f.do(request{path: "/v1/skills/u/ag/list", token: admin})); len(list) > 0 {
		t.Errorf("something was uploaded: %v", list)
	}
	if r := send(whole, contentType); r.StatusCode != 200 {
		t.Errorf("the good one: %d %s", r.StatusCode, r.body)
	}
}

func TestEscapingPaths(t *testing.T) {
	t.Parallel()
	f := start(t)
	data[string](t, f.upload("u/ag", "overlay", "x.zip", weather(t)))
	data[string](t, f.do(request{method: "PUT", path: "/v1/sandbox/u/ag/edit?path=temp.txt", body: "hi"}))
	for _, path := range []string{
		"../SKILL.md", "..", "/etc/passwd", "utils/../../x", `..\x`, `C:\x`, "C:/x", "a\x00b", "//x", "utils/..", "/", "\x00", "a/../../../../../etc/passwd",
	} {
		query := "path=" + url.QueryEscape(path)
		for _, r := range []request{
			{path: "/v1/skills/u/ag/weather_skill/content?" + query},
			{path: "/v1/sandbox/u/ag/content?" + query},
			{method: "PUT", path: "/v1/skills/u/ag/weather_skill/edit?" + query, body: "x"},
			{method: "PUT", path: "/v1/sandbox/u/ag/edit?" + query, body: "x"},
		} {
			if message := f.do(r).refused(t, fault.PathRefused, "path"); strings.Contains(message, f.root) {
				t.Errorf("%q tells where the workspace is: %s", path, message)
			}
		}
	}
	for _, r := range []request{
		{path: "/v1/skills/u/ag/weather_skill/content?path=nope"},
		{path: "/v1/skills/u/ag/weather_skill/content?path=utils"},
		{path: "/v1/sandbox/u/ag/content?path=nope"},
		{path: "/v1/sandbox/unused/ag/content?path=nope"},
	} {
		if code := f.do(r); code.StatusCode != 404 && code.StatusCode != 400 {
			t.Errorf("%s: %d %s", r.path, code.StatusCode, code.body)
		}
	}
	for _, owner := range []string{
		"..%2F/ag", "u/..", "a~b/ag", "u/a~b", "u%00/ag", "-u/ag", "u/" + strings.Repeat("a", 64), "ü/ag", "u%2Fx/ag", "CON/ag",
		"u./ag",
	} {
		for _, path := range []string{"/v1/skills/" + owner + "/list", "/v1/sandbox/" + owner + "/files"} {
			if r := f.get(path); r.StatusCode != 400 && r.StatusCode != 404 || !strings.HasPrefix(string(r.body), `{"status":"error"`) {
				t.Errorf("%s: %d %s", path, r.StatusCode, r.body)
			}
		}
	}
	for _, id := range []string{"..", "%2E%2E", "a%2Fb", "..%2F..%2Fx", "a%00b", "a%5Cb", strings.Repeat("a", 300)} {
		for _, r := range []request{
			{path: "/v1/skills/u/ag/" + id + "/files"},
			{path: "/v1/skills/u/ag/" + id + "/content?path=a"},
			{path: "/v1/skills/u/ag/" + id + "/download"},
			{method: "POST", path: "/v1/skills/u/ag/" + id + "/execute?command=ls", body: "[]"},
			{method: "DELETE", path: "/v1/skills/u/ag/" + id},
		} {
			if r := f.do(r); r.StatusCode < 400 || r.StatusCode >= 500 || !strings.HasPrefix(string(r.body), `{"status":"error"`) {
				t.Errorf("%s: %d %s", id, r.StatusCode, r.body)
			}
		}
	}
	if len(f.runner.seen()) > 0 {
		t.Error("something ran")
	}
}

func TestBadQueriesBelowV1(t *testing.T) {
	t.Parallel()
	f := start(t)
	data[string](t, f.upload("u/ag", "overlay", "x.zip", weather(t, "binary", "\xff\xfe\x00")))
	const content = "/v1/skills/u/ag/weather_skill/content"
	for query, fields := range map[string][]string{
		"":                                    {"path"},
		"?path=":                              {"path"},
		"?path=a&path=b":                      {"path"},
		"?path=main.py&start=0":               {"start"},
		"?path=main.py&start=-1&end=x":        {"end", "start"},
		"?path=main.py&start=2&end=1":         {"start"},
		"?path=main.py&start=":                {"start"},
		"?path=main.py&start=1.5":             {"start"},
		"?path=main.py&end=99999999999999999": {"end"},
		"?path=main.py&line=1":                {"line"},
		"?path=binary":                        {"path"},
		"?path=binary&start=1":                {"path"},
	} {
		t.Log(query)
		f.get(content+query).refused(t, fault.InvalidRequest, fields...)
	}
	for query, fields := range map[string][]string{
		"?path=main.py&start=1":         {"end"},
		"?path=main.py&end=1":           {"start"},
		"?path=main.py&start=3&end=2":   {"start"},
		"?path=main.py&start=50&end=51": {"start"},
		"?path=binary&start=1&end=1":    {"path"},
		"?start=1&end=2":                {"path"},
		"?path=main.py&force=true":      {"force"},
	} {
		t.Log(query)
		f.do(request{method: "PUT", path: "/v1/skills/u/ag/weather_skill/edit" + query, body: "x"}).refused(t, fault.InvalidRequest, fields...)
	}
	if got := data[map[string]string](t, f.get(content+"?path=main.py")); !strings.HasPrefix(got["content"], "import sys\n") {
		t.Errorf("it was changed: %q", got)
	}
}

// TestErrorsBelowV1: even if no route matches.
func TestErrorsBelowV1(t *testing.T) {
	t.Parallel()
	f := start(t, func(cfg *api.Config) { cfg.Library = panicking{cfg.Library}; cfg.MaxBodyBytes = 2000 })
	f.get("/v1/nowhere").refused(t, fault.NotFound)
	f.get("/v1/").refused(t, fault.NotFound)
	f.get("/v1/skills//ag/list").refused(t, fault.NotFound)
	f.get("/v1x").wants(t, fault.NotFound)
	f.do(request{method: "PATCH", path: "/v1/skills/u/ag/list"}).refused(t, fault.MethodNotAllowed)
	f.do(request{path: "/v1/skills/u/ag/list", host: "evil.example"}).refused(t, fault.ForeignHost)
	f.do(request{path: "/v1/skills/u/ag/list", header: map[string]string{"Origin": "http://evil.example"}}).refused(t, fault.ForeignOrigin)
	if message := f.get("/v1/skills/u/ag/list").refused(t, fault.Internal); strings.Contains(message, "secret") {
		t.Error(message)
	}
	if !strings.Contains(f.log.String(), "a secret panic") {
		t.Error("the log does not have the panic")
	}
	const execute = "/v1/sandbox/u/ag/execute?command=ls"
	f.post(execute, `{"args": []}`).refused(t, fault.InvalidRequest)
	f.post(execute, `["a", 1]`).refused(t, fault.InvalidRequest, "[1]")
	f.post(execute, `[null]`).refused(t, fault.InvalidRequest, "[0]")
	f.post(execute, `null`).refused(t, fault.InvalidRequest)
	f.post(execute, `["a"`).refused(t, fault.InvalidJSON)
	f.post(execute, `["`+strings.Repeat("a", 2000)+`"]`).refused(t, fault.BodyTooLarge)
	f.do(request{method: "POST", path: execute, body: `[]`, header: map[string]string{"Content-Type": "text/plain"}}).refused(t, fault.UnsupportedMedia)
	f.post("/v1/sandbox/u/ag/execute", `[]`).refused(t, fault.InvalidRequest, "command")
	_, secret := f.token(tokens.Spec{Role: tokens.Auditor})
	r := f.get("/v1/skills/u/ag/list")
	r.refused(t, fault.Unauthenticated)
	if r.Header.Get("WWW-Authenticate") == "" || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%v", r.Header)
	}
	f.do(request{method: "DELETE", path: "/v1/skills/u/ag/s", token: secret}).refused(t, fault.Forbidden)
	f.do(request{path: "/v1/skills/u/ag/list", token: "wrong"}).refused(t, fault.Unauthenticated)
	f.db.Close()
	f.do(request{path: "/v1/skills/u/ag/list", token: secret}).refused(t, fault.DatabaseUnavailable)
}

// panicking panics in every call.
type panicking struct{ api.Library }

func (panicking) List(context.Context, library.Owner) ([]library.Listed, error) {
	panic("a secret panic")
}

// TestEditIgnoresContentType: curl -d declares every body a form.
func TestEditIgnoresContentType(t *testing.T) {
	t.Parallel()
	f := start(t, func(cfg *api.Config) { cfg.MaxBodyBytes = 5000 })
	const edit, content = "/v1/sandbox/u/ag/edit?path=a/b.txt", "/v1/sandbox/u/ag/content?path=a/b.txt"
	put := func(body any, contentType string, more ...string) reply {
		header := map[string]string{"Content-Type": contentType}
		for i := 0; i+1 < len(more); i += 2 {
			header[more[i]] = more[i+1]
		}
		return f.do(request{method: "PUT", path: edit, body: body, header: header})
	}
	for i, contentType := range []string{
		"text/plain", "", "application/x-www-form-urlencoded", "text/plain; charset=UTF-8", "text/markdown", "application/json", "application/octet-stream",
		"text/plain; charset=us-ascii",
	} {
		want := fmt.Sprintf("a=b&c=%%20+d&path=x.txt\r\nüñ %d", i)
		if got := data[string](t, put(want, contentType)); got != "Sandbox file updated successfully." {
			t.Error(got)
		}
		if got := data[map[string]string](t, f.get(content)); got["content"] != want {
			t.Errorf("%q: %q, want %q", contentType, got["content"], want)
		}
	}
	for _, tc := range []struct {
		r    reply
		code fault.Code
	}{
		{put("x", "multipart/form-data; boundary=x"), fault.UnsupportedMedia},
		{put("x", "text/plain; charset=gbk"), fault.UnsupportedMedia},
		{put("x", "text plain"), fault.UnsupportedMedia},
		{put("x", "text/plain", "Content-Encoding", "gzip"), fault.UnsupportedMedia},
		{put("\xc4\xe3", "text/plain"), fault.InvalidRequest},
		{put(strings.Repeat("a", 5001), "text/plain"), fault.BodyTooLarge},
		{put(io.MultiReader(strings.NewReader(strings.Repeat("a", 5001))), "text/plain"), fault.BodyTooLarge},
	} {
		tc.r.refused(t, tc.code)
	}
	if got := data[map[string]string](t, f.get(content)); !strings.HasSuffix(got["content"], " 7") {
		t.Errorf("a refused edit has changed the file: %q", got)
	}
	if got := data[[]string](t, f.get("/v1/sandbox/u/ag/files")); !slices.Equal(got, []string{"a/b.txt"}) {
		t.Errorf("files %q", got)
	}
	data[string](t, f.do(request{
		method: "PUT", path: edit + "&start=2&end=2", body: "second\nthird\n",
		header: map[string]string{"Content-Type": "text/plain"},
	}))
	if got := data[map[string]string](t, f.get(content)); got["content"] != "a=b&c=%20+d&path=x.txt\r\nsecond\r\nthird" {
		t.Errorf("after the edit of a line: %q", got)
	}
	data[string](t, put("", "text/plain"))
	if got := data[map[string]string](t, f.get(content)); got["content"] != "" {
		t.Errorf("an empty body: %q", got)
	}
	if got := data[[]string](t, f.get("/v1/sandbox/unused/ag/files")); len(got) != 0 {
		t.Errorf("a workspace that was never used: %q", got)
	}
}
