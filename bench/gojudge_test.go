package bench

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// asGoJudge answers as go-judge's REST interface is documented to, with what the test wants to be said.
func asGoJudge(t *testing.T, status int, answer string) (url string, bodies chan string) {
	bodies = make(chan string, 1000)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/run" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %s: %v", r.Method, r.URL, r.Header, err)
		}
		bodies <- string(body)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL, bodies
}

// accepted is what go-judge says of a job that ended with 0.
const accepted = `[{"status":"Accepted","exitStatus":0,"time":1234567,"memory":1048576,"runTime":2345678,"files":{"stderr":"","stdout":""}}]`

func TestGoJudgeIsAskedForTheJob(t *testing.T) {
	t.Parallel()
	url, bodies := asGoJudge(t, http.StatusOK, accepted)
	for _, c := range []struct {
		job  job
		args string
	}{{nothing, `["/bin/bash","-lc","true"]`}, {pythonPrint, `["/usr/bin/python3","-c","print(1)"]`}} {
		took, err := judge(t.Context(), http.DefaultClient, url+"/", c.job)
		if err != nil || took <= 0 {
			t.Fatalf("%v %v", took, err)
		}
		want := `{"cmd":[{"args":` + c.args + `,"cpuLimit":10000000000,"env":["PATH=/usr/bin:/bin"],` +
			`"files":[{"content":""},{"max":10240,"name":"stdout"},{"max":10240,"name":"stderr"}],"memoryLimit":268435456,"procLimit":50}]}`
		if got := <-bodies; got != want || !json.Valid([]byte(got)) {
			t.Errorf("asked for\n%s\nwant\n%s", got, want)
		}
	}
}

func TestGoJudgeThatDoesNotRunTheJob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status       int
		answer, says string
	}{
		{http.StatusOK, `[{"status":"Nonzero Exit Status","exitStatus":1}]`, "Nonzero"},
		{http.StatusOK, `[]`, "200 []"},
		{http.StatusOK, `gone fishing`, "fishing"},
		{http.StatusInternalServerError, accepted, "500"},
	} {
		url, _ := asGoJudge(t, c.status, c.answer)
		if _, err := judge(t.Context(), http.DefaultClient, url, nothing); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d %s gave %v", c.status, c.answer, err)
		}
	}
	s := httptest.NewServer(nil)
	s.Close()
	if _, err := judge(t.Context(), http.DefaultClient, s.URL, nothing); err == nil || !strings.Contains(err.Error(), "go-judge") {
		t.Errorf("one that is not there gave %v", err)
	}
}
