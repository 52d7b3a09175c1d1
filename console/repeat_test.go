package console_test

import (
	"encoding/csv"
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"secbox/access/tokens"
)

var regexpCurl = regexp.MustCompile(`aria-label="Command for curl">([^<]*)</pre>`)

// curlOn returns the command for curl that a page shows, which its button copies, too.
func curlOn(t *testing.T, page string) string {
	t.Helper()
	shown := regexpCurl.FindStringSubmatch(page)
	if shown == nil || !strings.Contains(page, `data-copy="`+shown[1]+`"`) {
		t.Fatalf("no command for curl, or another one on its button: %v", shown)
	}
	return html.UnescapeString(shown[1])
}

// shell runs a command with bash in an empty directory.
func shell(t *testing.T, command string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
	cmd.Dir, cmd.Env = t.TempDir(), append([]string{"PATH=/usr/bin:/bin"}, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	return string(out)
}

// execsIn returns the ids of the execs in an answer of the API.
func execsIn(t *testing.T, answer string) (ids []string) {
	t.Helper()
	var list struct {
		Items []struct {
			ExecID string `json:"exec_id"`
		} `json:"items"`
	}
	if err := json.Unmarshal([]byte(answer), &list); err != nil || list.Items == nil {
		t.Fatalf("%v: %s", err, answer)
	}
	for _, e := range list.Items {
		ids = append(ids, e.ExecID)
	}
	return ids
}

// execLinks returns the ids of the execs in a list, in its order.
func execLinks(page string) (ids []string) {
	for _, link := range regexp.MustCompile(`<td class="nowrap"><a href="/console/execs/([^"]+)"`).FindAllStringSubmatch(page, -1) {
		ids = append(ids, link[1])
	}
	return ids
}

// TestCurlRepeatsTheHistory: the command of a page, run by bash, gets the page's execs from the
// API, with the token of the environment only.
func TestCurlRepeatsTheHistory(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	for range 52 {
		c.run("", "echo x")
	}
	c.run("", "exit 3")
	secret := c.token("auditor", tokens.Auditor)
	v := newVisitor(t, c.url)
	v.signIn(secret)
	for _, path := range []string{
		"/console/history", "older", "/console/history?status=failed", "/console/history?text=exit&status=failed",
		"/console/refused?error_reason=policy_denied&user_id=nobody",
	} {
		if path == "older" {
			_, page := v.get("/console/history")
			path = html.UnescapeString(regexpOlder.FindStringSubmatch(page)[1])
		}
		_, page := v.get(path)
		command := curlOn(t, page)
		if got := execsIn(t, shell(t, command, "SECBOX_TOKEN="+secret)); !slices.Equal(got, execLinks(page)) {
			t.Errorf("%s: %s lists %d execs, the page %d", path, command, len(got), len(execLinks(page)))
		}
		if strings.Contains(page, secret) || !strings.Contains(command, `"Authorization: Bearer $SECBOX_TOKEN"`) {
			t.Errorf("%s: %s", path, command)
		}
	}
}

// TestCurlRepeatsOtherPages: the commands of an exec's page and of others get what they show.
func TestCurlRepeatsOtherPages(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	id := c.run("", "echo x")
	v := newVisitor(t, c.url)
	_, page := v.get("/console/execs/" + id)
	command := curlOn(t, page)
	if got := shell(t, command); !strings.Contains(got, `"exec_id":"`+id+`"`) || strings.Contains(command, "SECBOX_TOKEN") {
		t.Errorf("%s prints %s", command, got)
	}
	hold := shell(t, "curl -sS '"+c.url+"/audit/holds' -H 'Content-Type: application/json' -d '{\"kind\": \"exec\", \"value\": \""+id+"\", \"reason\": \"x\"}'")
	for path, want := range map[string]string{
		"/console/audit/events?kind=hold_added": `"kind":"hold_added"`, "/console/audit/holds": `"value":"` + id + `"`,
		"/console/skills": `"items":[`,
	} {
		_, page = v.get(path)
		command := curlOn(t, page)
		if got := shell(t, command); !strings.Contains(got, want) {
			t.Errorf("%s prints %s, after %s", command, got, hold)
		}
	}
	for path, addresses := range map[string]int{"/console/runners": 1, "/console/operations": 2} {
		_, page = v.get(path)
		if command := curlOn(t, page); strings.Count(command, "'"+c.url+"/") != addresses {
			t.Errorf("%s: %s", path, command)
		}
	}
}

// TestCurlIsQuoted: no value of a filter and no Host leaves the command's quotes, and the API gets
// each value as it is.
func TestCurlIsQuoted(t *testing.T) {
	t.Parallel()
	server := newFake().serve(t)
	marker := t.TempDir() + "/hacked"
	for _, s := range append(slices.Clone(hostile), `'; touch `+marker+`; '`, "$(touch "+marker+")", "`touch "+marker+"`", `\'; touch `+marker+` #`,
		"[1-3]{a,b}", "--output x", "@/etc/passwd", "a&b=c") {
		if len(s) > 256 || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) { // refused by the filter
			continue
		}
		req, err := http.NewRequestWithContext(t.Context(), "GET", server+"/console/history?project_id="+url.QueryEscape(s), nil)
		must(t, err)
		resp, page := newVisitor(t, server).do(req)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%q: %d", s, resp.StatusCode)
		}
		words := strings.Split(strings.TrimSuffix(shell(t, `curl() { printf '%s\0' "$@"; }; `+curlOn(t, page), "SECBOX_TOKEN=s3"), "\x00"), "\x00")
		if len(words) != 4 || words[0] != "-sS" || words[1] != "-H" || words[2] != "Authorization: Bearer s3" {
			t.Fatalf("%q: the words %q", s, words)
		}
		asked, err := url.Parse(words[3])
		if err != nil || asked.Query().Get("project_id") != s || strings.ContainsAny(words[3], "[]{}") {
			t.Errorf("%q: %s, %v", s, words[3], err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", server+"/console/history", nil)
	must(t, err)
	req.Host = "a';touch$IFS" + strings.ReplaceAll(marker, "/", "") + ";'b"
	_, page := newVisitor(t, server).do(req)
	if words := shell(t, `curl() { printf '%s|' "$@"; }; `+curlOn(t, page)); !strings.Contains(words, "|http://"+req.Host+"/sandbox/execs?limit=50|") {
		t.Errorf("the words %s", words)
	}
	shell(t, "! test -e "+marker)
}

// TestExportOfTheHistory: the export has the execs that the list has, in each format, on record
// with what was asked.
func TestExportOfTheHistory(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	for range 3 {
		c.run("", "echo common")
	}
	rare := c.run("", "echo NEEDLE")
	failed := c.run("", "exit 3")
	if _, err := c.log.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	v := newVisitor(t, c.url)
	v.signIn(c.token("auditor", tokens.Auditor))
	take := func(from, format string) (string, string) {
		t.Helper()
		_, page := v.get(from)
		link := regexp.MustCompile(`href="(/console/history/export\?[^"]*format=` + format + `[^"]*)"`).FindStringSubmatch(page)
		if link == nil {
			t.Fatalf("%s has no export as %s", from, format)
		}
		resp, body := v.get(html.UnescapeString(link[1]))
		if disposition := resp.Header.Get("Content-Disposition"); resp.StatusCode != http.StatusOK || !strings.HasPrefix(disposition, "attachment; ") {
			t.Fatalf("%s: %d, %s", link[1], resp.StatusCode, disposition)
		}
		return body, resp.Header.Get("Content-Type")
	}
	table, kind := take("/console/history?status=failed&columns=status", "csv")
	rows, err := csv.NewReader(strings.NewReader(table)).ReadAll()
	if err != nil || len(rows) != 3 || rows[1][0] != failed || !strings.HasPrefix(kind, "text/csv") {
		t.Errorf("%v, %s: %q", err, kind, rows)
	}
	lines, _ := take("/console/history?text=needle", "jsonl")
	if all := strings.Split(strings.TrimSpace(lines), "\n"); len(all) != 2 || !strings.Contains(all[0], rare) || !strings.Contains(all[1], `"text":"needle"`) ||
		!strings.Contains(all[1], `"records":1,"not_logged":0`) {
		t.Errorf("a search: %s", lines)
	}
	if events, _ := take("/console/history", "ocsf"); strings.Count(events, `"class_uid":1007`) != 5 {
		t.Errorf("OCSF: %s", events)
	}
	if got := c.events(); strings.Count(strings.Join(got, "\n"), "export by auditor") != 6 {
		t.Errorf("events %q", got)
	}
	if resp, page := v.get("/console/history/export?format=xml&since=x&text=" + strings.Repeat("x", 201)); resp.StatusCode != http.StatusBadRequest ||
		resp.Header.Get("Content-Disposition") != "" || !strings.Contains(page, "since") || !strings.Contains(page, "must be jsonl, csv or ocsf") ||
		!strings.Contains(page, "at most 200 bytes") {
		t.Errorf("wrong parameters: %d, %v", resp.StatusCode, resp.Header)
	}
	worker := newVisitor(t, c.url)
	worker.signIn(c.token("worker", tokens.Worker))
	if _, page := worker.get("/console/history?kind=all"); strings.Contains(page, "/console/history/export") {
		t.Error("a worker is led to an export")
	}
}

// TestFailedExport: before the first byte it is a page that says so, not a file.
func TestFailedExport(t *testing.T) {
	t.Parallel()
	resp, page := newVisitor(t, newFake().serve(t)).get("/console/history/export?format=csv&project_id=fails")
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Content-Disposition") != "" ||
		!strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") || !strings.Contains(page, "try again in a second") {
		t.Errorf("%d, %v: %s", resp.StatusCode, resp.Header, page)
	}
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "form-action 'self'") {
		t.Errorf("the page has the policy of a file: %s", csp)
	}
}
