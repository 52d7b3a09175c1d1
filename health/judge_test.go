package health

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"secbox/engine"
	"secbox/fault"
)

func standard() environment {
	return environment{user: "1000:1000", readOnlyRootfs: true, dockerRoot: "/ws", nonce: "n0nce", targets: []string{"1.1.1.1:80"}}
}

// TestUnmeasuredIsNotOK gives every probe outcomes that prove nothing.
func TestUnmeasuredIsNotOK(t *testing.T) {
	t.Parallel()
	outcomes := map[string]outcome{
		"nothing":         {},
		"no job":          {err: fault.New(fault.EngineUnavailable, "no engine")},
		"no python":       {exit: engine.Exit{Code: 127, StartError: "python: not found"}},
		"a traceback":     {exit: engine.Exit{Code: 1}, stderr: "Traceback\nMemoryError"},
		"late":            {exit: engine.Exit{Code: 137, Signal: 9, TimedOut: true, OOMKills: 1}},
		"killed by us":    {exit: engine.Exit{Code: 137, Signal: 9, Killed: true, OOMKills: 1}},
		"killed by whom":  {exit: engine.Exit{Code: 137, Signal: 9}},
		"an empty object": {stdout: "{}"},
		"null":            {stdout: "null"},
		"a list":          {stdout: "[]"},
		"a number":        {stdout: "0"},
		"two objects":     {stdout: "{}{}"},
		"empty members":   {stdout: `{"status":{},"writes":{},"reached":{},"looks":{},"up":[],"all":[]}`},
		"nulls": {stdout: `{"status":null,"writes":null,"reached":null,"looks":null,"up":null,"all":null,"swap_max":null,"memsw":null,"memory":null,` +
			`"swap_total_kib":null,"throttled":null,"startup":null,"read_only":null,"given":null}`},
		"wrong types":     {stdout: `{"status":1,"writes":1,"reached":1,"looks":1,"up":1,"swap_max":0,"memory":0,"throttled":"x","read_only":"x","given":1,"started":"x","now":"x"}`},
		"escape sequence": {stdout: "\x1b[2J"},
	}
	for name, o := range outcomes {
		for _, e := range append(experiments(standard()), attachedExperiments(standard())...) {
			for _, p := range e.judge(o) {
				// The one probe that needs no words of the job: it was killed at its deadline.
				if p.Name == "deadline" && name == "late" {
					continue
				}
				if p.OK || p.Seen == "" || p.Remedy == "" || p.Expected == "" {
					t.Errorf("%s: %+v", name, p)
				}
				if strings.ContainsAny(p.Seen, "\x1b\n") {
					t.Errorf("%s: %q would act on a terminal", name, p.Seen)
				}
			}
		}
	}
}

func TestJudges(t *testing.T) {
	t.Parallel()
	s := standard()
	cpuTime := engine.Exit{UserCPU: 250 * time.Millisecond}
	cases := []struct {
		probe string
		o     outcome
		ok    bool
		seen  string
	}{
		{"exec", outcome{stdout: "n0nce\n"}, true, ""},
		{"exec", outcome{stdout: "other\n"}, false, "something else"},
		{"memory", outcome{exit: engine.Exit{Signal: 9, Code: 137, OOMKills: 1}}, true, ""},
		{"memory", outcome{exit: engine.Exit{Signal: 9, Code: 137}}, false, "cannot be read"},
		{"swap", outcome{stdout: `{"swap_max":"0"}`}, true, ""},
		{"swap", outcome{stdout: `{"swap_max":"max"}`}, false, "max"},
		{"swap", outcome{stdout: `{"memsw":"134217728","memory":"134217728"}`}, true, ""},
		{"swap", outcome{stdout: `{"memsw":"9223372036854771712","memory":"9223372036854771712"}`}, false, ""},
		{"swap", outcome{stdout: `{"memory":"134217728","swap_total_kib":0}`}, true, "has none"},
		{"swap", outcome{stdout: `{"memory":"134217728","swap_total_kib":2097148}`}, false, "2047 MiB"},
		{"pids", outcome{stdout: `{"started":20,"refused":"EAGAIN"}`, exit: engine.Exit{PIDsMax: 1}}, true, ""},
		{"pids", outcome{stdout: `{"started":20,"refused":"EAGAIN"}`}, false, "counted: 0"},
		{"pids", outcome{stdout: `{"started":20,"refused":"ENOMEM"}`, exit: engine.Exit{PIDsMax: 1}}, false, ""},
		{"pids", outcome{stdout: `{"started":100,"refused":"EAGAIN"}`, exit: engine.Exit{PIDsMax: 1}}, false, ""},
		{"cpu", outcome{stdout: `{"wall":1,"startup":0.03,"throttled":9}`, exit: cpuTime}, true, ""},
		{"cpu", outcome{stdout: `{"wall":1,"startup":0.03,"throttled":0}`, exit: cpuTime}, false, "never throttled"},
		{"cpu", outcome{stdout: `{"wall":1,"startup":0.03}`, exit: cpuTime}, false, "is not known"},
		{"cpu", outcome{stdout: `{"wall":1,"startup":0.03,"throttled":9}`}, false, "is incomplete"},
		{"cpu", outcome{stdout: `{"wall":1,"startup":0.03,"throttled":9}`, exit: engine.Exit{UserCPU: 400 * time.Millisecond}}, false, "0.37"},
		{"tmp", outcome{stdout: `{"written":16777216,"stopped":"ENOSPC"}`}, true, ""},
		{"tmp", outcome{stdout: `{"written":0,"stopped":"ENOSPC"}`}, false, ""},
		{"tmp", outcome{stdout: `{"written":16777217,"stopped":"ENOSPC"}`}, false, ""},
		{"tmp", outcome{stdout: `{"written":100,"stopped":"EDQUOT"}`}, false, ""},
		{"shm", outcome{stdout: `{"written":25165824,"stopped":"ENOSPC"}`}, true, ""},
		{"shm", outcome{stdout: `{"written":25165825,"stopped":"ENOSPC"}`}, false, ""},
		{"deadline", outcome{stdout: "late\n"}, false, "by itself"},
		{"allowlist", outcome{stdout: refused("403", "")}, true, ""},
		{"allowlist", outcome{stdout: refused("400", "")}, true, ""},
		{"allowlist", outcome{stdout: refused("200", "")}, false, "denied.invalid:7 was not refused"},
		{"allowlist", outcome{stdout: refused("", "")}, false, "was not refused"},
		{"allowlist", outcome{stdout: refused("403", `"lookup":"done"`)}, false, "name server"},
		{"allowlist", outcome{stdout: refused("403", `"raw":"done"`)}, false, "raw socket"},
		{"allowlist", outcome{stdout: refused("403", `"proxy":false`)}, false, "no proxy"},
		{"allowlist", outcome{stdout: refused("403", `"asked":{}`)}, false, "was not reached"},
		{"network", outcome{stdout: `{"up":["lo"],"all":["lo","tunl0"],"reached":{"1.1.1.1:80":"ENETUNREACH"}}`}, true, ""},
		{"network", outcome{stdout: `{"up":["lo","eth0"],"all":["lo","eth0"],"reached":{"1.1.1.1:80":"ENETUNREACH"}}`}, false, "eth0"},
		{"network", outcome{stdout: `{"up":["lo"],"all":["lo"],"reached":{"1.1.1.1:80":"connected"}}`}, false, "a packet left"},
		{"network", outcome{stdout: `{"up":["lo"],"all":["lo"],"reached":{"1.1.1.1:80":"ECONNREFUSED"}}`}, false, "a packet left"},
		{"network", outcome{stdout: `{"up":["lo"],"all":["lo"],"reached":{"1.1.1.1:80":"EHOSTUNREACH"}}`}, false, "a packet left"},
		{"network", outcome{stdout: `{"up":["lo"],"all":["lo"],"reached":{"1.1.1.1:80":"no answer"}}`}, false, "a packet left"},
		{"network", outcome{stdout: `{"up":["lo"],"all":["lo"],"reached":{"8.8.8.8:80":"ENETUNREACH"}}`}, false, "is incomplete"},
		{"network", outcome{stdout: `{"up":[],"all":[],"reached":{"1.1.1.1:80":"ENETUNREACH"}}`}, false, "is incomplete"},
		{"rootfs", outcome{stdout: `{"read_only":true,"writes":{"/":"EROFS"}}`}, true, ""},
		{"rootfs", outcome{stdout: `{"read_only":false,"writes":{"/":"EACCES"}}`}, false, "mounted writable"},
		{"rootfs", outcome{stdout: `{"read_only":true,"writes":{"/":"EROFS","/var/tmp":"done"}}`}, false, "/var/tmp"},
		{"init", outcome{stdout: `{"name":"bash","looks":{"fd":"EACCES","environ":"EACCES","maps":"EACCES","mem":"EACCES","root":"EACCES"}}`}, false, "bash"},
		{"init", outcome{stdout: `{"name":"sandbox-init","looks":{"fd":"EACCES","environ":"EACCES","maps":"EACCES","mem":"EACCES"}}`}, false, "is incomplete"},
		{"artifacts", outcome{
			stdout:       `{"given":"n0nce","replaced":"EROFS","inputs_read_only":true,"writes":{"inputs":"EROFS","work":"done","artifacts":"done"}}`,
			artifactsErr: errors.New("gone"),
		}, false, "not measured: gone"},
		{
			"artifacts",
			outcome{stdout: `{"given":"n0nce","replaced":"EROFS","inputs_read_only":true,"writes":{"inputs":"EROFS","work":"done","artifacts":"done"}}`},
			false,
			"does not arrive",
		},
		{
			"inputs",
			outcome{stdout: `{"given":"n0nce","replaced":"done","inputs_read_only":true,"writes":{"inputs":"EROFS","work":"done","artifacts":"done"}}`},
			false, "can write",
		},
	}
	for _, tc := range cases {
		found := false
		for _, e := range experiments(s) {
			for _, p := range e.judge(tc.o) {
				if p.Name != tc.probe {
					continue
				}
				found = true
				if p.OK != tc.ok || !strings.Contains(p.Seen, tc.seen) {
					t.Errorf("%s %+v: %+v", tc.probe, tc.o, p)
				}
			}
		}
		if !found {
			t.Errorf("no probe %s", tc.probe)
		}
	}
}

func TestWritableRootfs(t *testing.T) {
	t.Parallel()
	s := standard()
	s.readOnlyRootfs = false
	p := rootfs(s).judge(outcome{stdout: `{"read_only":false,"writes":{"/":"EACCES"}}`})[0]
	if !p.OK || !strings.Contains(p.Expected, "sandbox.read_only_rootfs=false") {
		t.Errorf("%+v", p)
	}
}

func TestDiagnosisOK(t *testing.T) {
	t.Parallel()
	good, bad := Probe{Name: "a", OK: true}, Probe{Name: "b"}
	for _, tc := range []struct {
		d  Diagnosis
		ok bool
	}{
		{Diagnosis{Health: Report{Status: OK}, Probes: []Probe{good}}, true},
		{Diagnosis{Health: Report{Status: Degraded}, Probes: []Probe{good, good}}, true},
		{Diagnosis{Health: Report{Status: Unavailable}, Probes: []Probe{good}}, false},
		{Diagnosis{Health: Report{Status: OK}, Probes: []Probe{good, bad}}, false},
		{Diagnosis{Health: Report{Status: OK}}, false},
		{Diagnosis{}, false},
	} {
		if tc.d.OK() != tc.ok {
			t.Errorf("%+v: %v", tc.d, tc.d.OK())
		}
		var b bytes.Buffer
		if err := tc.d.WriteJSON(&b); err != nil {
			t.Fatal(err)
		}
		var said struct{ OK *bool }
		if err := json.Unmarshal(b.Bytes(), &said); err != nil || said.OK == nil || *said.OK != tc.ok {
			t.Errorf("%s %v", b.Bytes(), err)
		}
	}
}

func TestWriteText(t *testing.T) {
	t.Parallel()
	d := Diagnosis{
		Health: Report{
			Status: Degraded, Version: "1.2.3", NodeID: "n", RuntimeMode: "linux", WorkspaceRootNative: "/ws", WorkspaceWritable: true,
			DockerCLIPath: "/bin/docker",
			DockerVersion: "28", DockerContext: "default", EngineRuntime: "runc", CgroupVersion: "2", ContainerUser: "1:1", ImagePresent: true,
			Database: "sqlite", Skills: Skills{Loaded: 6, Broken: 1}, PoolNotSharedBecause: "pool.share is false",
			Problems: []Problem{{Check: "container_user", Reason: "jobs run as 1:1", Remedy: "run as root"}},
		},
		Probes: []Probe{
			{Name: "exec", OK: true, Expected: "e", Seen: "it ran"},
			{Name: "memory", Expected: "killed", Seen: "the job took 256 MiB", Remedy: "enable it"},
		},
	}
	var b strings.Builder
	if err := d.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	want := `core-api   1.2.3, node n, mode linux
docker     /bin/docker, context default
engine     28, runtime runc, cgroup v2
workspace  /ws, writable: yes
database   sqlite
jobs       user 1:1, image present: yes
pool       a container that waits serves one project only: pool.share is false
skills     6 loaded, 1 broken
health     degraded

Problems
  container_user  jobs run as 1:1
                  remedy: run as root

Probes
  ok    exec    it ran
  FAIL  memory  the job took 256 MiB
                expected: killed
                remedy: enable it

1 of 2 probes failed: do not run untrusted jobs on this engine.
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// refused is what the probe of net.mode allowlist prints when the targets that no job may reach are
// answered so; change replaces a field.
func refused(answer, change string) string {
	facts := map[string]any{"proxy": true, "lookup": "refused", "raw": "EPERM"}
	asked := map[string]string{allowedTarget: echoed}
	for _, t := range deniedTargets {
		asked[t] = answer
	}
	facts["asked"] = asked
	text, _ := json.Marshal(facts)
	if change != "" {
		_ = json.Unmarshal([]byte("{"+change+"}"), &facts)
		if strings.Contains(change, `"asked"`) {
			facts["asked"] = map[string]string{}
		}
		text, _ = json.Marshal(facts)
	}
	return string(text)
}
