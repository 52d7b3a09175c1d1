//go:build unix

package e2e

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"secbox/api/sse/ssetest"
)

// visitor is a browser that is signed in to the console of a server.
type visitor struct {
	t      testing.TB
	url    string
	client *http.Client
}

func signIn(t testing.TB, server *process, secret string) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	v := &visitor{t, server.url, &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	v.post("/console/sign-in", "/console/sign-in", url.Values{"token": {secret}})
	return v
}

func (v *visitor) do(method, path, form string) *http.Response {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), method, v.url+path, strings.NewReader(form))
	if err != nil {
		v.t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", v.url)
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	resp, err := v.client.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// get returns a page or a file.
func (v *visitor) get(path string) string {
	v.t.Helper()
	resp := v.do(http.MethodGet, path, "")
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		v.t.Fatalf("%s: %d, %v: %s", path, resp.StatusCode, err, body)
	}
	return string(body)
}

var csrfField = regexp.MustCompile(`name="csrf_token" value="([^"]*)"`)

// post sends a form of a page.
func (v *visitor) post(page, path string, form url.Values) {
	v.t.Helper()
	field := csrfField.FindStringSubmatch(v.get(page))
	if field == nil {
		v.t.Fatalf("%s has no form", page)
	}
	form.Set("csrf_token", field[1])
	resp := v.do(http.MethodPost, path, form.Encode())
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusSeeOther {
		v.t.Fatalf("%s: %d: %s", path, resp.StatusCode, body)
	}
}

// event returns the data of the first event with a name.
func (v *visitor) event(path, name string) string {
	v.t.Helper()
	in := ssetest.NewReader(v.do(http.MethodGet, path, "").Body)
	for {
		next, err := in.Next()
		if err != nil {
			v.t.Fatalf("before the event %s: %v", name, err)
		}
		if next.Name == name {
			return next.Data
		}
	}
}
