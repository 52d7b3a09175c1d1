package api_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"mime/multipart"
	"os"
	"slices"
	"testing"

	"secbox/api/problem"
	"secbox/fault"
)

// zipOf is an archive of files by path.
func zipOf(t testing.TB, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		entry, err := w.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(entry, files[path])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// weather is a small skill.
func weather(t testing.TB, more ...string) string {
	t.Helper()
	files := map[string]string{
		"weather_skill/SKILL.md":        "---\nname: 天气查询技能\ndescription: 提供全球实时天气查询服务\n---\n# Weather\n",
		"weather_skill/main.py":         "import sys\nimport os\n\ndef main():\n    print('Hello Sandbox')\n",
		"weather_skill/utils/helper.py": "X = 1\n",
	}
	for i := 0; i+1 < len(more); i += 2 {
		files["weather_skill/"+more[i]] = more[i+1]
	}
	return zipOf(t, files)
}

// form is a multipart body and its Content-Type. Parts are name, file name, content.
func form(t testing.TB, parts ...[3]string) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, p := range parts {
		part, err := w.CreateFormFile(p[0], p[1])
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(part, p[2])
	}
	w.Close()
	return b.String(), w.FormDataContentType()
}

// upload sends an archive; scope is empty for the default.
func (f *fixture) upload(owner, scope, filename, archive string, more ...func(*request)) reply {
	f.t.Helper()
	if scope != "" {
		scope = "?scope=" + scope
	}
	body, contentType := form(f.t, [3]string{"file", filename, archive})
	r := request{method: "POST", path: "/v1/skills/" + owner + "/upload" + scope, body: body, header: map[string]string{"Content-Type": contentType}}
	for _, change := range more {
		change(&r)
	}
	return f.do(r)
}

func as(secret string) func(*request) { return func(r *request) { r.token = secret } }

// data is what a success carries.
func data[T any](t *testing.T, r reply) T {
	t.Helper()
	got := decodeAs[struct {
		Status string
		Data   T
	}](t, r, 200)
	if got.Status != "success" || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%q, %s", got.Status, r.body)
	}
	return got.Data
}

// refused fails unless the answer is the envelope of an error with this code and, in this order,
// these fields.
func (r reply) refused(t *testing.T, code fault.Code, fields ...string) string {
	t.Helper()
	var got problem.Envelope
	if err := json.Unmarshal(r.body, &got); err != nil {
		t.Fatalf("status %d: %v: %.300s", r.StatusCode, err, r.body)
	}
	var names []string
	for _, f := range got.Data.Errors {
		names = append(names, f.Field)
	}
	if got.Status != "error" || got.Data.Code != code || r.StatusCode != fault.HTTPStatus(code) || !slices.Equal(names, fields) || got.Data.Message == "" {
		t.Errorf("got %d %s, want %s %v", r.StatusCode, r.body, code, fields)
	}
	return got.Data.Message
}

// nothingWaits: an archive is gone when its upload is answered.
func (f *fixture) nothingWaits() {
	f.t.Helper()
	if left, err := os.ReadDir(f.uploads); err != nil || len(left) > 0 {
		f.t.Errorf("left in the directory of uploads: %v %v", left, err)
	}
}
