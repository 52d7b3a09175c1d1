package console_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/audit"
	"secbox/policy"
)

var (
	sectionLink = regexp.MustCompile(`<nav class="sections"[^>]*>(.*?)</nav>`)
	anchor      = regexp.MustCompile(`href="#([^"]*)"`)
	panelID     = regexp.MustCompile(`<section class="panel" id="([^"]*)"`)
)

// TestSectionsOfExec: the menu leads to every part of the page, in its order, and to nothing else.
func TestSectionsOfExec(t *testing.T) {
	t.Parallel()
	f := fullApp()
	f.records[56].StdoutBytes, f.records[56].StderrBytes = 0, 0 // execID(4) was silent
	change := &f.records[55]                                    // execID(5)
	change.Kind, change.Cmd, change.Args, change.PolicySnapshot = audit.KindChange, "files.edit", []string{"/workspace/a.txt"}, nil
	server := f.serve(t)
	for n := 1; n <= 5; n++ {
		page := get(t, server+"/console/execs/"+execID(n))
		menu := sectionLink.FindStringSubmatch(page)
		if menu == nil {
			t.Fatalf("exec %d has no menu", n)
		}
		var links, panels []string
		for _, m := range anchor.FindAllStringSubmatch(menu[1], -1) {
			links = append(links, m[1])
		}
		for _, m := range panelID.FindAllStringSubmatch(page, -1) {
			panels = append(panels, m[1])
		}
		if !slices.Equal(links, panels) {
			t.Errorf("exec %d: the menu has %q, the page %q", n, links, panels)
		}
	}
}

// TestCauses: every reason has words, and a limit that was reached is named with its value and its
// ceiling in units.
func TestCauses(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../audit/record.go")
	must(t, err)
	reasons := regexp.MustCompile(`Reason = "([a-z_]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(reasons) < 20 {
		t.Fatalf("found %d reasons", len(reasons))
	}
	f := newFake().fill(1)
	rec := &f.records[0]
	rec.Status, rec.PolicySnapshot = audit.Failed, defaultPolicy()
	server := f.serve(t)
	for _, reason := range reasons {
		rec.ErrorReason = audit.Reason(reason[1])
		if page := textOf(get(t, server+"/console/execs/"+execID(1))); !strings.Contains(page, " Cause ") || strings.Contains(page, "Cause –") {
			t.Errorf("%s has no words", reason[1])
		}
	}
	for reason, want := range map[audit.Reason]string{
		audit.OOM:           "at its memory limit. It is 1 GiB (1024) now. Raise policy_overrides.memory_mb to at most 8 GiB (8192)",
		audit.ReasonTimeout: "It is 1 min 00 s (60000) now. Raise policy_overrides.timeout_ms to at most 30 min 00 s (1800000)",
		audit.PIDsLimit:     "It is 256 now. Raise policy_overrides.pids to at most 4096",
		audit.BusError:      "It is 256 MiB now. Raise policy_overrides.tmp_mb to at most 4 GiB (4096)",
	} {
		rec.ErrorReason = reason
		says(t, get(t, server+"/console/execs/"+execID(1)), []string{want}, []string{"policy_ceiling"})
	}
	resolver, err := policy.New(policy.Config{SettingsDigest: "sha256:s"})
	must(t, err)
	snapshot, err := resolver.Resolve(nil, policy.Layer{Limits: policy.Limits{MemoryMB: new(int64(8192))}}, policy.Host{})
	must(t, err)
	rec.PolicySnapshot, err = json.Marshal(snapshot)
	must(t, err)
	rec.ErrorReason = audit.OOM
	says(t, get(t, server+"/console/execs/"+execID(1)),
		[]string{"It is at its ceiling. Only an operator can raise sandbox.policy_ceiling.memory_mb above 8 GiB (8192)"},
		[]string{"policy_overrides.memory_mb"})
}

// TestFoldedPolicy: fields that a layer has set are shown, the others are one click away, each with
// its unit.
func TestFoldedPolicy(t *testing.T) {
	t.Parallel()
	f := newFake().fill(1)
	rec := &f.records[0]
	rec.PolicySnapshot = defaultPolicy()
	server := f.serve(t)
	says(t, get(t, server+"/console/execs/"+execID(1)), []string{
		"Each field has its default.", "tmp_mb 256 MiB default 4 GiB (4096)", "cpu_cores 1 core default 4 cores", "max_stdout_bytes 1 MiB (1048576)",
		"kill_grace_ms 2.0 s (2000)",
	}, nil)
	resolver, err := policy.New(policy.Config{SettingsDigest: "sha256:s"})
	must(t, err)
	snapshot, err := resolver.Resolve(nil, policy.Layer{Limits: policy.Limits{TmpMB: new(int64(300))}}, policy.Host{})
	must(t, err)
	rec.PolicySnapshot, err = json.Marshal(snapshot)
	must(t, err)
	page := get(t, server+"/console/execs/"+execID(1))
	set, others, folded := strings.Cut(page, `<details id="policy-defaults">`)
	if _, set, _ = strings.Cut(set, `id="policy"`); !folded || !strings.Contains(set, "tmp_mb") || strings.Contains(set, "memory_mb") ||
		!strings.Contains(others, "memory_mb") {
		t.Errorf("set are %s", textOf(set))
	}
}

// TestCountingExec: the page of an exec that runs or waits says for how long, and what is left.
func TestCountingExec(t *testing.T) {
	t.Parallel()
	f := newFake().fill(1)
	rec := &f.records[0]
	now := rec.CreatedAt.Add(15_400 * time.Millisecond)
	f.now = func() time.Time { return now }
	rec.Status, rec.ExitCode, rec.EndedAt, rec.PolicySnapshot = audit.Running, nil, time.Time{}, defaultPolicy()
	server := f.serve(t)
	says(t, get(t, server+"/console/execs/"+execID(1)), []string{"Ran 15 s until now, at most 44 s left"}, nil)
	rec.Status, rec.StartedAt, now = audit.Queued, time.Time{}, rec.CreatedAt.Add(75*time.Second)
	says(t, get(t, server+"/console/execs/"+execID(1)), []string{"Waited 1 min 15 s until now"}, []string{"left"})
}

// TestEmptyParts: lists without a file take a line, not a box.
func TestEmptyParts(t *testing.T) {
	t.Parallel()
	f := newFake().fill(1)
	f.records[0].StderrBytes, f.records[0].StdoutBytes, f.output["stdout"] = 0, 3, []byte("out")
	page := get(t, f.serve(t)+"/console/execs/"+execID(1))
	says(t, page, []string{"Nothing was written to standard error.", "The command left no artifacts.", "The request had no input files."}, nil)
	for _, id := range []string{"stderr", "artifacts", "inputs"} {
		if strings.Contains(page, `class="panel" id="`+id+`"`) {
			t.Errorf("an empty %s has a box", id)
		}
	}
}
