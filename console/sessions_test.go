package console_test

import (
	"strings"
	"testing"
)

func TestSessionsPage(t *testing.T) {
	t.Parallel()
	f := fullApp()
	url := f.serve(t)
	list := get(t, url+"/console/sessions")
	for _, want := range []string{
		">analysis</a>", `href="/console/execs/` + execID(20) + `"`, `href="/console/execs/` + execID(23) + `"`,
		"</span> idle", ">Ada</a>", `hx-trigger="every 5s"`,
	} {
		if !strings.Contains(list, want) {
			t.Errorf("the list lacks %q: %.4000s", want, list)
		}
	}
	if strings.Contains(list, execID(21)) {
		t.Error("an exec is listed as a session")
	}
	if page := get(t, url+"/console/sessions?live=off"); strings.Contains(page, "hx-trigger=\"every") || !strings.Contains(page, ">Go on<") {
		t.Error("the page refreshes itself though it is off")
	}
	ended := get(t, url+"/console/sessions?state=ended")
	for _, want := range []string{`<option value="ended" selected>`, "sessions?status=ended"} {
		if !strings.Contains(ended, want) {
			t.Errorf("the list lacks %q: %.5000s", want, ended)
		}
	}
	page := get(t, url+"/console/execs/"+execID(20))
	for _, want := range []string{
		`<a href="/console/sessions">Sessions</a>`, "Contexts, interpreters", "Execs, in their order", ">main",
		"Ends without an exec", execID(21), execID(22), "9 MiB",
		"<title>Memory, at most 3 MiB, last 1 MiB</title>", `<path d="M0.0 1.0L200.0 10.3L400.0 19.7"></path>`,
		"<title>Processors, at most 0.75, last 0.75</title>", `<path d="M0.0 19.7L200.0 19.7L400.0 1.0"></path>`,
		">Processes, 1</summary>", "sleep␛[2J &lt;b&gt;1000&lt;/b&gt;</code>", "5 MiB",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if first, second := strings.Index(page, execID(21)), strings.Index(page, execID(22)); first > second {
		t.Error("the execs are not in their order")
	}
	if page := get(t, url+"/console/execs/"+execID(21)); !strings.Contains(page, `<a href="/console/execs/`+execID(20)+`">number 1 in <code>`) {
		t.Error("an exec does not lead to its session")
	}
	f.boxes = nil // another node's
	if page := get(t, url+"/console/execs/"+execID(20)); !strings.Contains(page, "runs it, and knows its contexts") {
		t.Error("the page does not say where the contexts are known")
	}
	if page := get(t, url+"/console/sessions?state=x"); !strings.Contains(page, "must be running or ended") {
		t.Errorf("%.3000s", page)
	}
}
