package machine_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"secbox/sandbox"
	"secbox/sandbox/remote"
	"secbox/sandbox/remote/machine"
	"secbox/sandbox/remote/wire"
)

var bob = sandbox.User{AgentID: "a", ID: "bob"}

// linked is a Hub with a runner over loopback, both in this process.
func linked(b *testing.B) (*remote.Hub, string) {
	b.Helper()
	h := remote.NewHub(remote.Config{Log: slog.New(slog.DiscardHandler)})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := remote.Caller{TokenID: "1", UserID: bob.ID}
		if id, ok := strings.CutPrefix(r.URL.Path, wire.TransferPath); ok {
			h.ServeTransfer(w, r, id, caller)
			return
		}
		h.ServeLink(w, r, caller)
	}))
	dir := b.TempDir()
	m, err := machine.New(machine.Config{
		Server: web.URL, Token: "t", Workspace: dir, Name: "bench", Version: "1", Allow: []string{"exec", "write"}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.Run(b.Context())
	}()
	b.Cleanup(func() {
		<-done
		_ = h.Close()
		web.Close()
	})
	for len(h.Runners()) == 0 {
	}
	return h, dir
}

func BenchmarkExec(b *testing.B) {
	b.Run("runner", func(b *testing.B) {
		h, _ := linked(b)
		for b.Loop() {
			if _, err := h.Exec(b.Context(), sandbox.ExecSpec{User: bob, Command: "true"}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("os", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkReadFile reads 4 KiB, 16 at once.
func BenchmarkReadFile(b *testing.B) {
	h, dir := linked(b)
	if err := os.WriteFile(dir+"/f", make([]byte, 4096), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := h.ReadFile(b.Context(), "/workspace/f", bob); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

const largeFile = 400 << 20

func BenchmarkReadLarge(b *testing.B) {
	h, dir := linked(b)
	if err := os.WriteFile(dir+"/f", random(largeFile), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(largeFile)
	for b.Loop() {
		if n, err := h.ReadFileTo(b.Context(), "/workspace/f", io.Discard, bob); err != nil || n != largeFile {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkWriteLarge(b *testing.B) {
	h, _ := linked(b)
	content := string(random(largeFile))
	b.SetBytes(largeFile)
	for b.Loop() {
		if _, err := h.WriteFileFrom(b.Context(), "/workspace/f", strings.NewReader(content), 0o600, bob); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPlainHTTP measures a PUT of the same bytes.
func BenchmarkPlainHTTP(b *testing.B) {
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer web.Close()
	name := b.TempDir() + "/f"
	if err := os.WriteFile(name, random(largeFile), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(largeFile)
	for b.Loop() {
		f, err := os.Open(name)
		if err != nil {
			b.Fatal(err)
		}
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPut, web.URL, f)
		if err != nil {
			b.Fatal(err)
		}
		req.ContentLength = largeFile
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
	}
}
