package images

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// deployment is docker-compose.yml with its variables.
type deployment struct {
	project   string
	workspace string
	environ   []string
}

func newDeployment(t *testing.T) deployment {
	t.Helper()
	d := deployment{project: "secbox-test-" + random(t), workspace: filepath.Join(t.TempDir(), "workspace")}
	d.environ = []string{
		"COMPOSE_PROJECT_NAME=" + d.project,
		"COMPOSE_ANSI=never",
		"SECBOX_WORKSPACE=" + d.workspace,
		"SECBOX_PORT=0", // any free one
		// Characters that would break a URL, a shell or a second interpolation.
		"POSTGRES_PASSWORD=" + `p@ss:w/o'rd "$HOME" ${X} %20#` + random(t),
	}
	return d
}

func (d deployment) compose(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, d.environ, "../scripts/compose.sh", append([]string{"-f", "../docker-compose.yml"}, args...)...)
}

type composeFile struct {
	Services map[string]struct {
		Image       string
		Environment map[string]string
		Ports       []struct {
			HostIP string `json:"host_ip"`
			Target int
		}
		Volumes   []struct{ Type, Source, Target string }
		DependsOn map[string]struct{ Condition string } `json:"depends_on"`
	}
	Volumes map[string]struct{ Name string }
}

func (d deployment) config(t *testing.T) composeFile {
	t.Helper()
	var file composeFile
	if err := json.Unmarshal([]byte(d.compose(t, "config", "--format", "json")), &file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestComposeConfig(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	file := d.config(t)
	core := file.Services["core-api"]
	inside, onHost := core.Environment["CORE_API_SANDBOX_WORKSPACE_ROOT"], core.Environment["CORE_API_SANDBOX_WORKSPACE_ROOT_HOST"]
	if onHost != d.workspace {
		t.Errorf("the engine would be told to mount %q, the workspace is %q", onHost, d.workspace)
	}
	mounts := map[string]string{}
	for _, v := range core.Volumes {
		mounts[v.Target] = v.Type + " " + v.Source
	}
	if got := mounts[inside]; got != "bind "+d.workspace {
		t.Errorf("core-api's workspace root %q is %q, not the workspace", inside, got)
	}
	if got := mounts[core.Environment["CORE_API_STATE_DIR"]]; got != "volume core-api-state" {
		t.Errorf("the state dir is %q: it would not outlive the container, or a job could reach it", got)
	}
	if core.Environment["CORE_API_SANDBOX_RUNTIME_MODE"] != "container" {
		t.Errorf("the mode is %q", core.Environment["CORE_API_SANDBOX_RUNTIME_MODE"])
	}
	if len(core.Ports) != 1 || core.Ports[0].HostIP != "127.0.0.1" {
		t.Errorf("the port is published beyond loopback: %+v", core.Ports)
	}
	if len(file.Services["postgres"].Ports)+len(file.Services["setup"].Ports) != 0 {
		t.Error("another port is published")
	}
	if core.DependsOn["postgres"].Condition != "service_healthy" {
		t.Errorf("core-api does not wait for the database: %+v", core.DependsOn)
	}
	for name, value := range core.Environment {
		if strings.Contains(value, "p@ss") {
			t.Errorf("the password is in %s, which docker inspect shows", name)
		}
	}
}

// TestComposeNeedsNoVariable: without any, the workspace is a volume, by the engine's name for it.
func TestComposeNeedsNoVariable(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	d.environ = d.environ[:2]
	file := d.config(t)
	core := file.Services["core-api"]
	volume := core.Environment["CORE_API_SANDBOX_WORKSPACE_VOLUME"]
	if volume != d.project+"_workspace" || file.Volumes["workspace"].Name != volume || core.Environment["CORE_API_SANDBOX_WORKSPACE_ROOT_HOST"] != "" {
		t.Errorf("the volume is %q, core-api gets %v", file.Volumes["workspace"].Name, core.Environment)
	}
	for _, v := range core.Volumes {
		if v.Target == core.Environment["CORE_API_SANDBOX_WORKSPACE_ROOT"] && (v.Type != "volume" || v.Source != "workspace") {
			t.Errorf("the workspace root is %+v", v)
		}
	}
	if len(core.Ports) != 1 || core.Ports[0].HostIP != "127.0.0.1" {
		t.Errorf("the port is published beyond loopback: %+v", core.Ports)
	}
}

// TestImageHasGoOfModule: the image in which docker compose builds core-api fetches no other Go.
func TestImageHasGoOfModule(t *testing.T) {
	t.Parallel()
	module, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	dockerfile, err := os.ReadFile("core-api.Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (1\.[0-9]+)`).FindSubmatch(module)
	if version == nil || !bytes.Contains(dockerfile, []byte("\nFROM golang:"+string(version[1])+" AS files\n")) {
		t.Errorf("core-api.Dockerfile does not build with the Go of go.mod, %s", version)
	}
}

// TestComposeUp runs the deployment as docker-compose.yml has it: PostgreSQL, core-api in a
// container, and an exec through both names of a workspace on the engine's machine. The part
// compose of make test-reach has the workspace in a volume: this engine may be too old for one.
func TestComposeUp(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	core := temporaryTag(t, "secbox-core-api")
	run(t, []string{"SECBOX_CORE_API_TAG=" + core}, "./build-core-api.sh")
	d.environ = append(d.environ, "SECBOX_CORE_API_IMAGE="+core, "SECBOX_POSTGRES_IMAGE="+postgresImage(t, core))

	t.Cleanup(func() {
		if t.Failed() {
			out, _, _ := try(t, d.environ, "../scripts/compose.sh", "-f", "../docker-compose.yml", "logs", "--no-color", "--tail=40")
			t.Log(out)
		}
		d.compose(t, "down", "--volumes", "--timeout", "20")
		// core-api wrote as root; the tests may run as another user.
		docker(t, "run", "--rm", "--network=none", "--user=0:0", "--entrypoint=find", "-v", d.workspace+":/w", sandboxImage, "/w", "-mindepth", "1", "-delete")
	})
	d.compose(t, "up", "--detach", "--wait", "--wait-timeout", "120", "--quiet-pull")

	address := strings.TrimSpace(d.compose(t, "port", "core-api", "8003"))
	if !strings.HasPrefix(address, "127.0.0.1:") {
		t.Fatalf("published on %q", address)
	}
	token := d.compose(t, "exec", "-T", "core-api", "cat", "/secrets/admin-token")
	if len(token) != 48 {
		t.Errorf("the first admin token has %d characters", len(token))
	}
	status, _ := request(t, http.MethodGet, "http://"+address+"/sandbox/execs", "", nil)
	if status != http.StatusUnauthorized {
		t.Errorf("without a token: %d", status)
	}

	job := map[string]any{
		"project_id": "composed",
		"exec": map[string]any{
			"kind": "shell", "command": "bash",
			"args": []string{"-lc", "cat /workspace/inputs/in.txt && cp /workspace/inputs/in.txt /workspace/artifacts/out.txt"},
		},
		"inputs": []map[string]any{{"path": "in.txt", "content": "through both names"}},
	}
	status, body := request(t, http.MethodPost, "http://"+address+"/sandbox/execs", token, job)
	var result struct {
		Status, Stdout, Audit string
		ExecID                string `json:"exec_id"`
		ArtifactsDir          string `json:"artifacts_dir"`
	}
	if err := json.Unmarshal(body, &result); err != nil || status != http.StatusOK || result.Status != "succeeded" || result.Stdout != "through both names" {
		t.Fatalf("%d %s", status, body)
	}
	onHost, err := os.ReadFile(filepath.Join(d.workspace, filepath.FromSlash(result.ArtifactsDir), "out.txt"))
	if err != nil || string(onHost) != "through both names" {
		t.Errorf("on the host: %q, %v", onHost, err)
	}

	// The row is in PostgreSQL: it outlives core-api's container and its state.
	d.compose(t, "rm", "--stop", "--force", "core-api")
	d.compose(t, "up", "--detach", "--wait", "--wait-timeout", "120")
	address = strings.TrimSpace(d.compose(t, "port", "core-api", "8003"))
	status, body = request(t, http.MethodGet, "http://"+address+"/sandbox/execs/"+result.ExecID, token, nil)
	if status != http.StatusOK || !bytes.Contains(body, []byte(`"succeeded"`)) {
		t.Errorf("after a new container: %d %s", status, body)
	}
}

// postgresImage is postgres:17 where the engine holds it or a registry gives it, else a stand-in
// from Debian's package on the base that core-api's image has. A stand-in that is there says that
// no registry answered, which is not asked again at every run.
func postgresImage(t *testing.T, core string) string {
	t.Helper()
	const official, standIn = "postgres:17", "secbox-test-postgres:17-2"
	for _, tag := range []string{official, standIn} {
		if _, _, err := try(t, nil, "docker", "image", "inspect", tag); err == nil {
			return tag
		}
	}
	if _, _, err := try(t, nil, "docker", "pull", "-q", official); err == nil {
		return official
	}
	base := docker(t, "image", "inspect", "--format", `{{index .Config.Labels "secbox.image.base"}}`, core)
	docker(t, "build", "--network=host", "--force-rm", "--build-arg", "BASE="+base, "-t", standIn, "testdata/postgres")
	return standIn
}

func request(t *testing.T, method, url, token string, body any) (int, []byte) {
	t.Helper()
	var reader io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		reader = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, reader)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := (&http.Client{Timeout: time.Minute}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, answer
}
