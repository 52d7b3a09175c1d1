package userservers

import (
	"slices"
	"testing"
)

// TestToolsOfAServer: a server of the SDK is started by the first listing, and its tools are called in one process.
func TestToolsOfAServer(t *testing.T) { // 004 l11, 23
	t.Parallel()
	f := start(t, nil, server("good"))
	if got := f.names(); !slices.Equal(got, []string{"srv.status"}) || f.starts() != 0 {
		t.Errorf("before: %q, %d starts", got, f.starts())
	}
	if got := f.list(); !slices.Contains(got, "srv.echo") || slices.Contains(got, "srv.status") {
		t.Fatalf("%q", got)
	}
	if got := f.text("srv.echo", `{"text":"hi"}`); got != "hi" {
		t.Errorf("%q", got)
	}
	if one, two := f.text("srv.pid", ""), f.text("srv.pid", ""); one != two || f.starts() != 1 {
		t.Errorf("%s, %s, %d starts", one, two, f.starts())
	}
}
