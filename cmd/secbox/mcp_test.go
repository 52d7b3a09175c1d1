package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestInvalidFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		args  []string
		token string
		code  int
		says  string
	}{
		"no address":                       {[]string{"--server", "127.0.0.1:8003"}, "", 2, "is not an address"},
		"another scheme":                   {[]string{"--server", "ftp://host"}, "", 2, "is not an address"},
		"a password in the address":        {[]string{"--server", "http://user:secret@127.0.0.1"}, "", 2, "without user"},
		"a query":                          {[]string{"--server", "http://127.0.0.1/?x=1"}, "", 2, "without user, query"},
		"unknown names":                    {[]string{"--names", "dots"}, "", 2, "dotted"},
		"a token in the clear":             {[]string{"--server", "http://example.test"}, "sbx_x", 3, "--insecure"},
		"a token in the clear, by address": {[]string{"--server", "http://10.0.0.9:8003"}, "sbx_x", 3, "https://"},
		"a token with a line break":        {nil, "sbx_x\ny", 2, "not contain a token"},
		"no token file":                    {[]string{"--token-file", filepath.Join(dir, "missing")}, "", 2, "cannot read"},
		"an empty token file":              {[]string{"--token-file", file("empty", " \n")}, "", 2, "is empty"},
		"a large token file":               {[]string{"--token-file", file("large", strings.Repeat("x", 5000))}, "", 2, "bytes"},
		"an unknown flag":                  {[]string{"--token", "sbx_x"}, "", 2, "unknown flag"},
		"an argument":                      {[]string{"more"}, "", 2, "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, words bytes.Buffer
			code := run(t.Context(), append([]string{"mcp"}, c.args...), environment(envToken, c.token), strings.NewReader(""), &out, &words)
			if code != c.code || !strings.Contains(words.String(), c.says) || out.Len() > 0 {
				t.Errorf("code %d, %q, %q", code, out.String(), words.String())
			}
			if strings.Contains(words.String(), "sbx_x\n") || strings.Contains(words.String(), "secret") && name != "a password in the address" {
				t.Errorf("a secret is shown: %s", words.String())
			}
		})
	}
}

func TestTokenInPlainText(t *testing.T) {
	t.Parallel()
	for server, may := range map[string]bool{
		"http://127.0.0.1:8003": true, "http://localhost:8003": true, "http://[::1]:8003": true, "http://127.9.9.9": true,
		"https://example.test": true, "http://example.test": false, "http://localhost.example.test": false, "http://0.0.0.0": false,
		"http://[::ffff:127.0.0.1]": true, "http://127.0.0.1.example.test": false,
	} {
		o := mcpOptions{connection: connection{server: server}}
		u, err := o.endpoint()
		if err != nil {
			t.Fatal(err)
		}
		if err := o.mayCarry(u, "sbx_x"); (err == nil) != may {
			t.Errorf("%s: %v", server, err)
		}
		if err := o.mayCarry(u, ""); err != nil {
			t.Errorf("%s without a token: %v", server, err)
		}
		o.insecure = true
		if err := o.mayCarry(u, "sbx_x"); err != nil {
			t.Errorf("%s --insecure: %v", server, err)
		}
	}
}

func TestTokenFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("right\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRemote(t)
	answers, stderr, code := speak(t, "wrong", hello, "--server", "http://"+r.addr, "--token-file", path)
	if code != 0 || len(answers) != 1 || answers[0]["result"] == nil {
		t.Errorf("code %d, %v\n%s", code, answers, stderr)
	}
}

func TestSignal(t *testing.T) {
	t.Parallel()
	r := newRemote(t)
	ctx, signal := context.WithCancel(t.Context())
	input, host := newPipe(t)
	ended := make(chan int)
	var out, words lockedBuffer
	go func() {
		ended <- run(ctx, []string{"mcp", "--server", "http://" + r.addr}, environment(envToken, "right"), input, &out, &words)
	}()
	if _, err := host.Write([]byte(hello)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the session is open", func() bool { return strings.Contains(out.String(), `"serverInfo"`) && r.sessions() == 1 })
	signal()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
	eventually(t, "the session has ended", func() bool { return r.sessions() == 0 })
}

func TestVersion(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	if run(t.Context(), []string{"version"}, environment(), strings.NewReader(""), &said, io.Discard); !strings.HasPrefix(said.String(),
		"secbox "+version+" ("+runtime.Version()+", "+runtime.GOOS+"/"+runtime.GOARCH) {
		t.Errorf("version: %q", said.String())
	}
	for _, args := range [][]string{{"version"}, {"--version"}, {"help"}, {"help", "mcp"}} {
		var out, words bytes.Buffer
		if code := run(t.Context(), args, environment(), strings.NewReader(""), &out, &words); code != 0 || !strings.Contains(out.String(), "secbox") {
			t.Errorf("%v: code %d, %q %q", args, code, out.String(), words.String())
		}
	}
}
