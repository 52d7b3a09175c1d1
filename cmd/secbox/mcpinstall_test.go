package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"secbox/mcp/hosts"
)

// installed runs mcp install with a home directory of its own.
func installed(t *testing.T, home, token string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, words bytes.Buffer
	code = run(t.Context(), append([]string{"mcp", "install"}, args...),
		environment("HOME", home, "USERPROFILE", home, "APPDATA", filepath.Join(home, "AppData"), envToken, token), strings.NewReader(""), &out, &words)
	return code, out.String(), words.String()
}

// TestInstall: what mcp install writes starts a working server.
func TestInstall(t *testing.T) {
	t.Parallel()
	r := newRemote(t)
	home := t.TempDir()
	file := filepath.Join(home, ".cursor", "mcp.json")
	args := []string{"--for", "cursor", "--server", "http://" + r.addr, "--project", "demo"}
	code, stdout, stderr := installed(t, home, "right", args...)
	if code != 0 || !strings.Contains(stdout, file+" now has secbox: 3 tools of http://"+r.addr) || strings.Contains(stdout, "former") {
		t.Fatalf("code %d, %s%s", code, stdout, stderr)
	}
	var config struct {
		Servers map[string]struct {
			Command string
			Args    []string
			Env     map[string]string
		} `json:"mcpServers"`
	}
	content, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(content, &config) != nil {
		t.Fatal(err, string(content))
	}
	entry := config.Servers["secbox"]
	if program, err := os.Executable(); err != nil || entry.Command != program || slices.Contains(entry.Args, "right") {
		t.Errorf("%s %v", content, err)
	}
	answers, stderr, code := speak(t, entry.Env[envToken], hello, entry.Args[1:]...)
	if code != 0 || len(answers) != 1 || answers[0]["result"] == nil {
		t.Errorf("code %d, %v\n%s", code, answers, stderr)
	}
	eventually(t, "the session of mcp install has ended", func() bool { return r.sessions() == 0 })

	// Once more with a token file: the token leaves the configuration, and the former one is kept.
	token := filepath.Join(home, "token")
	if err := os.WriteFile(token, []byte("right\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = installed(t, home, "", append(args, "--token-file", token)...)
	if code != 0 || !strings.Contains(stdout, "former file is "+file+hosts.BackupEnding) {
		t.Errorf("code %d, %s%s", code, stdout, stderr)
	}
	if code, stdout, stderr = installed(t, home, "", append(args, "--token-file", token)...); code != 0 || strings.Contains(stdout, "former") {
		t.Errorf("nothing changes, and code %d, %s%s", code, stdout, stderr)
	}
	if kept, err := os.ReadFile(file + hosts.BackupEnding); err != nil || string(kept) != string(content) {
		t.Errorf("%v %s", err, kept)
	}
	content, err = os.ReadFile(file)
	if err != nil || strings.Contains(string(content), `"right"`) || !strings.Contains(string(content), `"--token-file", "`+token) {
		t.Errorf("%v %s", err, content)
	}
	if left, err := filepath.Glob(file + ".new-*"); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

func TestConfigurationWithATokenIsPrivate(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		return // it has no modes
	}
	r := newRemote(t)
	home := t.TempDir()
	real := filepath.Join(home, "dotfiles.json")
	link := filepath.Join(home, ".claude.json")
	if err := os.WriteFile(real, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := installed(t, home, "right", "--for", "claude-code", "--server", "http://"+r.addr); code != 0 {
		t.Fatal(stderr)
	}
	for _, name := range []string{real, real + hosts.BackupEnding} {
		if info, err := os.Lstat(name); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	if to, err := os.Readlink(link); err != nil || to != real {
		t.Errorf("the link is replaced: %s %v", to, err)
	}
}

// TestInstallRefused: no file changes.
func TestInstallRefused(t *testing.T) {
	t.Parallel()
	r := newRemote(t)
	for name, c := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"no host":           {nil, 2, []string{"--for", "claude-desktop, claude-code, cursor, vscode, codex, gemini"}},
		"an unknown host":   {[]string{"--for", "emacs"}, 2, []string{`"emacs" is no host`}},
		"a wrong name":      {[]string{"--for", "cursor", "--name", "a b"}, 2, []string{"--name"}},
		"no server":         {[]string{"--for", "cursor", "--server", unanswered}, 7, []string{"does not answer at " + unanswered, "core-api serve"}},
		"a wrong token":     {[]string{"--for", "cursor", "--server", "http://" + r.addr}, 3, []string{"the token is not known", envToken}},
		"in the clear":      {[]string{"--for", "cursor", "--server", "http://example.test"}, 3, []string{"https://"}},
		"no token file":     {[]string{"--for", "cursor", "--token-file", "missing"}, 2, []string{"cannot read"}},
		"a broken file":     {[]string{"--for", "gemini", "--server", "http://" + r.addr, "--token-file", "TOKEN"}, 2, []string{"settings.json", "it is not JSON", "--print"}},
		"a directory":       {[]string{"--for", "cursor", "--server", "http://" + r.addr, "--token-file", "TOKEN", "--file", "HOME"}, 2, []string{"not a regular file"}},
		"a token as a flag": {[]string{"--for", "cursor", "--token", "sbx"}, 2, []string{"unknown flag"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			settings := filepath.Join(home, ".gemini", "settings.json")
			for path, content := range map[string]string{settings: "{broken", filepath.Join(home, "token"): "right"} {
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			args := slices.Clone(c.args)
			for i, a := range args {
				args[i] = strings.NewReplacer("TOKEN", filepath.Join(home, "token"), "HOME", home).Replace(a)
			}
			code, stdout, stderr := installed(t, home, "wrong", args...)
			if code != c.code || stdout != "" {
				t.Errorf("code %d, %s%s", code, stdout, stderr)
			}
			for _, want := range c.says {
				if !strings.Contains(stderr, want) {
					t.Errorf("no %q in %s", want, stderr)
				}
			}
			if content, err := os.ReadFile(settings); err != nil || string(content) != "{broken" {
				t.Errorf("%v %s", err, content)
			}
			if _, err := os.Stat(filepath.Join(home, ".cursor")); err == nil {
				t.Error("a configuration was made")
			}
		})
	}
}

func TestPrintedEntry(t *testing.T) {
	t.Parallel()
	r := newRemote(t)
	home := t.TempDir()
	code, stdout, stderr := installed(t, home, "right", "--for", "codex", "--print", "--server", "http://"+r.addr, "--name", "box")
	if code != 0 || !strings.HasPrefix(stdout, "[mcp_servers.box]\nargs = ['mcp', '--server', 'http://"+r.addr+"']\ncommand = ") {
		t.Errorf("code %d, %s%s", code, stdout, stderr)
	}
	if files, err := os.ReadDir(home); err != nil || len(files) > 0 {
		t.Error(files, err)
	}
}

// TestInstallAfterLogin: the entry has no token, and secbox mcp finds the one of the login.
func TestInstallAfterLogin(t *testing.T) {
	t.Parallel()
	r := newRemote(t)
	home := t.TempDir()
	login := filepath.Join(home, "login.json")
	if err := os.WriteFile(login, []byte(`{"server": "http://`+r.addr+`/", "token": "right"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	getenv := environment("HOME", home, "USERPROFILE", home, "APPDATA", home, envConfig, login)
	var out, words bytes.Buffer
	if code := run(t.Context(), []string{"mcp", "install", "--for", "codex"}, getenv, strings.NewReader(""), &out, &words); code != 0 {
		t.Fatal(words.String())
	}
	config, err := os.ReadFile(filepath.Join(home, ".codex", "config.toml"))
	if err != nil || strings.Contains(string(config), "right") || !strings.Contains(string(config), "args = ['mcp', '--server', 'http://"+r.addr+"/']") {
		t.Errorf("%v %s", err, config)
	}
	out.Reset()
	code := run(t.Context(), []string{"mcp", "--server", "http://" + r.addr + "/"}, getenv, strings.NewReader(hello), &out, &words)
	if code != 0 || !strings.Contains(out.String(), `"result"`) {
		t.Errorf("code %d, %s%s", code, out.String(), words.String())
	}
}
