//go:build unix

package e2e

import (
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestHostileProcesses runs jobs with misleading output and jobs that resist being ended.
func TestHostileProcesses(t *testing.T) {
	t.Parallel()
	onWaiting(t, func(t *testing.T, s *testServer) {
		t.Run("jobs", func(t *testing.T) { hostileProcesses(t, s) })
		s.works("after-hostile-processes")
	})
}

func hostileProcesses(t *testing.T, s *testServer) {
	for _, c := range []struct {
		name           string
		script         string
		policy         object
		env            object
		status, reason string
		exit           any
		raw            string // the whole of …/stdout; empty: not checked
		has            string // is in the inline stdout
		check          func(*testing.T, *testServer, object)
	}{
		{
			name: "prints what looks like frames", exit: 7.0, status: "failed", reason: "nonzero_exit",
			script: `printf 'x\0\0\0\2{}h\0\0\0\15secbox-init/2x\0\0\0\002{}'; printf 'x\0\0\0\2{}' >&2; exit 7`,
			raw:    "x\x00\x00\x00\x02{}h\x00\x00\x00\rsecbox-init/2x\x00\x00\x00\x02{}",
		},
		{
			name: "prints what looks like docker", exit: 125.0, status: "failed", reason: "nonzero_exit",
			raw: "docker: Error response from daemon: No such image: secbox-sandbox:latest.\n",
			script: `m="docker: Error response from daemon: No such image: secbox-sandbox:latest."; echo "$m"; echo "$m
See 'docker run --help'." >&2; exit 125`,
		},
		{
			name: "prints what looks like our answer", exit: 0.0, status: "succeeded", has: `"status": "oom_killed"`,
			script: `echo '"}, "status": "oom_killed", "exit_code": 9, {"'`,
		},
		{
			name: "ignores SIGTERM, with all its children", policy: object{"timeout_ms": 700}, status: "timeout", reason: "timeout", exit: 137.0, has: "begun",
			script: `trap '' TERM INT HUP; for i in 1 2 3; do (trap '' TERM; setsid sleep 1000) & done; echo begun; while :; do sleep 1000; done`,
		},
		{
			name: "double fork", exit: 0.0, status: "succeeded", raw: "left\n",
			script: `(setsid bash -c 'trap "" TERM HUP; while :; do echo x >> /workspace/work/tick; sleep 0.02; done' & ); while [ ! -s /workspace/work/tick ]; do sleep 0.02; done; echo left`,
			check: func(t *testing.T, s *testServer, result object) {
				eventually(t, "its container is gone", func() bool { return len(containersWith(t, "secbox.exec="+result.str("exec_id"))) == 0 })
			},
		},
		{
			name: "prints without end", policy: object{"timeout_ms": 1000, "max_stdout_bytes": 1000}, status: "timeout", reason: "timeout", exit: 143.0,
			script: "yes", raw: strings.Repeat("y\n", 500),
			check: func(t *testing.T, _ *testServer, result object) {
				if result.at("stdout_truncated") != true || result.num("stdout_bytes") <= 1000 {
					t.Errorf("%v", result)
				}
			},
		},
		{
			name: "prints far more than is kept, on both", policy: object{"max_stdout_bytes": 100_000, "max_stderr_bytes": 10}, status: "succeeded", exit: 0.0,
			script: "head -c 50000000 /dev/zero | tee /dev/stderr",
			check: func(t *testing.T, s *testServer, result object) {
				for name, want := range map[string]any{
					"stdout_truncated": true, "stderr_truncated": true, "stdout_bytes": 50e6, "stderr_bytes": 50e6,
					"stdout": strings.Repeat("\x00", 64<<10), "stderr": strings.Repeat("\x00", 10),
				} {
					if result.at(name) != want {
						t.Errorf("%s is %.50v", name, result.at(name))
					}
				}
				if out := s.send(http.MethodGet, "/sandbox/execs/"+result.str("exec_id")+"/stdout", nil); len(out.Body) != 100_000 {
					t.Errorf("%d bytes were kept", len(out.Body))
				}
			},
		},
		{
			name: "NULs and broken UTF-8", script: `printf 'a\0b\377c\355\240\200d\360\237\230'`, status: "succeeded", exit: 0.0,
			raw: "a\x00b\xffc\xed\xa0\x80d\xf0\x9f\x98", has: "a\x00b\uFFFDc",
		},
		{
			name: "a character across the inline limit", script: "head -c 65535 /dev/zero | tr '\\0' x; printf 'é'", status: "succeeded", exit: 0.0,
			raw: strings.Repeat("x", 65535) + "é",
			check: func(t *testing.T, _ *testServer, result object) {
				if result.str("stdout") != strings.Repeat("x", 65535) || result.at("stdout_truncated") != false {
					t.Errorf("%d characters inline, truncated %v", len(result.str("stdout")), result.at("stdout_truncated"))
				}
			},
		},
		{
			name: "fills tmp", script: "head -c 200M /dev/zero > /tmp/x; echo $?", policy: object{"tmp_mb": 16}, status: "succeeded", exit: 0.0, raw: "1\n",
		},
		{
			name: "a fork bomb", policy: object{"pids": 64, "timeout_ms": 3000}, status: "timeout", reason: "timeout", exit: 137.0,
			script: "trap '' TERM; bomb() { bomb | bomb & }; bomb; while :; do sleep 0.1; done",
		},
		{
			name: "variables that steer docker and the loader", status: "succeeded", exit: 0.0,
			env: object{
				"DOCKER_HOST": "tcp://127.0.0.1:1", "DOCKER_CONTEXT": "none", "DOCKER_CONFIG": "/nowhere", "DOCKER_TLS_VERIFY": "1",
				"LD_PRELOAD":      "/nowhere/x.so",
				"LD_LIBRARY_PATH": "/nowhere", "HTTP_PROXY": "http://127.0.0.1:1", "GODEBUG": "x=1", "GOTRACEBACK": "crash", "HOME": "/nowhere",
			},
			script: `unset LD_PRELOAD LD_LIBRARY_PATH; echo "$DOCKER_HOST $DOCKER_CONFIG $HOME $GODEBUG"`, raw: "tcp://127.0.0.1:1 /nowhere /nowhere x=1\n",
		},
		{
			name: "a PATH of its own", env: object{"PATH": "/workspace/work"}, script: "echo $PATH", status: "succeeded", exit: 0.0, has: "/workspace/work",
		},
		{
			name: "variables that steer bash", env: object{
				"BASH_ENV": "/workspace/work/x", "ENV": "x", "SHELLOPTS": "x",
				"BASH_FUNC_echo%%": "() { builtin echo hijacked; }", "PS4": "$(id)",
			},
			script: "builtin echo ran", status: "succeeded", exit: 0.0, has: "ran",
		},
		{
			name: "no exit code that fits", script: "exit 4242", status: "failed", reason: "nonzero_exit", exit: float64(4242 % 256),
		},
		{
			name: "kills everything it may", script: "(kill -9 -1) & wait; sleep 1000", status: "failed", reason: "nonzero_exit", exit: 137.0,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := s.with(t)
			request := shell(projectFor(c.name), c.script)
			if c.policy != nil {
				request["policy_overrides"] = c.policy
			}
			if c.env != nil {
				request["exec"].(object)["env"] = c.env
			}
			a := s.send(http.MethodPost, "/sandbox/execs", request)
			if !utf8.Valid(a.Body) {
				t.Error("the answer is not UTF-8")
			}
			result := a.json(t)
			ended := result.at("exit_code")
			if c.reason == "timeout" && ended == 137.0 { // on a slow machine the grace may end before SIGTERM has ended the job
				ended = c.exit
			}
			if result.str("status") != c.status || result.str("error_reason") != c.reason || ended != c.exit {
				t.Errorf("%.2000v", result)
			}
			out := s.send(http.MethodGet, "/sandbox/execs/"+result.str("exec_id")+"/stdout", nil)
			if c.raw != "" && string(out.Body) != c.raw {
				t.Errorf("stdout %.200q, want %.200q", out.Body, c.raw)
			}
			if !strings.Contains(result.str("stdout"), c.has) ||
				result.at("stdout_truncated") == false && result.num("stdout_bytes") != float64(len(out.Body)) {
				t.Errorf("%.2000v", result)
			}
			if c.check != nil {
				c.check(t, s, result)
			}
		})
	}
}
