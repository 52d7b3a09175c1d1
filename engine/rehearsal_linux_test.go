package engine_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/engine"
	"secbox/engine/enginetest"
)

// TestRehearsalRunsNothingOfTheProject uses an image whose environment points every interpreter at
// the project's files. The rehearsal of sandbox-init must not run them: it is not on record.
func TestRehearsalRunsNothingOfTheProject(t *testing.T) {
	t.Parallel()
	p := newPooled(t, nil)
	for file, content := range map[string]string{
		".bash_profile": "echo profile >> /workspace/work/ran", ".profile": "echo profile >> /workspace/work/ran",
		"run.sh": "echo BASH_ENV >> /workspace/work/ran", "bash": "#!/bin/sh\necho bash >> /workspace/work/ran",
		"python":           "#!/bin/sh\necho python >> /workspace/work/ran",
		"sitecustomize.py": "open('/workspace/work/ran', 'a').write('sitecustomize')", "encodings.py": "open('/workspace/work/ran', 'a').write('encodings')",
	} {
		if err := os.WriteFile(filepath.Join(p.Dir, "work", file), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(filepath.Join(p.Dir, "work"), 1000, 1000); err != nil {
		t.Fatal(err)
	}

	const everywhere = "HOME=/workspace/work BASH_ENV=/workspace/work/run.sh ENV=/workspace/work/run.sh PYTHONPATH=/workspace/work " +
		"PYTHONSTARTUP=/workspace/work/run.py"
	for env, rehearses := range map[string]bool{
		everywhere: true,
		everywhere + " PATH=/workspace/work:/usr/local/bin:/usr/bin:/bin": false, // it finds only the project's programs
	} {
		before := strings.Join(p.containers(), " ")
		spec := p.Spec()
		spec.ImageRef, spec.ImageID = variant(t, p, "FROM "+enginetest.Image+"\nENV "+env+"\n")
		p.ask(spec)
		eventually(t, "a container of the image that waits", func() bool { return p.pool.Stats().Keys[0].Waiting == 1 })
		waits := slices.DeleteFunc(p.containers(), func(name string) bool { return strings.Contains(before, name) })
		if len(waits) != 1 {
			t.Fatalf("%v wait", waits)
		}
		pid := enginetest.Docker(t, "inspect", "--format", "{{.State.Pid}}", waits[0])
		if rehearses {
			eventually(t, "bash and python run and reaped", func() bool { return childFaults(t, pid) > 500 })
		}
	}
	if ran, err := os.ReadFile(filepath.Join(p.Dir, "work", "ran")); err == nil {
		t.Errorf("while a container waited, it ran %q", ran)
	}
}

// variant builds an image for the test.
func variant(t *testing.T, p *pooled, dockerfile string) (ref, id string) {
	t.Helper()
	ref = "secbox-test-rehearsal-" + uuid.NewString()[:8] + ":x"
	build := exec.CommandContext(t.Context(), "docker", "build", "-q", "-t", ref, "-")
	build.Env = append(os.Environ(), "DOCKER_BUILDKIT=0")
	build.Stdin = strings.NewReader(dockerfile)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("docker build: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		_ = p.pool.Close() // its containers end first
		_ = exec.Command("docker", "rmi", "-f", ref).Run()
	})
	image, err := engine.NewImages(p.CLI, enginetest.Image, "secbox-test-init", time.Now).Resolve(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return image.Ref, image.ID
}

// childFaults is the number of page faults of a process's reaped children: proof that they ran.
func childFaults(t *testing.T, pid string) int {
	t.Helper()
	content, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(content, []byte(") "))
	fields := strings.Fields(string(rest))
	var n int
	if _, err := fmt.Sscan(fields[8], &n); err != nil {
		t.Fatal(err)
	}
	return n
}
