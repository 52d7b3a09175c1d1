package api_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"secbox/api/wire"
	"secbox/fault"
)

// TestConcurrentEdits edits each line of a file in a separate request. No edit that was answered
// with 200 is lost.
func TestConcurrentEdits(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T) *fixture{
		"on the server": func(t *testing.T) *fixture { return start(t) }, "on a user's machine": onTheirMachine,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const lines = 24
			f := begin(t)
			data[string](t, f.edit("log.txt", strings.Repeat("-\n", lines)))
			answers := make([]reply, lines)
			var wait sync.WaitGroup
			for n := range lines {
				wait.Go(func() { answers[n] = f.edit(fmt.Sprintf("log.txt&start=%d&end=%[1]d", n+1), fmt.Sprint(n)) })
			}
			wait.Wait()
			var want strings.Builder
			for n, answer := range answers {
				data[string](t, answer)
				fmt.Fprintln(&want, n)
			}
			if got := data[wire.V1Content](t, f.get("/v1/sandbox/u/ag/content?path=log.txt")).Content; got != want.String() {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestEditDuringAForeignWrite changes a file on the user's machine between reading and replacing
// its lines.
func TestEditDuringAForeignWrite(t *testing.T) {
	t.Parallel()
	f := onTheirMachine(t)
	file := filepath.Join(f.sandboxes.machine, "log.txt")
	data[string](t, f.edit("log.txt", "one\ntwo\n"))
	times := 0
	writes := func() {
		times++
		if err := os.WriteFile(file, fmt.Appendf(nil, "one\nwritten %d\n", times), 0o600); err != nil {
			t.Error(err)
		}
	}
	f.sandboxes.writing = func() {
		if times == 0 {
			writes()
		}
	}
	data[string](t, f.edit("log.txt&start=1&end=1", "1"))
	if got, err := os.ReadFile(file); err != nil || string(got) != "1\nwritten 1\n" {
		t.Errorf("on the machine: %q, %v", got, err)
	}
	f.sandboxes.writing = writes
	f.edit("log.txt&start=1&end=1", "2").refused(t, fault.FileChanged)
	if got, err := os.ReadFile(file); err != nil || string(got) != fmt.Sprintf("one\nwritten %d\n", times) {
		t.Errorf("on the machine after %d writes: %q, %v", times, got, err)
	}
}
