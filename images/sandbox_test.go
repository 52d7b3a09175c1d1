package images

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"secbox/mcp/tools"
	"secbox/packages/confine"
)

// inSandbox runs a bash script in the sandbox image as an exec would find it, without sandbox-init.
func inSandbox(t *testing.T, script string, flags ...string) string {
	t.Helper()
	args := append([]string{
		"run", "--rm", "--network=none", "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges",
		"--log-driver=none", "--entrypoint=bash",
	}, flags...)
	return docker(t, append(args, sandboxImage, "-lc", script)...)
}

func TestSandboxPrograms(t *testing.T) {
	t.Parallel()
	missing := inSandbox(t, `for c in bash sh ls cat cp mv rm mkdir sort find xargs grep sed gawk awk jq git curl zip unzip python python3 pip pip3 \
		ps pgrep patch xz bzip2 file less tree wget xxd; do
		command -v "$c" >/dev/null || echo "$c"
	done`)
	if missing != "" {
		t.Errorf("missing in the image: %s", strings.Fields(missing))
	}
	got := inSandbox(t, `python -c 'import sys; print(sys.version_info >= (3, 11))'
		[ "$(python -V)" = "$(python3 -V)" ] && echo same
		python -m pip --version | cut -d' ' -f1
		python3 -m venv --without-pip /tmp/venv && /tmp/venv/bin/python -c 'print("venv")'
		echo '{"a": 1}' | jq -c .
		git init -q /tmp/repository && echo git
		git -C /tmp/repository commit -q --allow-empty -m first && git -C /tmp/repository log --format='%an %ae'; echo $USER $LOGNAME
		cd /tmp && echo x > x && zip -q x.zip x && unzip -p x.zip`)
	if want := "True\nsame\npip\nvenv\n{\"a\":1}\ngit\nsandbox sandbox@localhost\nsandbox sandbox\nx"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestHintsNameProgramsOfTheImage: what core-api tells an agent to run must be there.
func TestHintsNameProgramsOfTheImage(t *testing.T) {
	t.Parallel()
	for _, program := range slices.Concat(tools.BinaryPrograms, confine.Commands()) {
		if inSandbox(t, "command -v "+program) == "" {
			t.Errorf("%s is not in the image", program)
		}
	}
}

func TestNoProgramIsSetuid(t *testing.T) {
	t.Parallel()
	if found := inSandbox(t, "find / -xdev -type f -perm /6000 2>/dev/null; true", "--user=0:0"); found != "" {
		t.Errorf("setuid or setgid: %s", found)
	}
}

func TestSandboxOwnership(t *testing.T) {
	t.Parallel()
	got := inSandbox(t, `id -u; id -g; id -un; pwd
		stat -c '%U %a %n' /workspace/inputs /workspace/work /workspace/artifacts /opt/secbox /opt/secbox/sandbox-init`)
	want := `1000
1000
sandbox
/workspace/work
sandbox 755 /workspace/inputs
sandbox 755 /workspace/work
sandbox 755 /workspace/artifacts
root 755 /opt/secbox
root 755 /opt/secbox/sandbox-init`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// Another uid, as core-api's own user has it on some machines, finds a home and a workspace
	// too.
	if got := inSandbox(t, `cd ~ && pwd && touch here && python -c 'print(1)'`, "--user=54321:54321"); got != "/tmp\n1" {
		t.Errorf("as a user without a name: %q", got)
	}
}

func TestLoginShellKeepsEnvironment(t *testing.T) {
	t.Parallel()
	got := inSandbox(t, `echo "$PATH|$HOME|$LANG|$MINE"`, "--env=PATH=/mine:/usr/bin:/bin", "--env=HOME=/workspace/work", "--env=MINE=1")
	if want := "/mine:/usr/bin:/bin|/workspace/work|C.UTF-8|1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPythonIsUnbuffered(t *testing.T) {
	t.Parallel()
	// Output printed before a job was killed must not be lost.
	if got := inSandbox(t, `python -c 'import os; print("said"); os._exit(0)'`); got != "said" {
		t.Errorf("got %q", got)
	}
}

func TestImageConfig(t *testing.T) {
	t.Parallel()
	var image struct {
		Config struct {
			Entrypoint []string
			User       string
			Labels     map[string]string
		}
	}
	if err := json.Unmarshal([]byte(docker(t, "image", "inspect", "--format", "{{json .}}", sandboxImage)), &image); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(image.Config.Entrypoint, " "); got != "/opt/secbox/sandbox-init" {
		t.Errorf("the entrypoint is %q", got)
	}
	if image.Config.User != "1000:1000" {
		t.Errorf("the user is %q", image.Config.User)
	}
	inside := strings.Fields(inSandbox(t, "sha256sum /opt/secbox/sandbox-init"))[0]
	if got := image.Config.Labels["secbox.sandbox-init"]; got != inside {
		t.Errorf("the label names build %q, the image holds %q", got, inside)
	}
}

func TestBuildWithoutNetwork(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sandbox-init"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	tag := temporaryTag(t, "secbox-sandbox")
	// The image itself is such a base; it has the user already, too.
	docker(t, "build", "--network=none", "--no-cache", "--force-rm", "--build-arg", "BASE="+sandboxImage, "-f", "sandbox.Dockerfile", "-t", tag, dir)
	if got := docker(t, "run", "--rm", "--network=none", "--entrypoint=id", tag, "-un"); got != "sandbox" {
		t.Errorf("the user is %q", got)
	}
}

func TestSecondBuildIsSkipped(t *testing.T) {
	t.Parallel()
	tag := temporaryTag(t, "secbox-sandbox")
	environ := []string{"SECBOX_SANDBOX_TAG=" + tag}
	if out := run(t, environ, "./build-sandbox.sh"); !strings.Contains(out, "built "+tag) {
		t.Fatalf("the first build said:\n%s", out)
	}
	first := docker(t, "image", "inspect", "--format", "{{.Id}}", tag)
	if out := run(t, environ, "./build-sandbox.sh"); !strings.Contains(out, "up to date") {
		t.Errorf("the second build said:\n%s", out)
	}
	if second := docker(t, "image", "inspect", "--format", "{{.Id}}", tag); second != first {
		t.Errorf("the image changed from %s to %s", first, second)
	}
}

func TestMissingBase(t *testing.T) {
	t.Parallel()
	out, said, err := try(t, []string{"SECBOX_SANDBOX_BASE=secbox-none:such"}, "./build-sandbox.sh")
	if err == nil || out != "" || strings.Count(said, "\n") != 1 ||
		!strings.Contains(said, "the engine has no image secbox-none:such; docker pull or docker load it first") {
		t.Errorf("err %v, it said:\n%s%s", err, out, said)
	}
}
