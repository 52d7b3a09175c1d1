//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImageCommands: an image is built on a real engine without a network, checked by the doctor's
// probes, listed and removed.
func TestImageCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "image.yaml")
	if err := os.WriteFile(file, []byte("run: [touch /made]\nenv: {A: 'x\" $HOME'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	core := func(args ...string) (string, string, int) {
		t.Helper()
		var out, errs strings.Builder
		flags := []string{"--state-dir", filepath.Join(dir, "state"), "--workspace-root", filepath.Join(dir, "workspace")}
		code := run(t.Context(), append(append([]string{"image"}, args...), flags...), os.Environ(), &out, &errs)
		return out.String(), errs.String(), code
	}
	name := "test-" + strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(filepath.Base(dir))) + "-x"
	t.Cleanup(func() { core("rm", name) })
	if out, errs, code := core("build", name, "--from", file); code != 2 || !strings.Contains(errs, "Give the server's --state-dir") {
		t.Errorf("without a database: %d %s%s", code, out, errs)
	}
	var migrated strings.Builder
	if code := run(t.Context(), []string{"migrate", "--state-dir", filepath.Join(dir, "state")}, os.Environ(), &migrated, &migrated); code != 0 {
		t.Fatal(migrated.String())
	}
	out, errs, code := core("build", name, "--from", file, "--network", "none")
	if code != 0 || !strings.Contains(out, "The image "+name+" is allowed: secbox-image-"+name+":") {
		t.Fatalf("build: %d %s%s", code, out, errs)
	}
	if out, errs, code := core("list"); code != 0 || !strings.Contains(out, name) || !strings.Contains(out, "secbox-sandbox:latest") {
		t.Errorf("list: %d %s%s", code, out, errs)
	}
	if out, errs, code := core("rm", name); code != 0 || errs != "" {
		t.Errorf("rm: %d %s%s", code, out, errs)
	}
	for what, args := range map[string][]string{
		"no file":        {"build", name},
		"no such file":   {"build", name, "--from", filepath.Join(dir, "nosuch")},
		"no such net":    {"build", name, "--from", file, "--network", "container:x"},
		"an odd name":    {"build", "A/B", "--from", file},
		"a pull by name": {"pull", "jobs:latest", "--as", name},
	} {
		if out, errs, code := core(args...); code != 2 {
			t.Errorf("%s: %d %s%s", what, code, out, errs)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "state", "images")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
