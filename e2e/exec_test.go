package e2e

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMainJob is the path that everything else hangs on: input in, command run, output, artifact
// and audit row out.
func TestMainJob(t *testing.T) {
	t.Parallel()
	coldAndWarm(t, mainJob)
}

func mainJob(t *testing.T, how serving) {
	s := start(t, how.settings).serving(how)
	result := s.exec(object{
		"project_id": "demo", "conversation_id": "c1",
		"exec": object{
			"kind": "python", "command": "python",
			"args": []string{"-c", "import sys; d=open('/workspace/inputs/data/in.txt').read(); print(d.upper(), end=''); " +
				"open('/workspace/artifacts/out.txt','w').write(d*2); print(sys.stdin.read(), file=sys.stderr)"},
			"env":   object{"K": "the-value"},
			"stdin": "from stdin",
		},
		"inputs": []object{
			{"path": "data/in.txt", "content": "hello\n", "encoding": "utf-8"},
			{"path": "./bin.dat", "content": base64.StdEncoding.EncodeToString([]byte{0, 255, 1}), "encoding": "base64"},
		},
		"policy_overrides": object{"timeout_ms": 5000, "memory_mb": 256, "cpu_cores": 0.5},
		"task_ref":         object{"task_id": "t1"},
	})
	id := result.str("exec_id")
	for path, want := range map[string]any{
		"status": "succeeded", "exit_code": 0.0, "error_reason": "", "stdout": "HELLO\n", "stderr": "from stdin\n",
		"stdout_truncated": false, "stdout_bytes": 6.0, "audit": "stored", "project_id": "demo",
		"artifacts_dir": "projects/demo/artifacts/" + id,
		"stdout_path":   "projects/demo/artifacts/" + id + "/stdout.txt",
	} {
		if got := result.at(path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
	sum := sha256.Sum256([]byte("hello\nhello\n"))
	want := object{"path": "out.txt", "size": 12.0, "sha256": hex.EncodeToString(sum[:])}
	if list := result.list("artifacts"); len(list) != 1 || list[0].str("path") != "out.txt" || list[0].str("sha256") != want["sha256"] {
		t.Errorf("artifacts %v", list)
	}

	record := s.get("/sandbox/execs/" + id)
	for path, want := range map[string]any{
		"status": "succeeded", "cmd": "python", "cwd": "/workspace/work", "task_id": "t1", "conversation_id": "c1", "backend": "docker",
		"requested_by": "loopback", "image": "secbox-sandbox:latest", "warm": how == warm,
		"policy_snapshot.fields.memory_mb.value": 256.0, "policy_snapshot.fields.memory_mb.layer": "request",
		"policy_snapshot.fields.pids.value": 256.0, "policy_snapshot.fields.pids.layer": "default",
		"policy_snapshot.fields.cpu_cores.value": 0.5,
	} {
		if got := record.at(path); got != want {
			t.Errorf("record: %s is %v, want %v", path, got, want)
		}
	}
	if keys, _ := record.at("env_keys").([]any); len(keys) != 1 || keys[0] != "K" {
		t.Errorf("env_keys %v", keys)
	}
	if inputs := record.list("inputs"); len(inputs) != 2 || inputs[1].str("path") != "bin.dat" || inputs[1].num("size") != 3 {
		t.Errorf("inputs %v", inputs)
	}

	list := s.get("/sandbox/execs/" + id + "/artifacts")
	if list.num("total_bytes") != 12 || list.at("truncated") != false {
		t.Errorf("list %v", list)
	}
	if a := s.artifact(id, "out.txt"); string(a.Body) != "hello\nhello\n" || !strings.HasPrefix(a.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("download %q %v", a.Body, a.Header)
	}
	if a := s.send(http.MethodGet, "/sandbox/execs/"+id+"/stdout", nil, "Range", "bytes=1-3"); a.Code != http.StatusPartialContent || string(a.Body) != "ELL" {
		t.Errorf("range: %d %q", a.Code, a.Body)
	}
	archive := s.send(http.MethodGet, "/sandbox/execs/"+id+"/artifacts?format=zip", nil)
	z, err := zip.NewReader(bytes.NewReader(archive.Body), int64(len(archive.Body)))
	if err != nil || len(z.File) != 1 || z.File[0].Name != "out.txt" {
		t.Fatalf("zip: %v %v", err, z)
	}
	member, err := z.File[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	if content, err := io.ReadAll(member); err != nil || string(content) != "hello\nhello\n" {
		t.Errorf("zip member %q %v", content, err)
	}

	// On disk, beside what the job left: the four files, and a manifest whose digest is in the row.
	dir := filepath.Join(s.dir, "workspace", result.str("artifacts_dir"))
	manifest, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	sum = sha256.Sum256(manifest)
	if record.str("manifest_digest") != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("manifest_digest %q", record.str("manifest_digest"))
	}
	var meta object
	content, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &meta); err != nil {
		t.Fatal(err)
	}
	if meta.str("exec_id") != id || len(meta.list("docker_mounts")) != 3 || meta.at("docker_args") == nil ||
		meta.str("image_id") == "" || meta.str("policy_snapshot.fields.memory_mb.layer") != "request" {
		t.Errorf("meta.json: %s", content)
	}
	for _, name := range []string{"stdout.txt", "stderr.txt"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if bytes.Contains(content, []byte("the-value")) {
		t.Error("meta.json shows the value of a variable")
	}
}

// TestEnvironmentValuesStayOut looks for a secret value in everything that the server keeps.
func TestEnvironmentValuesStayOut(t *testing.T) {
	t.Parallel()
	s := start(t, warm.settings).serving(warm)
	const secret = "zq-very-secret-zq"
	request := shell("demo", "test -n \"$K\"", "inputs", []object{})
	request["exec"].(object)["env"] = object{"K": secret}
	request["exec"].(object)["stdin"] = secret
	if result := s.exec(request); result.str("status") != "succeeded" {
		t.Fatalf("%v", result)
	}
	if err := s.app.Close(); err != nil { // so that the database's log is folded in
		t.Fatal(err)
	}
	files := 0
	err := filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(secret)) {
			t.Errorf("%s has the value", path)
		}
		return err
	})
	if err != nil || files < 5 {
		t.Fatalf("%d files, %v", files, err)
	}
}

// TestStatuses ends execs in ways that only the kernel knows: by signals and by limits.
func TestStatuses(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for _, c := range []struct {
		name, script   string
		policy         object
		status, reason string
		exit           any
		detail         string
	}{
		{"signal", "kill -SEGV $$", nil, "failed", "nonzero_exit", 139.0, "signal 11"},
		{"timeout", "trap '' TERM; sleep 60", object{"timeout_ms": 300}, "timeout", "timeout", 137.0, "timeout_ms"},
		{"oom", "exec python3 -c 'bytearray(300<<20)'", object{"memory_mb": 64}, "oom_killed", "oom", 137.0, "memory_mb"},
		{"oom of a child", "python3 -c 'bytearray(300<<20)'; exit 0", object{"memory_mb": 64}, "succeeded", "", 0.0, "killed for memory"},
		{
			"full shared memory", `exec python3 -c 'import mmap
f = open("/dev/shm/f", "w+b")
f.truncate(32 << 20)
mmap.mmap(f.fileno(), 0)[:] = b"x" * (32 << 20)'`, object{"shm_mb": 16}, "failed", "bus_error", 135.0, "policy_overrides.shm_mb",
		},
		{
			"pids", "for i in $(seq 100); do sleep 5 & done; wait",
			object{"pids": 32, "timeout_ms": 20000},
			"failed", "pids_limit", 254.0,
			"policy_overrides.pids",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := s.with(t)
			request := shell("status-"+projectFor(c.name), c.script)
			if c.policy != nil {
				request["policy_overrides"] = c.policy
			}
			result := s.exec(request)
			if result.str("status") != c.status || result.str("error_reason") != c.reason || result.at("exit_code") != c.exit ||
				!strings.Contains(result.str("detail"), c.detail) {
				t.Errorf("%v", result)
			}
			record := s.get("/sandbox/execs/" + result.str("exec_id"))
			if record.str("status") != c.status || strings.HasPrefix(c.name, "oom") != (record.num("oom_events") > 0) {
				t.Errorf("record %v", record)
			}
		})
	}
}
