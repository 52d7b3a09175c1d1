package e2e

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"secbox/policy"
	"secbox/settings"
)

// variant builds an image of the test's own under a tag: the sandbox image and one more
// instruction.
func variant(t *testing.T, tag string, dockerfile ...string) (id string) {
	t.Helper()
	build := exec.CommandContext(t.Context(), "docker", "build", "-q", "--network=none", "-t", tag, "-")
	build.Stdin = strings.NewReader("FROM " + policy.DefaultImage + "\n" + strings.Join(dockerfile, "\n") + "\n")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("docker build: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), "docker", "image", "inspect", "--format", "{{.Id}}", tag).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// testTag returns a unique tag. Its images are removed at the end of the test, after the server.
func testTag(t *testing.T) string {
	t.Helper()
	tag := "secbox-test:" + uuid.NewString()
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "docker", "rmi", "-f", tag).Run() })
	return tag
}

// TestImageMovesUnderAFullPool gives the image's name to another image while containers of the
// first one wait. Each record must name the image that ran, and the waiting containers of the first
// image must go.
func TestImageMovesUnderAFullPool(t *testing.T) {
	t.Parallel()
	tag, aside := testTag(t), testTag(t)
	first := variant(t, tag, "ENV VARIANT=first")
	second := variant(t, aside, "ENV VARIANT=second")
	s := tidy(t, func(c *settings.Settings) { c.Sandbox.Images = []string{tag} })
	request := shell("demo", "echo $VARIANT", "image", tag)
	ran := func(result object) (which string) {
		t.Helper()
		record := s.get("/sandbox/execs/" + result.str("exec_id"))
		which = strings.TrimSpace(result.str("stdout"))
		if want := map[string]string{"first": first, "second": second}[which]; result.str("status") != "succeeded" || record.str("image_id") != want {
			t.Errorf("it ran the %s image, and the record says %s: %v", which, record.str("image_id"), result)
		}
		return which
	}
	if which := ran(s.serving(warm).exec(request)); which != "first" {
		t.Errorf("the %s image", which)
	}
	s.awaitWaiting(request, 1)
	s.docker("tag", aside, tag)
	eventually(t, "an exec runs the image that the name stands for", func() bool { return ran(s.exec(request)) == "second" || t.Failed() })
	for range 2 {
		if which := ran(s.serving(warm).exec(request)); which != "second" {
			t.Errorf("the %s image, after the second", which)
		}
	}
	eventually(t, "no container of the first image", func() bool {
		return !slices.Contains(strings.Fields(s.docker("ps", "-a", "--no-trunc", "--filter", "label=secbox.node="+s.node(), "--format", "{{.Image}}")), first)
	})
	keys := func() []object {
		return slices.DeleteFunc(s.get("/sandbox/pool").list("keys"), func(k object) bool { return k.str("image") != tag })
	}
	for _, k := range keys() {
		k.wants(t, object{"image_id": second})
	}
	if n := s.get("/sandbox/pool").num("dropped.stale"); n == 0 {
		t.Error("nothing was given up")
	}

	// And when the name is gone, an exec is told so, however many wait.
	s.awaitWaiting(request, 1)
	s.docker("rmi", tag)
	eventually(t, "an exec is refused", func() bool {
		a := s.send("POST", "/sandbox/execs", request)
		if a.Code == 200 {
			ran(a.json(t))
			return false
		}
		if a.json(t).str("code") != "image_missing" {
			t.Errorf("%d %s", a.Code, a.Body)
		}
		return true
	})
	eventually(t, "nothing waits for it", func() bool { return len(keys()) == 0 })
	s.noContainers()
}

// TestImageWithoutInit gets sandbox-init from a volume, cold and warm.
func TestImageWithoutInit(t *testing.T) {
	t.Parallel()
	prefix := "secbox-test-" + uuid.NewString()[:8]
	t.Cleanup(func() { // after the servers, whose containers mount it
		out, _ := exec.CommandContext(context.Background(), "docker", "volume", "ls", "-q", "--filter", "name="+prefix).Output()
		if names := strings.Fields(string(out)); len(names) != 1 {
			t.Errorf("volumes %v", names)
		} else if out, err := exec.CommandContext(context.Background(), "docker", "volume", "rm", names[0]).CombinedOutput(); err != nil {
			t.Errorf("%s", out)
		}
	})
	tag := testTag(t)
	bare := variant(t, tag, "USER 0:0", "RUN rm -r /opt/secbox", "LABEL secbox.sandbox-init=")
	t.Run("served", func(t *testing.T) { // ends, and its servers with it, before the volume goes
		coldAndWarm(t, func(t *testing.T, how serving) {
			s := tidy(t, how.settings, func(c *settings.Settings) { c.Sandbox.Images, c.Sandbox.InitVolume = []string{tag}, prefix }).serving(how)
			request := shell("demo", `echo ran; touch /opt/secbox/x 2>&1 | grep -o Read-only; id -u; exit 3`, "image", tag)
			for range 1 {
				result := s.exec(request)
				result.wants(t, object{"status": "failed", "exit_code": 3, "stdout": "ran\nRead-only\n1000\n"})
				s.get("/sandbox/execs/"+result.str("exec_id")).wants(t, object{"image": tag, "image_id": bare, "warm": how == warm})
			}
			// Its limits do not come from the image.
			s.exec(shell("demo", "trap '' TERM; sleep 60", "image", tag, "policy_overrides", object{"timeout_ms": 300})).wants(t, object{"status": "timeout"})
			s.exec(shell("demo", "for i in $(seq 64); do kill -$i 1 2>/dev/null; done; echo alive", "image", tag)).wants(t, object{"stdout": "alive\n"})
			// A container for one image is none for the other.
			s.unprepared().exec(shell("demo", "ls /opt/secbox")).wants(t, object{"warm": false, "status": "succeeded"})
		})
	})
}
