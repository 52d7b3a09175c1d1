package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestScriptsTimeOut checks that output until the timeout is kept.
func TestScriptsTimeOut(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for skill, inputs := range map[string]object{
		"shell.run":  {"script": "printf early; trap '' TERM; sleep 1000"},
		"python.run": {"code": "import time\nprint('early', end='')\ntime.sleep(1000)"},
	} {
		a := s.send(http.MethodPost, "/skills/"+skill+"/invoke", object{
			"project_id": "scripts-time-out", "inputs": inputs, "policy_overrides": object{"timeout_ms": 1500},
		}).json(t)
		if a.str("exec.status") != "timeout" || a.str("exec.stdout") != "early" || a["outputs"] != nil {
			t.Errorf("%s: %v", skill, a)
		}
	}
}

// TestScriptsEndAtSIGTERM checks that a script gets the SIGTERM before its timeout, has the time up
// to it, and chooses the exit code.
func TestScriptsEndAtSIGTERM(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for skill, inputs := range map[string]object{
		"shell.run": {"script": "trap 'sleep 0.3; echo saved >/workspace/artifacts/saved; echo bye; exit 3' TERM; echo up; sleep 1000 & wait"},
		"python.run": {"code": "import signal, sys, time\ndef end(*_):\n    time.sleep(0.3)\n    open('/workspace/artifacts/saved', 'w').write('saved\\n')\n " +
			"   print('bye')\n    sys.exit(3)\n" +
			"signal.signal(signal.SIGTERM, end)\nprint('up')\ntime.sleep(1000)"},
	} {
		a := s.send(http.MethodPost, "/skills/"+skill+"/invoke", object{
			"project_id": "scripts-sigterm", "inputs": inputs, "policy_overrides": object{"timeout_ms": 6000, "kill_grace_ms": 3000},
		}).json(t)
		if a.str("exec.status") != "timeout" || a.str("exec.stdout") != "up\nbye\n" || a.at("exec.exit_code") != 3.0 ||
			a.list("exec.artifacts")[0].at("path") != "saved" {
			t.Errorf("%s: %v", skill, a)
		}
	}
}

// TestScriptsOutOfMemory checks the status when a child of the skill is killed for memory.
func TestScriptsOutOfMemory(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a := s.send(http.MethodPost, "/skills/python.run/invoke", object{
		"project_id": "scripts-memory", "inputs": object{"code": "print('x')\nbytearray(300 << 20)"}, "policy_overrides": object{"memory_mb": 64},
	}).json(t)
	if a.str("exec.status") != "oom_killed" || a.str("exec.stdout") != "x\n" || !strings.Contains(a.str("exec.detail"), "memory_mb") {
		t.Errorf("%v", a)
	}
}

// TestScriptsShareWork: what one leaves in work/ the next finds; modules there can be imported, and
// leave no bytecode.
func TestScriptsShareWork(t *testing.T) {
	t.Parallel()
	s := shared(t)
	s.uses("scripts-share", "shell.run", object{"script": "mkdir -p 'pück age'; echo 'N = 41' > helper.py; echo 'raise SystemExit(3)' > random.py; echo x > " +
		"'pück age/ÿ'; echo y > /workspace/artifacts/made.txt"})
	out := s.uses("scripts-share", "python.run", object{"code": "import random, helper, os\nprint(helper.N + 1, random.__file__, os.listdir('pück " +
		"age'))\nopen('/workspace/artifacts/made.txt', 'w').write('z')"})
	if got := out.str("stdout"); !strings.HasPrefix(got, "42 /usr/") || !strings.Contains(got, "['ÿ']") {
		t.Errorf("%q", got)
	}
	if _, err := os.Stat(filepath.Join(s.project("scripts-share"), "work/__pycache__")); err == nil {
		t.Error("importing a module left __pycache__ in work/")
	}
	a := s.use("scripts-share", "python.run", object{"code": "open('/workspace/artifacts/made.txt', 'w').write('z')"})
	if got := s.artifact(a.str("exec.exec_id"), "made.txt"); string(got.Body) != "z" {
		t.Errorf("artifact: %d %q", got.Code, got.Body)
	}
}
