package server

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"secbox/settings"
)

// TestSettingsAreComparedByName: neither a value nor a plain hash of one is written anywhere.
func TestSettingsAreComparedByName(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), settingsFile)
	cfg := settings.Settings{Addr: "127.0.0.1:1", AdminToken: "swordfish"}
	expect := func(want []string) {
		t.Helper()
		remember, changed, err := compareSettings(path, cfg)
		if err != nil || !slices.Equal(changed, want) || (changed == nil) != (want == nil) {
			t.Errorf("%q, %v; want %q", changed, err, want)
		}
		if err := remember(); err != nil {
			t.Fatal(err)
		}
	}
	expect(nil)
	expect([]string{})
	cfg.Addr, cfg.AdminToken = "127.0.0.1:2", "swordfish2"
	expect([]string{"addr", "admin_token"})
	expect([]string{})
	text, err := os.ReadFile(path)
	if info, _ := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for _, secret := range []string{"swordfish", "127.0.0.1"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("%s is in %s", secret, text)
		}
	}
	if err := os.WriteFile(path, []byte("{damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(nil)
	expect([]string{})
}
