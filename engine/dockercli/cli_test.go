package dockercli_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"secbox/engine/dockercli"
	"secbox/engine/dockercli/dockerclitest"
	"secbox/fault"
)

func find(t *testing.T, environ ...string) *dockercli.CLI {
	t.Helper()
	cli, err := dockercli.Find("", append(os.Environ(), environ...))
	if err != nil {
		t.Fatalf("%v; run `make setup`", err)
	}
	return cli
}

// kindOf runs docker and returns the Kind of its error.
func kindOf(t *testing.T, cli *dockercli.CLI, args ...string) (dockercli.Kind, fault.Code) {
	t.Helper()
	_, err := cli.Output(t.Context(), args...)
	if err == nil {
		t.Fatalf("docker %s succeeded", strings.Join(args, " "))
	}
	var failed *dockercli.Error
	if !errors.As(err, &failed) {
		t.Fatalf("docker %s: %v is no complaint of the CLI", strings.Join(args, " "), err)
	}
	t.Logf("docker %s said: %s", strings.Join(args, " "), failed.Stderr)
	return failed.Kind, fault.CodeOf(err)
}

// TestMessagesOfRealEngine provokes errors of a real engine, so that a new wording is noticed.
func TestMessagesOfRealEngine(t *testing.T) {
	t.Parallel()
	cli := find(t)
	const image = "secbox-sandbox:latest"
	name := "secbox-words-" + strings.ReplaceAll(t.Name(), "/", "-")
	run := []string{"run", "--rm", "--pull=never", "--network=none"}
	if _, err := cli.Output(t.Context(), "create", "--name", name, "--network=none", image); err != nil {
		t.Fatalf("%v; run `make setup`", err)
	}
	t.Cleanup(func() { _, _ = cli.Output(context.Background(), "rm", "-f", name) })
	for _, c := range []struct {
		name string
		args []string
		kind dockercli.Kind
		code fault.Code
	}{
		{"run without the image", append(run, "no-such-image:1"), dockercli.NoImage, fault.ImageMissing},
		{"run without the image id", append(run, "sha256:"+strings.Repeat("0", 64)), dockercli.NoImage, fault.ImageMissing},
		{"inspect without the image", []string{"image", "inspect", "no-such-image:1"}, dockercli.NoImage, fault.ImageMissing},
		{"inspect without the container", []string{"container", "inspect", "no-such-container"}, dockercli.NoContainer, fault.Internal},
		{"a name that is taken", []string{"create", "--name", name, image}, dockercli.NameTaken, fault.Internal},
		{"a mount source that is not there", append(run, "--mount", "type=bind,source=/no/such/dir,target=/x", image), dockercli.BadMount, fault.Internal},
		{"an entrypoint that is not there", append(run, "--entrypoint", "/no/such/program", image), dockercli.NotStartable, fault.Internal},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if kind, code := kindOf(t, cli, c.args...); kind != c.kind || code != c.code {
				t.Errorf("read as kind %d, code %s; want %d, %s", kind, code, c.kind, c.code)
			}
		})
	}
	t.Run("no engine", func(t *testing.T) {
		t.Parallel()
		lost := find(t, "DOCKER_HOST=unix://"+filepath.Join(t.TempDir(), "docker.sock"))
		if kind, code := kindOf(t, lost, "ps"); kind != dockercli.Unreachable || code != fault.EngineUnavailable {
			t.Errorf("kind %d, code %s", kind, code)
		}
		if _, err := lost.Info(t.Context()); !fault.Is(err, fault.EngineUnavailable) {
			t.Errorf("info: %v", err)
		}
		if kind, _ := kindOf(t, lost, append(run, image)...); kind != dockercli.Unreachable {
			t.Errorf("run: kind %d", kind)
		}
	})
	t.Run("no TCP engine", func(t *testing.T) {
		t.Parallel()
		lost := find(t, "DOCKER_HOST=tcp://127.0.0.1:1")
		if kind, code := kindOf(t, lost, "ps"); kind != dockercli.Unreachable || code != fault.EngineUnavailable {
			t.Errorf("kind %d, code %s", kind, code)
		}
	})
}

// TestClassify has messages of engines and CLIs that this machine does not have.
func TestClassify(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]dockercli.Kind{
		"Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?":                                                                                 dockercli.Unreachable,
		"failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is correct":                                                                                  dockercli.Unreachable,
		"error during connect: this error may indicate that the docker daemon is not running: open //./pipe/docker_engine: The system cannot":                                               dockercli.Unreachable,
		"permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock":                                                                              dockercli.Unreachable,
		"docker: Error response from daemon: No such image: sha256:00.":                                                                                                                     dockercli.NoImage,
		`docker: Error response from daemon: connection error: desc = "transport: Error while dialing dial unix /run/containerd/containerd.sock: connect: connection refused": unavailable`: dockercli.Unreachable,
		"docker: Error response from daemon: connection closed: unavailable":                                                                                                                dockercli.Unreachable,
		"Unable to find image 'x:1' locally":                                                                                        dockercli.NoImage,
		"Error response from daemon: removal of container x is already in progress":                                                 dockercli.Removing,
		"write /var/lib/docker/tmp: no space left on device":                                                                        dockercli.NoResources,
		"docker: Error response from daemon: unknown or invalid runtime name: crun":                                                 dockercli.NoRuntime,
		"docker: Error response from daemon: client version 1.45 is too new. Maximum supported API version is 1.41":                 dockercli.TooOld,
		`invalid argument "type=volume,volume-subpath=a" for "--mount" flag: unexpected key 'volume-subpath' in 'volume-subpath=a'`: dockercli.TooOld,
		"an unknown message": dockercli.Other,
		"":                   dockercli.Other,
	} {
		if got := dockercli.Classify(text); got != want {
			t.Errorf("%q is read as %d, want %d", text, got, want)
		}
	}
}

func TestRemoveMissingContainer(t *testing.T) {
	t.Parallel()
	if err := find(t).Remove(t.Context(), "secbox-no-such-container"); err != nil {
		t.Fatal(err)
	}
}

func TestHungEngine(t *testing.T) {
	t.Parallel()
	// The socket accepts connections and never answers, as a hung engine does.
	listener := listenUnix(t)
	cli := find(t, "DOCKER_HOST=unix://"+listener)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := cli.Output(ctx, "ps"); !fault.Is(err, fault.EngineUnavailable) {
		t.Fatalf("got %v", err)
	}
}

// TestMinimalEnvironment runs a program in docker's place that prints its environment.
func TestMinimalEnvironment(t *testing.T) {
	t.Parallel()
	cli, err := dockercli.Find(dockerclitest.Program(t, "env"), []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/h", "DOCKER_HOST=unix:///d", "SECRET_KEY=s", "AWS_ACCESS_KEY_ID=a", "LD_PRELOAD=x", "CORE_API_ADMIN_TOKEN=t",
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := cli.Output(t.Context(), "version")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"HOME=/h\n", "DOCKER_HOST=unix:///d\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("lacks %q: %s", want, out)
		}
	}
	for _, bad := range []string{"SECRET_KEY", "AWS_", "LD_PRELOAD", "ADMIN_TOKEN"} {
		if strings.Contains(string(out), bad) {
			t.Errorf("shows %s", bad)
		}
	}
}

// TestOlderEngineIsRefused: an engine before Docker 26 would mount a whole volume where a directory
// of it was asked for, so no command may reach one.
func TestOlderEngineIsRefused(t *testing.T) {
	t.Parallel()
	cli, err := dockercli.Find(dockerclitest.Program(t, `echo "$DOCKER_API_VERSION"`), append(os.Environ(), "DOCKER_API_VERSION=1.41"))
	if err != nil {
		t.Fatal(err)
	}
	cli.RequireSubpath()
	if out, err := cli.Output(t.Context(), "version"); err != nil || string(out) != "1.45\n" {
		t.Errorf("the CLI is asked to use the version %q of the API, %v", out, err)
	}

	cli = find(t)
	info, err := cli.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	major, err := strconv.Atoi(strings.Split(info.ServerVersion, ".")[0])
	if err != nil {
		t.Fatal(err)
	}
	cli.RequireSubpath()
	_, err = cli.Info(t.Context())
	_, inspecting := cli.InspectImage(t.Context(), "secbox-sandbox:latest")
	if old := major < 26; dockercli.IsTooOld(err) != old || dockercli.IsTooOld(inspecting) != old {
		t.Errorf("engine %s: %v, %v", info.ServerVersion, err, inspecting)
	} else if old && (!fault.Is(err, fault.EngineUnavailable) || !strings.Contains(err.Error(), "which needs Docker 26; update Docker")) {
		t.Errorf("got %v", err)
	}

	cli = dockerclitest.Script(t, `echo '{"ServerErrors":["Error response from daemon: client version 1.45 is too new. Maximum supported API version is 1.41"]}'`)
	if _, err := cli.Info(t.Context()); !dockercli.IsTooOld(err) { // of a CLI that exits 0
		t.Errorf("got %v", err)
	}
}

func TestMissingBinary(t *testing.T) {
	t.Parallel()
	_, err := dockercli.Find("/no/such/docker", nil)
	if !fault.Is(err, fault.EngineUnavailable) || !strings.Contains(err.Error(), "sandbox.docker_path") {
		t.Fatalf("got %v", err)
	}
}

func TestInfo(t *testing.T) {
	t.Parallel()
	info, err := find(t).Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want, err := exec.CommandContext(t.Context(), "docker", "version", "-f", "{{.Server.Version}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	if info.ServerVersion != strings.TrimSpace(string(want)) || info.NCPU < 1 || info.MemTotal < 1<<28 || info.DefaultRuntime == "" {
		t.Errorf("%+v", info)
	}
	if info.CgroupVersion != "1" && info.CgroupVersion != "2" {
		t.Errorf("cgroup version %q", info.CgroupVersion)
	}
}
