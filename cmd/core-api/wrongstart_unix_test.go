//go:build unix

package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/internal/statedir"
)

// TestStartErrorsHaveRemedies starts the server with mistakes. Each message has the cause and a
// remedy, on one line.
func TestStartErrorsHaveRemedies(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	dir := t.TempDir()
	file := filepath.Join(dir, "settings.yaml")
	if err := os.WriteFile(file, []byte("sandbox: {max_concurent_execs: 3}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := statedir.Open(filepath.Join(dir, "held"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { held.Close() })

	for name, tc := range map[string]struct {
		args    []string
		environ []string
		code    int
		says    []string
	}{
		"port in use": {
			[]string{"--addr", taken.Addr().String()},
			nil, 2,
			[]string{taken.Addr().String() + ": address already in use", "choose another --addr"},
		},
		"an address of others": {
			[]string{"--addr", "192.0.2.1:8003"},
			[]string{"CORE_API_ADMIN_TOKEN=0123456789abcdef"},
			2,
			[]string{"cannot assign requested address", "no such address"},
		},
		"no port":        {[]string{"--addr", "127.0.0.1"}, nil, 2, []string{"host:port", "set by --addr"}},
		"open to others": {[]string{"--addr", "0.0.0.0:0"}, nil, 2, []string{"core-api token create --role admin --state-dir " + dir}},
		"workspace root below a file": {
			[]string{"--workspace-root", file + "/root"},
			nil, 2,
			[]string{"sandbox.workspace_root: " + file + "/root cannot be reached: not a directory", "set by --workspace-root"},
		},
		"state dir below a file": {
			[]string{"--state-dir", file + "/state"},
			nil, 2,
			[]string{"state_dir: " + file + "/state cannot be reached: not a directory", "set by --state-dir"},
		},
		"state dir that is a file": {
			[]string{"--state-dir", file},
			nil, 2,
			[]string{"state_dir " + file, "not a directory", "choose another with --state-dir"},
		},
		"state dir held":            {[]string{"--state-dir", held.Path()}, nil, 5, []string{"another core-api holds", "--state-dir"}},
		"unknown key":               {[]string{"--config", file}, nil, 2, []string{"line 1 of settings.yaml", "did you mean sandbox.max_concurrent_execs?"}},
		"no settings file":          {[]string{"--config", file + "x"}, nil, 2, []string{"there is no such file", "--config"}},
		"settings file is a folder": {[]string{"--config", dir}, nil, 2, []string{"is a directory", "--config"}},
		"database URL of another": {
			nil,
			[]string{"DATABASE_URL=mysql://u:hunter2@h/d"},
			2,
			[]string{"postgres://user:password@host:5432/name", "set by DATABASE_URL"},
		},
		"no docker": {
			nil,
			[]string{"CORE_API_SANDBOX_DOCKER_PATH=/nope/docker"},
			7,
			[]string{"/nope/docker", "install Docker", "sandbox.docker_path"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			var stderr strings.Builder
			code := run(t.Context(), append([]string{
				"serve", "--addr", "127.0.0.1:0", "--log-level", "error", "--state-dir", filepath.Join(own, "state"), "--workspace-root",
				filepath.Join(own, "workspace"),
			}, tc.args...), append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + own}, tc.environ...), &stderr, &stderr)
			said := stderr.String()
			if code != tc.code || strings.Count(said, "\n") != 1 || strings.Contains(said, "hunter2") {
				t.Errorf("exit code %d, want %d\n%s", code, tc.code, said)
			}
			for _, part := range tc.says {
				if !strings.Contains(said, part) {
					t.Errorf("%s\ndoes not say %q", said, part)
				}
			}
		})
	}
}
