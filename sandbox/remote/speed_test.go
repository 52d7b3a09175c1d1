//go:build linux

package remote_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"secbox/sandbox"
)

// BenchmarkSmallFiles reads files of 4 KiB from a runner on loopback, 16 at once.
func BenchmarkSmallFiles(b *testing.B) {
	s := serve(b)
	dir := b.TempDir()
	run(b, s, s.url, dir)
	want := content(4 << 10)
	for i := range 1000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), want, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	var next atomic.Int64
	var work sync.WaitGroup
	for range 16 {
		work.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				got, err := s.ReadFile(b.Context(), fmt.Sprintf("/workspace/%d", i%1000), user)
				if err != nil || len(got) != len(want) {
					b.Error(len(got), err)
					return
				}
			}
		})
	}
	work.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "files/s")
}

// BenchmarkExec runs true again and again.
func BenchmarkExec(b *testing.B) {
	s := serve(b)
	run(b, s, s.url, b.TempDir())
	for b.Loop() {
		if r, err := s.Exec(b.Context(), sandbox.ExecSpec{Command: "true", User: user}); err != nil || r.ExitCode != 0 {
			b.Fatal(r, err)
		}
	}
}

const large = 400 << 20

// BenchmarkLargeRead streams 400 MiB from a runner.
func BenchmarkLargeRead(b *testing.B) {
	s := serve(b)
	dir := b.TempDir()
	run(b, s, s.url, dir)
	if err := os.WriteFile(filepath.Join(dir, "large"), make([]byte, large), 0o644); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(large)
	for b.Loop() {
		if n, err := s.ReadFileTo(b.Context(), "/workspace/large", io.Discard, user); err != nil || n != large {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkLargeWrite streams 400 MiB to a runner.
func BenchmarkLargeWrite(b *testing.B) {
	s := serve(b)
	run(b, s, s.url, b.TempDir())
	b.SetBytes(large)
	for b.Loop() {
		n, err := s.WriteFileFrom(b.Context(), "/workspace/large", onlyReader{io.LimitReader(zeros{}, large)}, 0o644, user)
		if err != nil || n != large {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkPlainRead and BenchmarkPlainWrite measure plain HTTP with the same content on the same
// machine.
func BenchmarkPlainRead(b *testing.B) {
	path := filepath.Join(b.TempDir(), "large")
	if err := os.WriteFile(path, make([]byte, large), 0o644); err != nil {
		b.Fatal(err)
	}
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer web.Close()
	b.SetBytes(large)
	for b.Loop() {
		f, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		resp, err := http.Post(web.URL, "application/octet-stream", f)
		if err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
	}
}

// BenchmarkPlainWrite fetches into a file.
func BenchmarkPlainWrite(b *testing.B) {
	content := make([]byte, 1<<20)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range large >> 20 {
			_, _ = w.Write(content)
		}
	}))
	defer web.Close()
	path := filepath.Join(b.TempDir(), "large")
	b.SetBytes(large)
	for b.Loop() {
		resp, err := http.Get(web.URL)
		if err != nil {
			b.Fatal(err)
		}
		f, err := os.Create(path)
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(f, resp.Body)
		resp.Body.Close()
		f.Close()
		if err != nil || n != large {
			b.Fatal(n, err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
