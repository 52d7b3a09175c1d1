package e2e

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"secbox/settings"
)

// TestGrowthWithoutAName checks that the space of removed but open files counts, and that only its
// job is killed.
func TestGrowthWithoutAName(t *testing.T) {
	t.Parallel()
	s, _ := onSmallWorkspace(t, 512, 8, func(c *settings.Settings) { c.Sandbox.DiskGrowthMaxBytes = 16 << 20 })
	bystander := s.post(shell("bystander", waiting("echo alive"), "policy_overrides", object{"timeout_ms": 600000}))
	s.awaitStart("bystander")
	// The job unlinks before it writes, so that no look finds a name.
	const unlinked = "import ctypes, time\nos.chdir('/workspace/work'); f = os.open('big', os.O_RDWR | os.O_CREAT); os.unlink('big')\n"
	const wait = "\ntime.sleep(1000)"
	const mapped = "os.truncate(f, 40 << 20); L = ctypes.CDLL(None); L.mmap.restype = ctypes.c_void_p\n" +
		"m = ctypes.c_void_p(L.mmap(None, ctypes.c_size_t(40 << 20), 3, 1, f, 0))\n"
	const throughMap = "ctypes.memset(m, 1, 40 << 20); L.munmap(m, ctypes.c_size_t(40 << 20))"
	deep := strings.Repeat("d/", 200)
	s.exec(shell(projectFor("below what is too deep"), "mkdir -p "+deep))
	cases := []struct{ name, script, says string }{
		{"a descriptor", python(unlinked + "os.write(f, bytes(40 << 20))" + wait), "removed files that are still open"},
		{
			"a file that never had a name", python("import time\nos.write(os.open('/workspace/work', os.O_RDWR | os.O_TMPFILE), bytes(40 << 20))" + wait),
			"still open",
		},
		{"a child that was left", "exec 3> big; rm big; (setsid bash -c 'head -c 40M /dev/zero >&3; sleep 1000' &); exec 3>&-; sleep 1000", "still open"},
		{
			"programs that run", python("import subprocess, time\nos.chdir('/workspace/work')\nfor _ in range(3):\n" +
				"    subprocess.run('cp /bin/sleep s; head -c 10M /dev/zero >> s', shell=True); subprocess.Popen(['./s', '1000']); os.unlink('s')" + wait),
			"still open",
		},
		{"below what is too deep", "cd " + deep + "; head -c 40M /dev/zero > big; sleep 1000", "measured (depth)"},
		{"the memory map alone", python(unlinked + mapped + "os.close(f); ctypes.memset(m, 1, 40 << 20)" + wait), "hides its open files"},
		{"the way through a socket", python(unlinked + mapped + "a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [f]); os.close(f)\n" + throughMap +
			wait), "hides its open files"},
		{
			"a process that cannot be looked into", python("import ctypes\nctypes.CDLL(None).prctl(4, 0)\n" + unlinked + "os.write(f, bytes(40 << 20))" + wait),
			"hides its open files",
		},
	}
	jobs := make([]*later, len(cases))
	post := func(i int) {
		jobs[i] = s.post(shell(projectFor(cases[i].name), cases[i].script, "policy_overrides", object{"timeout_ms": 600000}))
	}
	for i, c := range cases { // those that can be seen all at once, the others one by one: lost space is charged to the newest
		if !strings.Contains(c.says, "hides") && !strings.Contains(c.says, "measured") {
			post(i)
		}
	}
	for i, c := range cases {
		if jobs[i] == nil {
			post(i)
		}
		result := jobs[i].result()
		if detail := result.str("detail"); result.str("error_reason") != "disk_limit" || !strings.Contains(detail, c.says) ||
			!strings.Contains(detail, "disk_growth_max_bytes") {
			t.Errorf("%s: %s %s: %s\n%s", c.name, result.str("status"), result.str("error_reason"), detail, result.str("stderr"))
		}
	}
	// Two jobs of one project stay below the bound, and together they do not.
	const half = "exec 3> big; rm big; head -c 10M /dev/zero >&3; touch started; sleep "
	first := s.post(shell("shared", half+"1000", "policy_overrides", object{"timeout_ms": 600000}))
	s.awaitStart("shared")
	second := s.post(shell("shared", half+"10"))
	first.result().wants(t, object{"error_reason": "disk_limit"})
	second.result() // it may have begun when the first one's file was there
	t.Run("in a sandbox", func(t *testing.T) {
		s := s.with(t)
		a := s.send(http.MethodPost, "/v1/sandbox/bob/agent/execute?command=bash", []string{"-c", "exec 3> big; rm big; yes | head -c 40M >&3; sleep 1000"})
		if data := a.json(t); a.Code != http.StatusOK || data.num("data.exit_code") != 137 {
			t.Errorf("%d %s", a.Code, a.Body)
		}
		s.get("/sandbox/execs?limit=1&backend=docker&user_id=bob").list("items")[0].wants(t, object{"error_reason": "disk_limit"})
	})
	s.letGo("bystander")
	bystander.result().wants(t, object{"status": "succeeded", "stdout": "alive\n"})
}

// TestFullDiskKillsWriter: when the disk is nearly full, the job that filled it dies, and those
// that hardly wrote live on.
func TestFullDiskKillsWriter(t *testing.T) {
	t.Parallel()
	s, _ := onSmallWorkspace(t, 128, 64)
	bystander := s.post(shell("bystander", "head -c 3M /dev/zero > some; "+waiting("echo alive")))
	s.awaitStart("bystander")
	result := s.exec(shell("writer", "exec 3> big; rm big; head -c 90M /dev/zero >&3; sleep 1000", "policy_overrides", object{"timeout_ms": 600000}))
	result.wants(t, object{"status": "failed", "error_reason": "disk_limit"})
	if !strings.Contains(result.str("detail"), "sandbox.disk_free_min_bytes") {
		t.Errorf("%v", result.str("detail"))
	}
	s.letGo("bystander")
	bystander.result().wants(t, object{"status": "succeeded", "stdout": "alive\n"})
	if _, err := os.Stat(s.work("bystander", "some")); err != nil {
		t.Error(err)
	}
}
