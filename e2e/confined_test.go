package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// view prints what a job sees of its container, one thing per line.
const view = `id; pwd; umask; env | sort | grep -v ^HOSTNAME=; hostname | tr 0-9a-f x
grep -E '^(Cap|NoNewPrivs|Seccomp|Groups|Uid|Gid)' /proc/self/status
for d in / /tmp /workspace /workspace/inputs /workspace/work /workspace/artifacts; do stat -c '%n %A %u:%g %F' $d; done
ls -A /workspace
for d in /workspace /workspace/inputs /workspace/work /workspace/artifacts; do
	touch $d/made 2>&1 && echo wrote $d && rm $d/made
	ln -s / $d/link 2>&1 && echo linked $d && rm $d/link
	chmod 777 $d 2>&1 && chmod 755 $d && echo changed $d
	echo $d: $(ls -A $d)
done
` + limitsInside + `
python3 - <<'PROGRAM'
seen = {}
for line in open("/proc/self/mountinfo"):
    before, after = line.split(" - ")
    fields = before.split()
    seen[fields[4]] = sorted(set(fields[5].split(",")) - {"nosuid", "nodev"} if fields[4].startswith(("/workspace", "/opt/")) else fields[5].split(",")), after.split()[0]
for at, (flags, kind) in sorted(seen.items()):
    if at != "/workspace":
        print("mount", at, kind, *flags)
PROGRAM
echo begun; sleep 1000`

// TestWarmIsConfinedLikeCold compares warm and cold containers of the same request: what docker and
// meta.json say about them, and what a job sees. Where a waiting container serves any project, its
// mounts are others, and the job sees the same.
func TestWarmIsConfinedLikeCold(t *testing.T) {
	t.Parallel()
	servers := map[serving]*testServer{cold: tidy(t, noPool), warm: tidy(t, warm.settings)}
	for name, c := range map[string]struct {
		policy object
		mounts []string
	}{
		"by default": {object{}, []string{"inputs:ro", "work:rw", "artifacts:rw"}},
		"narrowed": {
			object{"memory_mb": 64, "cpu_cores": 0.3, "pids": 40, "tmp_mb": 8, "fs.write": []string{"artifacts/**"}},
			[]string{"inputs:ro", "work:ro", "artifacts:rw"},
		},
		"ag~user": {object{}, []string{"inputs:ro", "work:rw", "artifacts:rw", "tool:ro"}},
		"nothing": {object{"fs.read": []string{}, "fs.write": []string{}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := map[serving]confined{}
			for how, s := range servers {
				runs[how] = s.with(t).serving(how).confined(shell(projectFor(name), view, "policy_overrides", c.policy))
			}
			a, b := strings.Split(runs[cold].saw, "\n"), strings.Split(runs[warm].saw, "\n")
			if len(a) != len(b) {
				t.Fatalf("a cold exec saw\n%s\na warm one\n%s", runs[cold].saw, runs[warm].saw)
			}
			for i := range a {
				if a[i] != b[i] {
					t.Errorf("a cold exec saw %q, a warm one %q", a[i], b[i])
				}
			}
			// Fields that differ between any two containers.
			own := map[string]bool{
				".Created": true, ".State.Pid": true, ".State.StartedAt": true, ".NetworkSettings.SandboxID": true, ".NetworkSettings.SandboxKey": true,
				".NetworkSettings.Networks.none.EndpointID": true,
			}
			if c.mounts == nil { // a container for any project has its directories, empty
				own[".Config.WorkingDir"] = true
			}
			compared := compare(t, "", runs[cold].inspected, runs[warm].inspected,
				func(path string) bool { return own[path] || strings.HasPrefix(path, ".GraphDriver.Data.") })
			if compared < 150 {
				t.Errorf("only %d values were compared", compared)
			}
			for how, run := range runs {
				if !slices.Equal(run.mounts, c.mounts) {
					t.Errorf("%s: mounts %v, want %v", how, run.mounts, c.mounts)
				}
			}
			if a, b := runs[cold].args, runs[warm].args; !slices.Equal(a, b) {
				t.Errorf("docker's arguments: cold %v\nwarm %v", a, b)
			}
		})
	}
}

// confined is what is known about an exec while it runs, without the names that differ between any
// two.
type confined struct {
	saw       string         // the job
	inspected map[string]any // by docker, without mounts and project
	mounts    []string       // docker_mounts of meta.json
	args      []string       // docker_args of meta.json, without mounts and project
}

// confined runs a job that prints view.
func (s *testServer) confined(request object) (c confined) {
	s.t.Helper()
	project := request.str("project_id")
	running := s.post(request)
	id := s.awaitRow(project, "running")
	eventually(s.t, "it has begun", func() bool {
		c.saw = string(s.send(http.MethodGet, "/sandbox/execs/"+id+"/stdout", nil).Body)
		return strings.HasSuffix(c.saw, "begun\n")
	})
	eventually(s.t, "docker has heard that it runs", func() bool {
		return s.docker("inspect", "--format", "{{.State.Running}}", "secbox-"+id) == "true\n"
	})
	anonymous := s.anonymous(id)
	c.inspected = s.inspected(id, anonymous)
	s.cancel(id)
	result := running.result()
	result.wants(s.t, object{"exec_id": id, "status": "canceled", "warm": s.how == warm})
	attached := s.how == warm && canShare()
	s.get("/sandbox/execs/"+id).wants(s.t, object{"warm": s.how == warm, "attached": attached})
	meta := s.meta(result)
	meta.wants(s.t, object{"warm": s.how == warm, "attached": attached})
	for _, m := range meta.list("docker_mounts") {
		mode := ":rw"
		if m.at("read_only") == true {
			mode = ":ro"
		}
		name, below := strings.CutPrefix(m.str("target"), "/workspace/")
		if !below {
			name = "tool"
		} else if want := filepath.Join(s.project(project), name); strings.TrimSuffix(m.str("source"), "/"+id) != want {
			s.t.Errorf("%s is mounted from %s", m.str("target"), m.str("source"))
		}
		c.mounts = append(c.mounts, name+mode)
	}
	args, mounts := withoutMounts(meta)
	for i := range args {
		args[i] = anonymous.Replace(args[i])
	}
	for i, arg := range args {
		if arg == "--workdir" && c.mounts == nil {
			args[i+1] = "/"
		}
	}
	c.args = args
	var want []string
	if attached { // a place for the project's, and one for the tool
		for range 1 + strings.Count(project, "~") {
			want = append(want, "/run/secbox/"+s.node()+"/"+id)
		}
	} else {
		for _, m := range meta.list("docker_mounts") {
			want = append(want, m.str("source"))
		}
	}
	if !slices.EqualFunc(mounts, want, func(mount, source string) bool { return strings.HasPrefix(mount, "type=bind,source="+source) }) {
		s.t.Errorf("docker's arguments have the mounts %q, want %q", mounts, want)
	}
	return c
}

// withoutMounts are the docker_args of a meta.json without bind mounts and the project's label, and
// the mounts.
func withoutMounts(meta object) (args, mounts []string) {
	list, _ := meta.at("docker_args").([]any)
	for _, a := range list {
		arg := a.(string)
		switch last := len(args) - 1; {
		case last >= 0 && args[last] == "--mount" && strings.HasPrefix(arg, "type=bind,"):
			args, mounts = args[:last], append(mounts, arg)
		case last >= 0 && args[last] == "--label" && strings.HasPrefix(arg, "secbox.project="):
			args = args[:last]
		default:
			args = append(args, arg)
		}
	}
	return args, mounts
}

// anonymous replaces the names of a container and its server.
func (s *testServer) anonymous(execID string) *strings.Replacer {
	s.t.Helper()
	names := strings.Fields(s.docker("inspect", "--format", `{{.Id}} {{index .Config.Labels "secbox.installation"}}`, "secbox-"+execID))
	return strings.NewReplacer(names[0], "CONTAINER", names[0][:12], "SHORT", names[1], "INSTALLATION", execID, "EXEC", s.node(), "NODE", s.dir, "DIR")
}

// inspected is the output of docker inspect, without mounts and the project.
func (s *testServer) inspected(execID string, anonymous *strings.Replacer) map[string]any {
	s.t.Helper()
	said := anonymous.Replace(s.docker("inspect", "--format", "{{json .}}", "secbox-"+execID))
	var all map[string]any
	if err := json.Unmarshal([]byte(said), &all); err != nil {
		s.t.Fatal(err)
	}
	delete(all, "Mounts")
	delete(all["HostConfig"].(map[string]any), "Mounts")
	delete(all["Config"].(map[string]any)["Labels"].(map[string]any), "secbox.project")
	return all
}

// compare compares two JSON values recursively and counts the values compared. Docker lists mounts
// in random order.
func compare(t *testing.T, path string, a, b any, own func(string) bool) (n int) {
	t.Helper()
	switch a := a.(type) {
	case map[string]any:
		other, _ := b.(map[string]any)
		names := map[string]bool{}
		for name := range a {
			names[name] = true
		}
		for name := range other {
			names[name] = true
		}
		for name := range names {
			n += compare(t, path+"."+name, a[name], other[name], own)
		}
		return n
	case []any:
		other, _ := b.([]any)
		if path == ".Mounts" {
			a, other = byText(a), byText(other)
		}
		if len(a) != len(other) {
			t.Errorf("%s: %v, warm %v", path, a, other)
			return 0
		}
		for i := range a {
			n += compare(t, fmt.Sprintf("%s[%d]", path, i), a[i], other[i], own)
		}
		return n
	}
	if own(path) {
		return 0
	}
	if fmt.Sprintf("%#v", a) != fmt.Sprintf("%#v", b) {
		t.Errorf("%s: cold %v, warm %v", path, a, b)
	}
	return 1
}

func byText(list []any) []any {
	return slices.SortedFunc(slices.Values(list), func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
}
