package server

import "testing"

func TestConsoleURL(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"127.0.0.1:8003": "http://127.0.0.1:8003/console", "[::1]:80": "http://[::1]:80/console", "0.0.0.0:8003": "http://localhost:8003/console",
		"[::]:8003": "http://localhost:8003/console",
	} {
		if got := consoleURL(addr); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}
