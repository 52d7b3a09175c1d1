package api_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"secbox/api"
)

// TestEditsOfLinesAtOnce edits each line of a file by a request of its own. No edit that was answered 200 is lost.
func TestEditsOfLinesAtOnce(t *testing.T) {
	t.Parallel()
	const lines = 24
	f := start(t)
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
	if got := data[api.V1Content](t, f.get("/v1/sandbox/u/ag/content?path=log.txt")).Content; got != want.String() {
		t.Errorf("got %q", got)
	}
}
