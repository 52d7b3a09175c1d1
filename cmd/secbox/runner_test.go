package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunnerFlags: errors that end secbox runner before it dials.
func TestRunnerFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	empty := filepath.Join(dir, "empty")
	for name, content := range map[string]string{file: "a token", empty: "\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good := []string{"--server", "ws://127.0.0.1:1", "--workspace", dir, "--name", "laptop"}
	for name, c := range map[string]struct {
		token string
		args  []string
		code  int
		says  []string
	}{
		"no workspace":       {"t", []string{"--server", "ws://127.0.0.1:1"}, 2, []string{"--workspace"}},
		"not there":          {"t", append(good, "--workspace", filepath.Join(dir, "nothing")), 2, []string{"does not exist", "mkdir -p"}},
		"a file":             {"t", append(good, "--workspace", file), 2, []string{"is not a directory"}},
		"no token":           {"", good, 3, []string{envToken, "--token-file", "core-api token create --role runner --user NAME"}},
		"two tokens":         {"", append(good, "--token", "x", "--token-file", file), 2, []string{"--token-file"}},
		"an empty file":      {"", append(good, "--token-file", empty), 2, []string{"is empty"}},
		"no such file":       {"", append(good, "--token-file", filepath.Join(dir, "nothing")), 2, []string{"cannot read"}},
		"two words":          {"", append(good, "--token-file", file), 2, []string{"not contain a token"}},
		"no address":         {"t", append(good, "--server", "laptop:80"), 2, []string{"--server"}},
		"in plain text":      {"t", append(good, "--server", "ws://core-api.example.com"), 2, []string{"--insecure", "wss://"}},
		"an unknown grant":   {"t", append(good, "--allow", "exec,root"), 2, []string{"--allow", "exec", "write"}},
		"no name":            {"t", append(good, "--name", "my laptop"), 2, []string{"--name"}},
		"an unknown flag":    {"t", append(good, "--sudo"), 2, []string{"--sudo"}},
		"an argument":        {"t", append(good, "run"), 2, []string{"unknown command"}},
		"a dangerous choice": {"t", append(good, "--workspace", string(filepath.Separator)), 2, []string{"the whole machine"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), append([]string{"runner"}, c.args...), environment(envToken, c.token), strings.NewReader(""), &stdout, &stderr)
			if code != c.code || stdout.Len() != 0 {
				t.Errorf("code %d, %q", code, stdout.String())
			}
			for _, want := range c.says {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("no %q in %q", want, stderr.String())
				}
			}
		})
	}
}

func TestRunnerHelp(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"runner", "--help"}, environment(), strings.NewReader(""), &stdout, &stderr); code != 0 {
		t.Errorf("code %d", code)
	}
	for _, want := range []string{"--allow", "process list", "not: they run as the user", "--insecure", envToken} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout.String())
		}
	}
}

func TestExpandHome(t *testing.T) {
	t.Parallel()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"~/agent": filepath.Join(home, "agent"), "agent": "agent", "/a/~/b": "/a/~/b", "": ""} {
		if got, err := expandHome(path); err != nil || got != want {
			t.Errorf("%q: %q, %v", path, got, err)
		}
	}
}
