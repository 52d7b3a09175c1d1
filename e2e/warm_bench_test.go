package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"
)

// BenchmarkWarmExec is one exec in a container that waited, from the request to its answer, one at
// a time and with nothing else going on: for profiles. `make bench` measures what users get.
//
//	go test ./e2e -run - -bench WarmExec -benchtime 200x -cpuprofile /tmp/cpu.pprof
func BenchmarkWarmExec(b *testing.B) {
	s := start(b)
	body := []byte(`{"project_id":"bench","exec":{"kind":"shell","command":"bash","args":["-lc","true"]}}`)
	post := func() {
		resp, err := http.Post(s.url+"/sandbox/execs", "application/json", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(answer, []byte(`"succeeded"`)) {
			b.Fatal(fmt.Errorf("%d %s %w", resp.StatusCode, answer, err))
		}
	}
	calm := func() {
		for pool := s.get("/sandbox/pool"); pool.num("starting") > 0 || pool.num("idle") < 1; pool = s.get("/sandbox/pool") {
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond) // the teardown of the one before
	}
	post()
	calm()
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		calm()
		b.StartTimer()
		begun := time.Now()
		post()
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
}
