package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"secbox/settings"
)

// TestFirstExecOfAnyProject checks that a container that waited from the start serves projects that
// never ran anything.
func TestFirstExecOfAnyProject(t *testing.T) {
	t.Parallel()
	needRoot(t)
	s := tidy(t, ready(2))
	report := func() object { return s.get("/sandbox/pool") }
	eventually(t, "containers wait", func() bool { return report().num("idle") >= 2 })
	report().wants(t, object{"shared": true, "not_shared_because": "", "ready": 2, "hits": 0, "misses": 0})
	for i, project := range []string{"first", "second"} {
		result := s.serving(warm).exec(shell(project, "cat /workspace/inputs/in; echo kept > kept; echo made > /workspace/artifacts/made",
			"inputs", []object{{"path": "in", "content": project}}))
		result.wants(t, object{"status": "succeeded", "stdout": project, "warm": true})
		s.get("/sandbox/execs/"+result.str("exec_id")).wants(t, object{"warm": true, "attached": true})
		if a := s.artifact(result.str("exec_id"), "made"); string(a.Body) != "made\n" {
			t.Errorf("%d %s", a.Code, a.Body)
		}
		if kept, err := os.ReadFile(s.work(project, "kept")); string(kept) != "kept\n" {
			t.Errorf("%q %v", kept, err)
		}
		report().wants(t, object{"hits": i + 1, "misses": 0, "unattached": 0})
	}
	for _, key := range report().list("keys") {
		key.wants(t, object{"project_id": "", "access": ""})
	}
}

// everything is a script that names its project in work/ and artifacts/ and prints all files and
// all names below /workspace.
const everything = `echo %[1]s >> work-of-%[1]s; echo %[1]s > /workspace/artifacts/artifact-of-%[1]s; sleep 0.0%[2]d
find /workspace; find /workspace -type f -exec cat {} +; grep -o 'projects/[^ ]*' /proc/self/mountinfo; true`

// TestProjectsStayApart runs execs of many projects at once: none sees anything of another, and
// each finds its work again.
func TestProjectsStayApart(t *testing.T) {
	t.Parallel()
	const projects, each = 8, 3
	s := tidy(t, ready(4), func(c *settings.Settings) { c.Sandbox.MaxConcurrentExecs, c.Sandbox.MaxQueuedExecs = 6, projects*each })
	eventually(t, "containers wait", func() bool { return s.get("/sandbox/pool").num("idle") >= 4 })
	name := func(i int) string { return fmt.Sprintf("project-%c-", 'a'+i) }
	var all []*later
	for i := range projects * each {
		project := name(i % projects)
		all = append(all, s.post(shell(project, fmt.Sprintf(everything, project, i%10), "inputs",
			[]object{{"path": "input-of-" + project, "content": project + "\n"}})))
	}
	for i, running := range all {
		result := running.result()
		result.wants(t, object{"status": "succeeded"})
		out := result.str("stdout")
		for other := range projects {
			if seen := strings.Contains(out, name(other)); seen != (other == i%projects) {
				t.Errorf("an exec of %s saw this of %s: %s", name(i%projects), name(other), out)
			}
		}
		if files := s.manifest(result).list("files"); len(files) != 1 || files[0].str("path") != "artifact-of-"+name(i%projects) {
			t.Errorf("files %v", files)
		}
	}
	for i := range projects {
		kept, err := os.ReadFile(s.work(name(i), "work-of-"+name(i)))
		if err != nil || string(kept) != strings.Repeat(name(i)+"\n", each) {
			t.Errorf("work of %s: %q %v", name(i), kept, err)
		}
	}
	if byWarmth := s.closedRows(); byWarmth[true] == 0 {
		t.Error("no exec was warm")
	}
	if n := s.get("/sandbox/pool").num("unattached"); n > 0 {
		t.Errorf("%v could not be attached", n)
	}
}

// TestWaitingContainerPaused pauses what waits: the exec that takes it gets a new container, with
// the project's directories.
func TestWaitingContainerPaused(t *testing.T) {
	t.Parallel()
	s := tidy(t, ready(1))
	s.fill(shell("before", "true"), 1)
	var slots []string
	eventually(t, "the engine lists the container", func() bool {
		slots = s.slots()
		return len(slots) == 1
	})
	for _, slot := range slots {
		s.docker("pause", slot)
	}
	result := s.exec(shell("demo", "cat /workspace/inputs/in; echo kept > kept; echo made > /workspace/artifacts/made; touch /workspace/inputs/x",
		"inputs", []object{{"path": "in", "content": "given"}}))
	result.wants(t, object{
		"status": "failed", "exit_code": 1, "stdout": "given",
		"stderr": "touch: cannot touch '/workspace/inputs/x': Read-only file system\n",
	})
	if a := s.artifact(result.str("exec_id"), "made"); string(a.Body) != "made\n" {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if kept, err := os.ReadFile(s.work("demo", "kept")); string(kept) != "kept\n" {
		t.Errorf("%q %v", kept, err)
	}
	meta := s.meta(result)
	_, mounts := withoutMounts(meta)
	if list := meta.list("docker_mounts"); len(mounts) != len(list) || meta.at("attached") != false {
		t.Errorf("attached %v, docker_args has the mounts %q, docker_mounts is %v", meta.at("attached"), mounts, list)
	}
	s.get("/sandbox/execs/"+result.str("exec_id")).wants(t, object{"attached": false})
	s.noContainers()
	s.onlyWaiting("demo")
}
