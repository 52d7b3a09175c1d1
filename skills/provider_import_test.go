package skills_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestProviderCanBeImportedFromAnotherModule builds a worker that names a checkout of this module
// as the README describes.
func TestProviderCanBeImportedFromAnotherModule(t *testing.T) {
	t.Parallel()
	checkout, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(checkout, "go.sum")) // instead of go get
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":    "module example.com/worker\n\ngo 1.26\n",
		"go.sum":    string(sums),
		"worker.go": "package worker\n\nimport \"secbox/skills\"\n\nvar Provider, Err = skills.NewProvider(\"http://127.0.0.1:8003\", \"\")\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"mod", "edit", "-require=secbox@v0.0.0", "-replace=secbox=" + checkout},
		{"build", "-mod=mod", "./..."},
	} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
}
