package console_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/engine"
	"secbox/engine/memengine"
)

// sentEvent is a server-sent event.
type sentEvent struct{ name, id, data string }

// events is an open stream of them.
type events struct {
	t    *testing.T
	in   *bufio.Reader
	end  context.CancelFunc
	last string // the last id
}

// watch opens the stream of an exec's page.
func (v *visitor) watch(execID, from string, header ...string) *events {
	v.t.Helper()
	ctx, end := context.WithTimeout(v.t.Context(), time.Minute)
	v.t.Cleanup(end)
	req, err := http.NewRequestWithContext(ctx, "GET", v.url+"/console/execs/"+execID+"/live?from="+from, nil)
	must(v.t, err)
	if len(header) > 0 {
		req.Header.Set("Last-Event-ID", header[0])
	}
	resp, err := v.client.Do(req)
	must(v.t, err)
	v.t.Cleanup(func() { _ = resp.Body.Close() })
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != "text/event-stream" ||
		resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("X-Accel-Buffering") != "no" {
		v.t.Fatalf("%d, %v", resp.StatusCode, resp.Header)
	}
	return &events{t: v.t, in: bufio.NewReader(resp.Body), end: end}
}

// next returns the next event; one without a name when the stream has ended.
func (e *events) next() sentEvent {
	e.t.Helper()
	var out sentEvent
	var data []string
	for {
		line, err := e.in.ReadString('\n')
		if err != nil {
			if line != "" || out.name != "" {
				e.t.Fatalf("the stream ended within an event: %q of %+v", line, out)
			}
			return sentEvent{}
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case line == "\n" && out.name != "":
			out.data = strings.Join(data, "\n")
			return out
		case field == "event":
			out.name = value
		case field == "id":
			out.id, e.last = value, value
		case field == "data":
			data = append(data, value)
		}
	}
}

// until returns the HTML of both streams until they have the texts.
func (e *events) until(stdout, stderr string) (html map[string]string) {
	e.t.Helper()
	html = map[string]string{}
	for plain(html["stdout"]) != stdout || plain(html["stderr"]) != stderr {
		next := e.next()
		if next.name == "" || next.name == "end" {
			e.t.Fatalf("ended with %q, want %.200q and %.200q", html, stdout, stderr)
		}
		if next.name != "status" {
			html[next.name] += next.data
		}
	}
	return html
}

var anyTag = regexp.MustCompile(`<[^>]*>`)

// plain returns the text of some HTML that is made of spans.
func plain(html string) string { return anyTag.ReplaceAllString(html, "") }

// TestLiveOutput: output arrives while the exec runs, then its end; one who comes again goes on
// where it was.
func TestLiveOutput(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	id, ended := c.begin("", "listen")
	v := newVisitor(t, c.url)
	_, body := v.get("/console/execs/" + id)
	if !strings.Contains(body, `data-at="6-0"`) || !strings.Contains(body, `data-status="running"`) || !strings.Contains(body, "began") {
		t.Fatalf("the page is %s", body)
	}
	first := v.watch(id, "6-0")
	if e := first.next(); e != (sentEvent{name: "status", data: "running"}) {
		t.Errorf("it begins with %+v", e)
	}
	c.prints <- printed{stdout: "one\n", stderr: "bad"}
	first.until("one\n", "bad")
	if first.last != "10-3" {
		t.Errorf("the place is %s", first.last)
	}
	second := v.watch(id, "0-0") // behind the first, which the feed began for
	second.until("began\none\n", "bad")
	third := v.watch(id, "6-0", "8-3")
	third.until("e\n", "")
	c.prints <- printed{stdout: "\n\ntwo\n\n"}
	for _, e := range []*events{first, second, third} {
		e.until("\n\ntwo\n\n", "")
	}
	c.prints <- printed{stdout: "last \x1b[3"} // the end of the exec shows what is not complete
	first.until("last ", "")
	c.prints <- printed{}
	for _, e := range []*events{first, second, third} {
		rest := ""
		next := e.next()
		for ; next.name == "stdout"; next = e.next() {
			rest += next.data
		}
		if next.name != "end" || !strings.HasSuffix(plain(rest), "␛[3") {
			t.Errorf("after %q it ends with %+v", rest, next)
		}
		if next := e.next(); next.name != "" {
			t.Errorf("%+v follows the end", next)
		}
	}
	<-ended
	late := v.watch(id, "0-0")
	if html := late.until("began\none\n\n\ntwo\n\nlast ␛[3", "bad"); late.next().name != "end" {
		t.Errorf("after the end: %q", html)
	}
	_, body = v.get("/console/execs/" + id + "?shown=" + late.last)
	if !strings.Contains(body, "All 25 B are shown.") || strings.Contains(body, "began") || strings.Contains(body, "data-live") {
		t.Errorf("what completes a live page is %s", body)
	}
	for _, bad := range []string{"x", "1", "1-2-3", "-1-0", "0-1048577", "1-"} {
		for _, path := range []string{"/live?from=", "?shown="} {
			if resp, _ := v.get("/console/execs/" + id + path + bad); resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s%s: %d", path, bad, resp.StatusCode)
			}
		}
	}
	if resp, _ := v.get("/console/execs/" + execID(1) + "/live"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown exec: %d", resp.StatusCode)
	}
}

// TestLiveCutOutput: what is cut between two pieces looks as if it were not, also for one who goes
// on in the middle.
func TestLiveCutOutput(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	id, ended := c.begin("", "listen")
	v := newVisitor(t, c.url)
	e := v.watch(id, "6-0")
	e.next()
	for _, part := range []struct{ in, want string }{
		{"\x1b[3", ""},
		{"1mred \xe2\x82", "red "},
		{"\xac <b>", "€ &lt;b&gt;"},
		{"\r", ""},
		{"\n\u202e\xff.", "\n⟨U+202E⟩\uFFFD."},
	} {
		c.prints <- printed{stdout: part.in}
		if part.want == "" {
			continue
		}
		html := e.until(part.want, "")["stdout"]
		for _, line := range strings.Split(html, "\n") {
			if line != "" && !strings.Contains(html, `<span class="t-f1">`) {
				t.Errorf("%q is %q: the colour is lost", part.in, html)
			}
		}
	}
	// A client that has "began\n\x1b[31mred " goes on with the colour of the beginning.
	if html := v.watch(id, "15-0").until("€ &lt;b&gt;\n⟨U+202E⟩\uFFFD.", "")["stdout"]; !strings.HasPrefix(html, `<span class="t-f1">€`) {
		t.Errorf("going on within red text: %q", html)
	}
	c.prints <- printed{}
	<-ended
}

// TestLiveOutputIsBounded: a viewer who does not read what a job writes keeps neither the job nor
// others waiting, and gets all of it later. Pages have the first MiB.
func TestLiveOutputIsBounded(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	id, ended := c.begin("", "listen")
	v := newVisitor(t, c.url)
	slow := v.watch(id, "0-0")
	slow.next()
	line := strings.Repeat("0123456789abcde\n", 1<<12)
	for range 20 { // 1.25 MiB
		c.prints <- printed{stdout: line}
	}
	read := func(e *events) string {
		var b strings.Builder
		for b.Len() < 1<<20 {
			next := e.next()
			if next.name == "" || len(next.data) > 16<<10 {
				t.Fatalf("an event %q of %d bytes after %d", next.name, len(next.data), b.Len())
			}
			if next.name == "stdout" {
				b.WriteString(next.data)
			}
		}
		return b.String()
	}
	want := ("began\n" + strings.Repeat(line, 20))[:1<<20]
	for name, e := range map[string]*events{"one who comes late": v.watch(id, "0-0"), "the slow one": slow} {
		if got := read(e); got != want {
			t.Errorf("%s got %d bytes, which are %v", name, len(got), got == want)
		}
	}
	c.prints <- printed{stdout: "too much"}
	c.prints <- printed{}
	<-ended
	if e := slow.next(); e.name != "end" {
		t.Errorf("after the first MiB: %.100v", e)
	}
}

// TestLiveEndsWithTheSession: a stream ends when the token is revoked or the session ends, and when
// the server closes; the download of another's output is on record once.
func TestLiveEndsWithTheSession(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	secret := c.token("worker", tokens.Worker)
	id, ended := c.begin(secret, "listen")
	first, second, third := newVisitor(t, c.url), newVisitor(t, c.url), newVisitor(t, c.url)
	first.signIn(c.token("revoked", tokens.Auditor))
	second.signIn(c.token("leaves", tokens.Auditor))
	third.signIn(c.token("stays", tokens.Auditor))
	other := newVisitor(t, c.url)
	other.signIn(c.token("other", tokens.Worker))
	if resp, _ := other.get("/console/execs/" + id + "/live"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("another worker's stream: %d", resp.StatusCode)
	}
	var streams []*events
	for _, v := range []*visitor{first, second, third, third} {
		e := v.watch(id, "6-0")
		e.next()
		streams = append(streams, e)
	}
	c.prints <- printed{stdout: "secret"}
	for _, e := range streams {
		e.until("secret", "")
	}
	all, err := c.tokens.List(t.Context())
	must(t, err)
	for _, token := range all {
		if token.Name == "revoked" {
			_, err := c.tokens.Revoke(t.Context(), token.ID)
			must(t, err)
		}
	}
	second.post("/console/history", "/console/sign-out", url.Values{})
	c.later.Store(int64(time.Minute)) // sessions are verified at intervals
	c.prints <- printed{stdout: "x"}
	for i, e := range streams[:2] {
		for next := e.next(); next.name != ""; next = e.next() {
			if next.name == "end" {
				t.Errorf("stream %d had the end of the exec", i)
			}
		}
	}
	for _, e := range streams[2:] {
		e.until("x", "")
	}
	if resp, _ := first.get("/console/execs/" + id + "/live"); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("a new stream after the revocation: %d", resp.StatusCode)
	}
	c.pages.Close()
	for next := streams[2].next(); next.name != ""; next = streams[2].next() {
		if next.name == "end" {
			t.Error("the server’s end was told as the exec’s")
		}
	}
	downloads := slices.DeleteFunc(c.events(), func(e string) bool { return !strings.HasPrefix(e, "download by") })
	if want := []string{"download by revoked", "download by leaves", "download by stays"}; len(downloads) > 4 ||
		!slices.Equal(slices.Compact(slices.Sorted(slices.Values(downloads))), slices.Sorted(slices.Values(want))) {
		t.Errorf("on record are %q", downloads)
	}
	c.prints <- printed{}
	<-ended
}

// TestManyViewers: 200 viewers of an exec share one feed, get all of its output, take little memory
// and leave nothing; a token has no more than its share.
func TestManyViewers(t *testing.T) {
	c := startCore(t)
	id, ended := c.begin("", "listen")
	v := newVisitor(t, c.url)
	v.client.Transport = &http.Transport{MaxIdleConnsPerHost: 300}
	t.Cleanup(v.client.CloseIdleConnections)
	before := c.memory()
	var streams []*events
	for range 200 {
		e := v.watch(id, "6-0")
		e.next()
		streams = append(streams, e)
	}
	line := strings.Repeat("x", 1023) + "\n"
	for range 100 {
		c.prints <- printed{stdout: line}
	}
	got := make(chan int)
	for _, e := range streams {
		go func() {
			n := 0
			for n < 100<<10 {
				next := e.next()
				if next.name != "stdout" {
					break
				}
				n += len(next.data)
			}
			got <- n
		}()
	}
	for range streams {
		if n := <-got; n != 100<<10 {
			t.Fatalf("a viewer got %d bytes", n)
		}
	}
	if grown := c.memory() - before; grown > 30<<20 { // both sides of the connections
		t.Errorf("200 viewers take %d bytes", grown)
	}
	for range 50 {
		streams = append(streams, v.watch(id, "6-0"))
	}
	if resp, body := v.get("/console/execs/" + id + "/live"); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" ||
		!strings.Contains(body, "token limit reached: 250 live pages of 250 live pages") ||
		!strings.Contains(body, "close pages of running execs") || !strings.Contains(body, "too_many_live_pages") {
		t.Errorf("one more: %d: %s", resp.StatusCode, body)
	}
	b := open(t, c.url)
	b.visit("/console/execs/" + id)
	b.until(`document.querySelector("#live").textContent.includes("too many pages are live with your token. Close some")`)
	c.prints <- printed{}
	<-ended
	for _, e := range streams {
		for next := e.next(); next.name != "end"; next = e.next() {
			if next.name == "" {
				t.Fatal("a stream ended without the exec’s end")
			}
		}
	}
}

// memory is how much memory is in use.
func (c *core) memory() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestLiveRowsOfOtherNodes: the page of a command that runs elsewhere tells its end, though its
// output cannot be read before.
func TestLiveRowsOfOtherNodes(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	rec := record(1)
	rec.ExecID, rec.Status, rec.EndedAt, rec.ExitCode, rec.ManifestDigest, rec.NodeID, rec.RequestedBy = "019aa4b6-7c1e-7d35-9a52-000000000001", audit.Running,
		time.Time{}, nil, "", "elsewhere", "-"
	_, err := c.db.Audit().Open(t.Context(), rec)
	must(t, err)
	v := newVisitor(t, c.url)
	if _, body := v.get("/console/execs/" + rec.ExecID); !strings.Contains(body, "can be read here when it has ended") || !strings.Contains(body, "data-live") {
		t.Errorf("the page is %s", body)
	}
	e := v.watch(rec.ExecID, "0-0")
	if next := e.next(); next.data != "running" {
		t.Errorf("it begins with %+v", next)
	}
	rec.Status, rec.EndedAt, rec.ExitCode = audit.Succeeded, rec.StartedAt.Add(time.Second), new(0)
	_, err = c.db.Audit().Close(t.Context(), rec)
	must(t, err)
	if next := e.next(); next.name != "end" {
		t.Errorf("%+v", next)
	}
}

// TestLivePage: in a browser, text appears while the exec runs, and nothing moves. Its end
// completes the page: boxes take the height of their text.
func TestLivePage(t *testing.T) {
	c := startCore(t)
	id, ended := c.begin("", "listen")
	b := open(t, c.url)
	// A button that becomes a pixel wider is no jump: Web Vitals calls 0.1 good.
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `window.moved = [];
		new PerformanceObserver(l => moved.push(...l.getEntries().filter(e => e.value > 0.001).map(e => e.value + " " + e.sources.map(s => s.node && (s.node.id || s.node.nodeName + "." + s.node.className))))).observe({type: "layout-shift", buffered: true});`})
	b.visit("/console/execs/" + id)
	b.until(`document.querySelector("#live").textContent === "live"`)
	c.prints <- printed{stdout: "\x1b[32mgreen", stderr: "warning"}
	b.until(`document.querySelector("#stdout pre").textContent === "began\ngreen" && document.querySelector("#stderr pre").textContent === "warning"`)
	for i := range 60 {
		c.prints <- printed{stdout: fmt.Sprintf("line %d\n", i)}
	}
	b.until(`document.querySelector("#stdout pre").textContent.endsWith("line 59\n")`)
	c.prints <- printed{used: engine.Usage{CPU: 1500 * time.Millisecond, Elapsed: 2 * time.Second, MemoryBytes: 300 << 20}}
	used := `[...document.querySelectorAll("#resources tr[data-usage]")].map(r => r.innerText.replace(/\s+/g, " ").trim()).join("|")`
	b.until(used + `.includes("now")`)
	if got := eval[string](b, used); got != "Memory 300 MiB now 1 GiB 29 %|CPU 0.75 now, 1.5 s in all 1 core 75 %" {
		t.Errorf("the exec uses %q", got)
	}
	b.until(`/ \d+ s until now, at most \d+ s left/.test(" " + document.querySelector("[data-counts]").textContent)`)
	parts := `[".head h1", "#command", "#stdout", "#stdout pre", "#stderr"].map(s => s + " " + document.querySelector(s).getBoundingClientRect().top).join()`
	before := eval[string](b, `document.querySelector("#stdout pre").scrollTop > 0 ? `+parts+` : "not at the end"`)
	if moved := eval[[]string](b, "moved"); len(moved) > 0 {
		t.Errorf("layout shifts: %q", moved)
	}
	c.prints <- printed{}
	<-ended
	b.until(`document.querySelector(".head .badge").textContent.trim() === "succeeded"`)
	if got := eval[string](b,
		`[document.querySelectorAll("button[data-copy][hidden]").length, document.querySelector("#stderr pre").clientHeight < 60, !!document.querySelector("#proof a[href$='#proof']")].join("|")`); got != "0|true|true" {
		t.Errorf("hidden buttons, a low box, and a link that looks again: %s", got)
	}
	if after := eval[string](b, `document.querySelector("#stdout pre").scrollTop > 0 ? `+parts+` : "scrolled back"`); after != before {
		t.Errorf("before the end %s, after it %s", before, after)
	}
	if got := eval[string](b, `[document.querySelector("#stdout pre").textContent.length, document.querySelector("#stdout .note").textContent.trim().replace(/\s+/g, " "), document.querySelector("#status").textContent, !!document.querySelector("#live"),
		document.querySelectorAll("#timeline tbody tr").length, document.querySelector("#stdout pre .t-f2").textContent.startsWith("green"), !!document.querySelector("button.danger")].join("|")`); got != "481|All 486 B are shown. Download|The exec has ended: succeeded.|false|3|true|false" {
		t.Errorf("the complete page: %s", got)
	}
	_, err := c.log.Step(t.Context())
	must(t, err)
	b.until(`document.querySelector("#proof a[href$='/proof']")`) // the proof comes without a reload
}

// TestLiveCancel: the button ends the exec, and the page shows that.
func TestLiveCancel(t *testing.T) {
	began, ended := make(chan string), make(chan struct{})
	died, die := context.WithCancel(t.Context()) // a test that failed lets it die, as the server's end waits for it
	c := startCore(t, map[string]memengine.Command{"resist": func(ctx context.Context, p *memengine.Process) (int, *engine.Exit, error) {
		began <- p.ExecID
		<-ctx.Done()
		<-died.Done() // not before the page after the form is there
		died := memengine.Died()
		return 0, &died, nil
	}})
	go func() {
		defer close(ended)
		c.run("", "resist")
	}()
	b := open(t, c.url)
	b.visit("/console/execs/" + <-began)
	b.do(chromedp.Click("#cancel summary"), chromedp.Click("#cancel button"), chromedp.WaitVisible("#canceling"))
	b.until(`document.activeElement.id === "canceling"`)
	die()
	<-ended
	b.do(chromedp.WaitVisible(".head .badge.warn"), chromedp.WaitNotPresent("#canceling"), chromedp.WaitNotPresent("#cancel"))
	if at := eval[string](b, "document.activeElement.id"); at != "main" {
		t.Errorf("the focus is at %q", at)
	}
	if text := b.text(); !strings.Contains(text, "canceled by request") {
		t.Errorf("the page is %s", text)
	}
}

// TestLiveWithoutScript: the page has a link that reloads it, and all the rest.
func TestLiveWithoutScript(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	id, ended := c.begin("", "listen")
	v := newVisitor(t, c.url)
	if _, body := v.get("/console/execs/" + id); !strings.Contains(body, `<a href="/console/execs/`+id+`">Reload</a>`) || !strings.Contains(body, "began") {
		t.Errorf("the page is %s", body)
	}
	if resp, _ := v.post("/console/execs/"+id, "/console/execs/"+id+"/cancel", url.Values{}); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("canceling it: %d", resp.StatusCode)
	}
	<-ended
	if _, body := v.get("/console/execs/" + id); strings.Contains(body, "Reload") || !strings.Contains(body, "canceled by request of token loopback") {
		t.Errorf("the page after its end is %s", body)
	}
}

// until waits until an expression of the page is true, for at most a minute.
func (b *tab) until(expression string) {
	b.t.Helper()
	eval[bool](b, `new Promise(done => { const look = () => `+expression+` ? done(true) : requestAnimationFrame(look); look(); })`)
}
