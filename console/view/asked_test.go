package view

import (
	"strings"
	"testing"

	"secbox/audit"
)

// TestExecTitle: a title says what was asked, not how it ran.
func TestExecTitle(t *testing.T) {
	t.Parallel()
	folder := "/workspace/inputs/.skill/" + strings.Repeat("a1", 32) + "/"
	invoke := func(skill, request string) audit.Record {
		return audit.Record{SkillID: skill, Request: request, Cmd: "python3", Args: []string{"-I", "-B", folder + "run.py"}}
	}
	change := func(args ...string) audit.Record {
		return audit.Record{Kind: audit.KindChange, Cmd: "files.edit", Args: args}
	}
	for want, rec := range map[string]audit.Record{
		"python.run: print(1)\nprint(2)":                invoke("python.run", `{"code":"print(1)\nprint(2)"}`),
		"shell.run: ls args=[\"-l\",\"a\"] stdin='a b'": invoke("shell.run", `{"script":"ls","args":["-l","a"],"stdin":"a b"}`),
		"own: a=1 b='x y' c=null":                       invoke("own", `{"a":1,"b":"x y","c":null}`),
		"own: {\"a\":1}":                                invoke("own", `{"data":{"a":1}}`),
		"own: no arguments":                             invoke("own", `{}`),
		"own: [1,2]":                                    invoke("own", `[1,2]`),
		"own: {\"a\":":                                  invoke("own", `{"a":`),
		"old.skill: python3 -I -B run.py":               invoke("old.skill", ""),
		"echo hi":                                       {Cmd: "bash", Args: []string{"-lc", "echo hi"}},
		"make && ls":                                    {Cmd: "/bin/bash", Args: []string{"make && ls"}, Backend: "remote"},
		"cat '/workspace/inputs/.skill/x y'":            {SkillID: "own", Cmd: "cat", Args: []string{"/workspace/inputs/.skill/x y"}},
		"files.edit /workspace/a.txt":                   change("/workspace/a.txt"),
		"files.edit '/workspace/a b' from om_1":         change("/workspace/a b", "from", "om_1", "", ""),
		"files.edit":                                    change(),
		"refusals without rows":                         {Status: audit.Rejected, ErrorReason: audit.RefusalsOmitted},
	} {
		if got := ExecTitle(rec); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestCommandOfShell: a page shows the line that the shell of a sandbox got, and which shell.
func TestCommandOfShell(t *testing.T) {
	t.Parallel()
	rec := audit.Record{Cmd: "/bin/bash", Args: []string{"rm src/m5.py; exit 4"}}
	if got := command(rec); got != rec.Args[0] || interpreter(rec) != "/bin/bash, which got this as its one argument" {
		t.Errorf("%q by %q", got, interpreter(rec))
	}
	if rec.Args = []string{"-x", "a b"}; command(rec) != "/bin/bash -x 'a b'" || interpreter(rec) != "" {
		t.Errorf("%q by %q", command(rec), interpreter(rec))
	}
}

// TestRequestHas: a search finds texts as they were sent, however JSON writes them.
func TestRequestHas(t *testing.T) {
	t.Parallel()
	const request = `{"code":"Print(\"a\\b\")\nx = '\u00fcber \u003c'","n":17}`
	for text, want := range map[string]bool{
		`print("a\b")`: true, "\nx = 'über <'": true, "17": true, "print(a": false, `\n`: false, "über >": false,
	} {
		if got := RequestHas(request, text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if RequestHas("", "a") || RequestHas(`{"a\`, "b") {
		t.Error("found in no request")
	}
}
