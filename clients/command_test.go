//go:build unix

package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	client "secbox/clients/go"
)

func asError(err error, e **client.Error) bool { return errors.As(err, e) }

func post(t *testing.T, address string, into any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// secbox builds the command once.
var secbox = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "secbox-command")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "secbox")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "../cmd/secbox")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

// command tries the command secbox against a core-api.
func command(t *testing.T, environ []string) {
	program, err := secbox()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	environ = append(environ, "SECBOX_CONFIG="+filepath.Join(dir, "login.json"), "SECBOX_PROJECT=command")
	call := func(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
		t.Helper()
		var out, complaints bytes.Buffer
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, environ, strings.NewReader(stdin), &out, &complaints
		err := cmd.Run()
		if ended := (*exec.ExitError)(nil); err != nil && !errors.As(err, &ended) {
			t.Fatal(err)
		}
		return out.String(), complaints.String(), cmd.ProcessState.ExitCode()
	}
	for name, content := range map[string]string{"test:1": "named", "wrong": "\ufeffsbx_wrong\r\n"} { // as from Windows
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		args                  []string
		stdin, stdout, stderr string // stderr: a part of it
		code                  int
	}{
		"quoting":    {args: []string{"exec", "-n", "--", "printf", "%s|", "a b", "$HOME", "it's", "", "*", "é\n"}, stdout: "a b|$HOME|it's||*|é\n|"},
		"streams":    {args: []string{"exec", "-n", "--", "bash", "-c", "echo out; echo err >&2; exit 7"}, stdout: "out\n", stderr: "err\n", code: 7},
		"stdin":      {args: []string{"exec", "--", "cat"}, stdin: "\xff\x00 raw\n", stdout: "\xff\x00 raw\n"},
		"no reader":  {args: []string{"exec", "--", "true"}, stdin: strings.Repeat("x", 1<<20)},
		"signal":     {args: []string{"exec", "-n", "--", "bash", "-c", "kill -9 $$"}, code: 137},
		"timeout":    {args: []string{"exec", "-n", "--timeout", "300ms", "--", "sleep", "60"}, stderr: "timeout_ms", code: 124},
		"refused":    {args: []string{"exec", "-n", "--memory", "900g", "--", "true"}, stderr: "ceiling", code: 125},
		"no command": {args: []string{"exec"}, stderr: "the command is missing", code: 2},
		"no code":    {args: []string{"exec", "--session", "s", "--context", "c", "--", "ls"}, stderr: "-- bash CODE", code: 2},
		"out a file": {args: []string{"exec", "--out", "test:1", "--", "true"}, stderr: "name a directory", code: 2},
		"a colon":    {args: []string{"exec", "-n", "--input", "test:1", "--", "true"}, stderr: "--input test:1: path: holds a colon", code: 125},
		"renamed":    {args: []string{"exec", "-n", "--input", "test:1:é 1", "--", "cat", "../inputs/é 1"}, stdout: "named"},
		"cut":        {args: []string{"exec", "-n", "--max-output", "1k", "--", "seq", "400"}, stdout: "*", stderr: "--max-output", code: 126},
		"not known":  {args: []string{"ls", "--token-file", "wrong"}, stderr: "secbox login", code: 3},
		"ls nowhere": {args: []string{"ls", "--server", "http://127.0.0.1:1"}, stderr: "core-api serve", code: 1},
		"each line":  {args: []string{"exec", "--each", "-"}, stdin: "{}\n \n" + `{"exec": {"scrip": 1}}`, stderr: "--each: line 3: exec.scrip:", code: 2},
		"unknown":    {args: []string{"exec", "-n", "--", "no-such-program"}, stderr: "not found", code: 127},
		"no server":  {args: []string{"exec", "--server", "http://127.0.0.1:1", "-n", "--", "true"}, stderr: "core-api serve", code: 125},
		"no exec":    {args: []string{"show", "0190aaaa-7c1e-7d35-9a52-0f4f3a1b2c3d"}, stderr: "there is no exec", code: 4},
		"env":        {args: []string{"exec", "-n", "-e", "A=1", "-e", "SECBOX_PROJECT", "--", "bash", "-c", "echo $A $SECBOX_PROJECT"}, stdout: "1 command\n"},
		"policy":     {args: []string{"policy", "--memory", "100m", "--json"}, stdout: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, code := call(t, c.stdin, c.args...)
			if c.stdout == "*" {
				stdout = "*"
			}
			if name == "policy" {
				if !strings.Contains(stdout, `"memory_mb"`) {
					t.Error(stdout)
				}
				return
			}
			if stdout != c.stdout || !strings.Contains(stderr, c.stderr) || code != c.code {
				t.Errorf("%q, %q, code %d", stdout, stderr, code)
			}
		})
	}
	t.Run("a life", func(t *testing.T) {
		t.Parallel()
		if err := os.WriteFile(filepath.Join(dir, "data.csv"), []byte("1\n2\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, stderr, code := call(t, "", "exec", "--input", "data.csv:d/in.csv", "--out", "results", "--", "bash", "-c",
			"wc -l </workspace/inputs/d/in.csv >/workspace/artifacts/lines")
		if got, err := os.ReadFile(filepath.Join(dir, "results/lines")); err != nil || string(got) != "2\n" || code != 0 {
			t.Errorf("%q, %v, code %d: %s", got, err, code, stderr)
		}
		id, _, _ := call(t, "", "exec", "-d", "--task", "life", "--", "bash", "-c", "echo one; echo two >&2; exit 5")
		id = strings.TrimSpace(id)
		if out, _, code := call(t, "", "wait", id); code != 5 || out != id+"\tfailed\t5\n" {
			t.Errorf("%q, code %d", out, code)
		}
		if out, stderr, code := call(t, "", "logs", id); out != "one\n" || stderr != "two\n" || code != 0 {
			t.Errorf("%q, %q, code %d", out, stderr, code)
		}
		if out, _, _ := call(t, "", "ls", "--task", "life"); !strings.Contains(out, id) || !strings.Contains(out, "'echo one; echo two >&2; exit 5'") {
			t.Error(out)
		}
		if out, _, _ := call(t, "", "show", id); !strings.Contains(out, "memory_mb") {
			t.Error(out)
		}
	})
	t.Run("each", func(t *testing.T) {
		t.Parallel()
		lines := "\ufeff" + `{"exec": {"script": "exit 0"}}` + "\r\n\r\n" + `{"exec": {"script": "exit 2"}}` + "\n" + `{"exec": {}}` + "\n"
		out, stderr, code := call(t, lines, "exec", "--each", "-")
		var got []string
		for line := range strings.Lines(out) {
			var o struct {
				Line   int
				Status string
			}
			if err := json.Unmarshal([]byte(line), &o); err != nil {
				t.Fatal(err)
			}
			got = append(got, o.Status)
		}
		if strings.Join(got, " ") != "succeeded failed rejected" || code != 1 || !strings.Contains(stderr, "2 of 3") {
			t.Errorf("%s%s, code %d", out, stderr, code)
		}
	})
	t.Run("a reader that leaves", func(t *testing.T) {
		t.Parallel()
		cmd := exec.CommandContext(t.Context(), program, "exec", "-n", "--task", "leaves", "--", "yes")
		cmd.Env = environ
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 10)); err != nil {
			t.Error(err)
		}
		out.Close()
		_ = cmd.Wait()
		if out, _, code := call(t, "", "wait", "--task", "leaves"); code != 1 || !strings.Contains(out, `"canceled":1`) {
			t.Errorf("%s, code %d", out, code)
		}
	})
	t.Run("login", func(t *testing.T) {
		t.Parallel()
		login := filepath.Join(t.TempDir(), "c/login.json")
		cmd := exec.CommandContext(t.Context(), program, "login")
		cmd.Env, cmd.Stdin = append(environ, "SECBOX_CONFIG="+login, "SECBOX_TOKEN="), strings.NewReader(adminToken+"\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if info, err := os.Stat(login); err != nil || info.Mode().Perm() != 0o600 {
			t.Error(info, err)
		}
		cmd = exec.CommandContext(t.Context(), program, "ls")
		cmd.Env = append(environ, "SECBOX_CONFIG="+login, "SECBOX_TOKEN=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v", out, err)
		}
	})
}
