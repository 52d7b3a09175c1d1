//go:build unix

package e2e

import (
	"io"
	"net/http"
	"testing"
)

// TestUploadWhenTheNodeIsKilled: the row of an upload is open before its content has arrived, and
// ends as lost. The file keeps its content.
func TestUploadWhenTheNodeIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const user, list = "/v1/sandbox/ann/ag", "/sandbox/execs?kind=change&project_id=ag~ann"
	p := serve(t, dir, "CORE_API_POOL_MAX=0")
	p.send(http.MethodPut, user+"/edit?path=f", "old").done(t)
	p.get(list).list("items")[0].wants(t, object{
		"kind": "change", "cmd": "editSandboxFile", "status": "succeeded", "backend": "docker",
		"sha256_before": "absent",
	})

	body, more := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, p.url+user+"/file?path=f", body)
	if err != nil {
		t.Fatal(err)
	}
	// Of "new".
	req.Header.Set("Repr-Digest", "sha-256=:EVB6Di9eadXfpApiob17buV+a82FxnybhDGzb/8hxDc=:")
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			t.Errorf("answered with %d", resp.StatusCode)
		}
	}()
	if _, err := more.Write([]byte("ne")); err != nil {
		t.Fatal(err)
	}
	var running []object
	eventually(t, "the row", func() bool {
		running = p.get(list + "&status=running").list("items")
		return len(running) == 1
	})
	expected := running[0].str("sha256_after")
	running[0].wants(t, object{"cmd": "uploadSandboxFile", "args": "[/workspace/f]"})
	p.kill()
	more.Close()
	<-answered

	p = serve(t, dir, "CORE_API_POOL_MAX=0")
	id := running[0].str("exec_id")
	p.get("/sandbox/execs/"+id).wants(t, object{"kind": "change", "status": "lost", "error_reason": "node_lost", "sha256_after": expected})
	if got := p.history(id); got != "created started ended" || len(expected) != 64 {
		t.Errorf("events: %s; expected content: %q", got, expected)
	}
	if got := p.content(user, "f"); got != "old" {
		t.Errorf("the file has %q", got)
	}
	if execs := p.get("/sandbox/execs?project_id=ag~ann").list("items"); len(execs) != 0 {
		t.Errorf("changes are among the execs: %v", execs)
	}
	p.get("/sandbox/stats").wants(t, object{"counted": 0})
}
