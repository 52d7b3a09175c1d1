package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"secbox/policy"
)

// ownEngine is a Docker engine of a test's own, dockerd with its containerd, which may be stopped
// and killed: the machine's engine serves others. It has no network and one small image under the
// sandbox image's name.
type ownEngine struct {
	t          testing.TB
	dir        string
	containerd *exec.Cmd
	dockerd    *exec.Cmd
	disk       *smallDisk // of images and containers
	args       []string   // more of dockerd's; set before start
}

// janitor removes what the engine left when the test process ends without having done so. $1: the
// engine's folder.
const janitor = `
read -r word
[ "$word" = removed ] && exit
for end in dockerd containerd; do kill -9 "$(cat "$1/$end.pid")"; done
for process in /proc/[0-9]*; do
	grep -qs "$1/" "$process/cmdline" && [ "${process#/proc/}" != $$ ] && kill -9 "${process#/proc/}"
done
grep -o " $1[^ ]*" /proc/mounts | sort -r | xargs -r umount -l
rm -rf "$1"
`

// newOwnEngine makes the engine's folder; nothing runs yet. Everything is gone at the end of the
// test.
func newOwnEngine(t testing.TB) *ownEngine {
	t.Helper()
	needRoot(t)
	dir, err := os.MkdirTemp("", "secbox-engine-") // short: a socket's path has at most some 100 bytes
	if err != nil {
		t.Fatal(err)
	}
	if len(dir) > 60 {
		t.Fatalf("the folder for temporary files has too long a path for sockets: %s", dir)
	}
	e := &ownEngine{t: t, dir: dir}
	cleaner := exec.Command("sh", "-c", janitor, "janitor", dir)
	cleaner.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for the tests
	lease, err := cleaner.StdinPipe()
	if err == nil {
		err = cleaner.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.remove()
		_, err := io.WriteString(lease, "removed\n")
		if err := errors.Join(err, lease.Close(), cleaner.Wait()); err != nil {
			t.Errorf("the engine's janitor: %v", err)
		}
	})
	e.disk = mountSmallDisk(t, e.path("data"), 128)
	return e
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test starts a Docker engine or mounts a small disk: run the tests as root")
	}
}

func (e *ownEngine) path(name string) string { return filepath.Join(e.dir, name) }

// environ is the environment in which core-api uses this engine.
func (e *ownEngine) environ() []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "DOCKER_HOST=") || strings.HasPrefix(kv, "DOCKER_CONTEXT=")
	})
	return append(env, "DOCKER_HOST=unix://"+e.path("d.sock"))
}

// start starts the engine and waits until it answers.
func (e *ownEngine) start() {
	e.t.Helper()
	e.containerd = e.daemon("containerd", "--root", e.path("croot"), "--state", e.path("cstate"), "--address", e.path("c.sock"))
	eventually(e.t, "containerd listens", func() bool {
		_, err := os.Stat(e.path("c.sock"))
		return err == nil
	})
	args := []string{
		"--data-root", e.path("data"), "--exec-root", e.path("exec"), "--pidfile", e.path("own.pid"),
		"--host", "unix://" + e.path("d.sock"), "--containerd", e.path("c.sock"),
		"--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false", "--userland-proxy=false",
	}
	e.dockerd = e.daemon("dockerd", append(args, e.args...)...)
	eventually(e.t, "dockerd answers", func() bool { _, err := e.try("version"); return err == nil })
}

// daemon starts one of the two; its words go to a file that is shown when the test fails.
func (e *ownEngine) daemon(name string, args ...string) *exec.Cmd {
	e.t.Helper()
	log, err := os.OpenFile(e.path(name+".log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		e.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		e.t.Fatalf("%v; run `make setup`", err)
	}
	if err := os.WriteFile(e.path(name+".pid"), fmt.Append(nil, cmd.Process.Pid), 0o600); err != nil {
		e.t.Fatal(err)
	}
	return cmd
}

// stop ends the engine as a service manager does: first dockerd, which ends its containers, then
// containerd.
func (e *ownEngine) stop() { e.end(syscall.SIGTERM) }

// kill ends the engine as a crash does. Its containers stay and are unknown to a new engine.
func (e *ownEngine) kill() { e.end(syscall.SIGKILL) }

func (e *ownEngine) end(signal syscall.Signal) {
	for _, cmd := range []*exec.Cmd{e.dockerd, e.containerd} {
		if cmd == nil {
			continue
		}
		_ = cmd.Process.Signal(signal)
		late := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		late.Stop()
	}
	e.dockerd, e.containerd = nil, nil
	for _, name := range []string{"c.sock", "d.sock", "own.pid"} {
		_ = os.Remove(e.path(name))
	}
}

// try runs the docker CLI against this engine.
func (e *ownEngine) try(args ...string) (string, error) {
	cmd := exec.Command("docker", args...)
	cmd.Env = e.environ()
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (e *ownEngine) docker(args ...string) string {
	e.t.Helper()
	out, err := e.try(args...)
	if err != nil {
		e.t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// fewPrograms packs sandbox-init and the programs that it is given, which takes a second where the
// whole image would take half a minute. Python comes with its standard library only.
const fewPrograms = `cd /; {
	echo opt/secbox; echo workspace; echo etc/passwd; echo etc/group
	for name; do program=$(command -v $name) || exit; echo $program; ldd $program | grep -o '/[^ ]*'; done
	case " $* " in *" python3 "*)
		echo bin/bash # the one that shell.run starts
		python3 -c 'import os; print(os.path.dirname(os.__file__))'
		ldd $(python3 -c 'import _ctypes; print(_ctypes.__file__)') | grep -o '/[^ ]*' ;;
	esac
} | sed 's,^/,,' | sort -u | xargs tar -ch --exclude=site-packages --exclude=dist-packages --exclude=test --exclude=__pycache__`

// loadImage gives the engine its image, made from the one on the machine's engine: with a shell,
// and with more programs if wanted.
func (e *ownEngine) loadImage(programs ...string) {
	e.t.Helper()
	label, err := exec.Command("docker", "image", "inspect", "--format", `{{index .Config.Labels "secbox.sandbox-init"}}`, policy.DefaultImage).Output()
	if err != nil {
		e.t.Fatalf("%s is not on the machine's engine: %v; run `make setup`", policy.DefaultImage, err)
	}
	programs = append([]string{"bash", "sleep", "cat", "touch"}, programs...)
	pack := exec.Command("docker", slices.Concat([]string{
		"run", "--rm", "--network=none", "--entrypoint", "bash", policy.DefaultImage, "-c", fewPrograms,
		"pack",
	}, programs)...)
	unpack := exec.Command("docker", "import", "--change", "LABEL secbox.sandbox-init="+strings.TrimSpace(string(label)),
		"--change", "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "-", policy.DefaultImage)
	unpack.Env = e.environ()
	if unpack.Stdin, err = pack.StdoutPipe(); err != nil {
		e.t.Fatal(err)
	}
	if err := pack.Start(); err != nil {
		e.t.Fatal(err)
	}
	out, err := unpack.CombinedOutput()
	if err := errors.Join(err, pack.Wait()); err != nil {
		e.t.Fatalf("the small image: %v\n%s", err, out)
	}
}

// remove ends everything and leaves nothing on the disk.
func (e *ownEngine) remove() {
	if e.t.Failed() {
		for _, name := range []string{"dockerd.log", "containerd.log"} {
			content, _ := os.ReadFile(e.path(name))
			lines := slices.DeleteFunc(strings.Split(string(content), "\n"), func(line string) bool {
				return strings.Contains(line, "level=info") || strings.Contains(line, "level=warning")
			})
			e.t.Logf("the last of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-20):], "\n"))
		}
	}
	if e.dockerd != nil {
		if ids, err := e.try("ps", "-aq"); err == nil && ids != "" {
			_, _ = e.try(append([]string{"rm", "-f", "-v"}, strings.Fields(ids)...)...)
		}
	}
	e.stop()
	for _, pid := range processesWith(e.dir + "/") { // shims that a killed engine left
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	mounts, _ := os.ReadFile("/proc/mounts")
	lines := strings.Split(string(mounts), "\n")
	for _, line := range slices.Backward(lines) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], e.dir+"/") {
			_ = unix.Unmount(fields[1], unix.MNT_DETACH)
		}
	}
	if err := os.RemoveAll(e.dir); err != nil {
		e.t.Errorf("the engine's folder stays: %v", err)
	}
}
