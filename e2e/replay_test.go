package e2e

import (
	"net/http"
	"testing"
)

// TestReplay replays an exec and an invoke in containers; package replay tests the rest.
func TestReplay(t *testing.T) {
	t.Parallel()
	s := shared(t)
	replay := func(id string, body object) (second string, points map[string]string) {
		t.Helper()
		a := s.send(http.MethodPost, "/sandbox/execs/"+id+"/replay", body)
		if a.Code != http.StatusOK {
			t.Fatalf("%d %s", a.Code, a.Body)
		}
		answer, points := a.json(t), map[string]string{}
		for _, p := range answer.list("comparison.points") {
			points[p.str("what")] = p.str("equal")
		}
		second = answer.str("exec.exec_id")
		if later := s.get("/sandbox/execs/" + second + "/comparison").list("points"); len(later) != len(points) ||
			s.get("/sandbox/execs/"+second).str("replay_of") != id {
			t.Errorf("%s: %v", second, later)
		}
		return second, points
	}
	wants := func(got, want map[string]string) {
		t.Helper()
		for what, equal := range want {
			if got[what] != equal {
				t.Errorf("%s is %q, want %q", what, got[what], equal)
			}
		}
	}

	request := shell("replays",
		`sort /workspace/inputs/in > /workspace/artifacts/out; cat; echo "$KEY" | wc -c; cat /proc/sys/kernel/random/uuid > /workspace/artifacts/random; exit 3`,
		"inputs", []object{{"path": "in", "content": "b\na\n"}}, "policy_overrides", object{"memory_mb": 96})
	request["exec"].(object)["env"], request["exec"].(object)["stdin"] = object{"KEY": "hunter2"}, "some input"
	first := s.exec(request).str("exec_id")
	second, points := replay(first, object{"env": object{"KEY": "hunter2"}, "stdin": "some input"})
	wants(points, map[string]string{
		"status": "true", "exit_code": "true", "stdout": "true", "artifacts/out": "true", "artifacts/random": "false", "image": "true", "policy": "true",
		"command": "true",
		"inputs":  "true", "env.KEY": "true", "stdin": "true", "work": "unknown",
	})
	_, points = replay(second, object{})
	wants(points, map[string]string{"env.KEY": "false", "stdin": "false", "stdout": "false", "artifacts/out": "true"})

	invoked := s.send(http.MethodPost, "/skills/shell.run/invoke", object{"project_id": "replays", "inputs": object{"script": "echo hi"}}).json(t)
	_, points = replay(invoked.str("exec.exec_id"), object{})
	wants(points, map[string]string{"exit_code": "true", "skill": "true", "inputs": "true", "artifacts/skill_output.json": "true"})
}
