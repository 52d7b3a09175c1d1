//go:build unix

package hosts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOtherProgramsChangeTheFile: what another program has written meanwhile stays.
func TestOtherProgramsChangeTheFile(t *testing.T) {
	t.Parallel()
	for name, old := range map[string][]byte{"none": nil, "one": []byte("old")} {
		dir := t.TempDir()
		file := filepath.Join(dir, "mcp.json")
		write := func(content string) {
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if old != nil {
			write(string(old))
		}
		_, err := Change(file, false, func([]byte) ([]byte, error) {
			write("theirs")
			return []byte("ours"), nil
		})
		if err == nil || !strings.Contains(err.Error(), "another program changed it meanwhile") {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != "theirs" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "*.new-*")); err != nil || len(left) > 0 {
			t.Errorf("%s: %q, %v", name, left, err)
		}
	}
}

// TestLinkThatLeadsNowhere: a link stays one.
func TestLinkThatLeadsNowhere(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.Symlink("dotfiles/mcp.json", file); err != nil {
		t.Fatal(err)
	}
	if _, err := Change(file, false, func([]byte) ([]byte, error) { return []byte("{}"), nil }); err == nil {
		t.Error("no error")
	}
	if to, err := os.Readlink(file); err != nil || to != "dotfiles/mcp.json" {
		t.Errorf("%q, %v", to, err)
	}
}

// TestDeepConfigurations: no file overflows the stack, or takes minutes.
func TestDeepConfigurations(t *testing.T) {
	t.Parallel()
	e := Entry{Name: "secbox", TokenVariable: "SECBOX_TOKEN", Command: "/bin/secbox"}
	for host, configs := range map[string][]string{
		"cursor": {strings.Repeat("[", 5_000_000), strings.Repeat(`{"\"]}":`, 3_000_000)},
		"codex":  {"a" + strings.Repeat(".a", 1_000_000) + " = 1\n"},
	} {
		h, ok := Named(host)
		if !ok {
			t.Fatal(host)
		}
		for _, config := range configs {
			if _, err := h.Add([]byte(config), e); err == nil || !strings.Contains(err.Error(), "more than") {
				t.Errorf("%.20s: %v", config, err)
			}
		}
	}
}
