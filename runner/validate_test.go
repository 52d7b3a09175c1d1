package runner

import (
	"strings"
	"testing"

	"secbox/fault"
	"secbox/policy"
)

func good() Request {
	return Request{ProjectID: "p", Command: Command{Kind: KindShell, Name: "bash", Args: []string{"-lc", "true"}}}
}

func TestNormalise(t *testing.T) {
	t.Parallel()
	req, err := normalise(good())
	if err != nil || req.Command.Cwd != "/workspace/work" {
		t.Fatalf("%+v %v", req, err)
	}
	req = good()
	req.Command.Args[0] = "-c"
	if _, err := normalise(req); err != nil {
		t.Fatalf("bash without a login shell: %v", err)
	}
	req = good()
	req.ProjectID, req.ConversationID = "", "c-1"
	if req, err := normalise(req); err != nil || req.ProjectID != "c-1" {
		t.Fatalf("a conversation serves as project: %+v %v", req, err)
	}
	req = good()
	req.ProjectID = "agent~user"
	if req, err := normalise(req); err != nil || req.AgentID != "agent" || req.UserID != "user" {
		t.Fatalf("a workspace names agent and user: %+v %v", req, err)
	}
}

func TestNormaliseRefuses(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*Request){
		"project_id":            func(r *Request) { r.ProjectID = "" },
		"user_id":               func(r *Request) { r.ProjectID, r.UserID = "a~u", "other" },
		"task_ref.task_id":      func(r *Request) { r.TaskID = strings.Repeat("x", 256) },
		"conversation_id":       func(r *Request) { r.ConversationID = "a\nb" },
		"exec.kind":             func(r *Request) { r.Command.Kind = "perl" },
		"exec.command":          func(r *Request) { r.Command.Name = "/bin/bash" },
		"exec.args":             func(r *Request) { r.Command.Args = []string{"-ec", "true"} },
		"exec.args[1]":          func(r *Request) { r.Command.Args[1] = "a\x00b" },
		"exec.args[2]":          func(r *Request) { r.Command.Args = append(r.Command.Args, strings.Repeat("x", 128<<10)) },
		"exec":                  func(r *Request) { r.Command.Args = append(r.Command.Args, many(20, 100_000)...) },
		"exec.cwd":              func(r *Request) { r.Command.Cwd = "/workspace/work/../../etc" },
		"exec.env":              func(r *Request) { r.Command.Env = map[string]string{"": "x"} },
		"exec.env.A=B":          func(r *Request) { r.Command.Env = map[string]string{"A=B": "x"} },
		"exec.env.secret_x":     func(r *Request) { r.Command.Env = map[string]string{"secret_x": "x"} },
		"exec.env.SERVICE_HOST": func(r *Request) { r.Command.Env = map[string]string{"SERVICE_HOST": "x"} },
		"exec.env.V":            func(r *Request) { r.Command.Env = map[string]string{"V": "a\x00b"} },
		"inputs[1].path": func(r *Request) {
			r.Inputs = []Input{{Path: "ok"}, {Path: "../x"}}
		},
		"inputs[2].path": func(r *Request) {
			r.Inputs = []Input{{Path: "d/a"}, {Path: "b"}, {Path: "./d//A"}}
		},
		"image": func(r *Request) {
			other := "b"
			r.Image, r.Overrides = "a", policy.Layer{Image: &other}
		},
		"exec.stdin": func(r *Request) { r.Command.Stdin = make([]byte, maxStdin+1) },
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			req := good()
			change(&req)
			_, err := normalise(req)
			if !fault.Is(err, fault.InvalidRequest) || fault.From(err).Fields[0].Field != field {
				t.Fatalf("got %v", err)
			}
		})
	}
	req := good()
	req.ProjectID, req.ConversationID = "", "no project"
	if _, err := normalise(req); len(fault.From(err).Fields) != 1 || fault.From(err).Fields[0].Field != "conversation_id" {
		t.Errorf("a conversation that is no project: %v", err)
	}
	bad := Request{Command: Command{Kind: "x", Cwd: "/"}}
	if _, err := normalise(bad); len(fault.From(err).Fields) != 3 {
		t.Errorf("every wrong field is named at once: %v", err)
	}
}

func many(n, size int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = strings.Repeat("x", size)
	}
	return out
}

func TestPythonArgs(t *testing.T) {
	t.Parallel()
	for args, ok := range map[string]bool{
		"-c|print(1)":                      true,
		"-c|print(1)|arg":                  true,
		"/tmp/exec-code.py|print(1)":       true,
		"/tmp/exec-code.py":                false,
		"/workspace/inputs/main.py":        true,
		"/workspace/work/a/b.py|--flag":    true,
		"-c":                               false,
		"":                                 false,
		"main.py":                          false,
		"-m|http.server":                   false,
		"/etc/x.py":                        false,
		"/workspace/inputs/../../etc/x.py": false,
		"/workspace/inputsx/main.py":       false,
	} {
		req := good()
		req.Command = Command{Kind: KindPython, Name: "python", Args: strings.Split(args, "|")}
		if _, err := normalise(req); (err == nil) != ok {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// FuzzCwd: an accepted path is under one of the three directories and is its own shortest form.
func FuzzCwd(f *testing.F) {
	for _, seed := range []string{
		"", "/workspace/work", "/workspace/work/../inputs/a", "/workspace/workx", "work", "/workspace/work/a/../../..",
		"/workspace//work/./a/",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, cwd string) {
		clean, err := cleanCwd(cwd)
		if err != nil {
			return
		}
		again, err := cleanCwd(clean)
		if err != nil || again != clean || strings.Contains(clean+"/", "/../") || strings.ContainsRune(clean, 0) {
			t.Fatalf("%q became %q, then %q, %v", cwd, clean, again, err)
		}
		inside := false
		for _, dir := range []string{workDir, inputsDir, artifactsDir} {
			inside = inside || clean == dir || strings.HasPrefix(clean, dir+"/")
		}
		if !inside {
			t.Fatalf("%q leads to %q", cwd, clean)
		}
	})
}
