//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestScriptsOfPackages: no failure of a service keeps a package from being upgraded or removed,
// and an upgrade does not undo what an operator has done to the user.
func TestScriptsOfPackages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	for name, then := range map[string]string{
		"systemctl": "exit 1", "getent": `grep -qx "$1 $2" ` + filepath.Join(dir, "known"), "groupadd": "", "useradd": "", "usermod": "",
	} {
		write(t, filepath.Join(dir, name), "#!/bin/sh\necho "+name+` "$@" >>`+calls+"\n"+then+"\n", 0o755)
	}
	run := func(script, known string, args ...string) string {
		t.Helper()
		write(t, calls, "", 0o600)
		write(t, filepath.Join(dir, "known"), known, 0o600)
		text, err := os.ReadFile("linux/" + script)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, script)
		write(t, file, strings.ReplaceAll(string(text), "/run/systemd/system", dir), 0o755)
		cmd := exec.CommandContext(t.Context(), "sh", append([]string{file}, args...)...)
		cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s %s: %v, %s", script, args, err, out)
		}
		called, err := os.ReadFile(calls)
		if err != nil {
			t.Fatal(err)
		}
		return string(called)
	}

	for script, args := range map[string][]string{"postinstall.sh": {"configure"}, "preremove.sh": {"remove"}, "postremove.sh": {"remove"}} {
		if called := run(script, "", args...); !strings.Contains(called, "systemctl") {
			t.Errorf("%s has called %s", script, called)
		}
	}
	if called := run("preremove.sh", "", "upgrade", "2"); called != "" {
		t.Errorf("before an upgrade: %s", called)
	}
	if called := run("preinstall.sh", ""); !strings.Contains(called, "useradd") || !strings.HasSuffix(called, "usermod --append --groups docker secbox\n") {
		t.Errorf("first installation: %s", called)
	}
	if called := run("preinstall.sh", "group docker\ngroup secbox\npasswd secbox\n", "upgrade"); strings.Contains(called, "add") || strings.Contains(called, "mod") {
		t.Errorf("upgrade: %s", called)
	}
}
