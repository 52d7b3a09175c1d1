package runner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"secbox/engine"
	"secbox/engine/memengine"
	"secbox/runner"
)

// TestNotKeptArtifacts: a list names what was removed and special files with reasons, has few of them however many a job makes, and counts all.
func TestNotKeptArtifacts(t *testing.T) {
	t.Parallel()
	const below = 10_000
	f := setUp(t, run(func(_ context.Context, c *memengine.Container) (engine.Exit, error) {
		file, _ := c.Path("/workspace/artifacts/x", true)
		dir := filepath.Dir(file)
		errs := []error{
			os.WriteFile(filepath.Join(dir, "kept"), nil, 0o644), os.WriteFile(filepath.Join(dir, "b\u202egpj.exe"), make([]byte, 2000), 0o644), os.WriteFile(filepath.Join(dir, "bad\xff\n"), []byte("x"), 0o644),
			os.Mkdir(filepath.Join(dir, "dir\xfe"), 0o755), os.Symlink("/etc/passwd", filepath.Join(dir, "a-link")), os.WriteFile(filepath.Join(dir, "meta.json"), nil, 0o644),
		}
		for i := range below {
			errs = append(errs, os.WriteFile(filepath.Join(dir, "dir\xfe", strconv.Itoa(i)), nil, 0o644))
		}
		for i := range 60 {
			errs = append(errs, syscall.Mkfifo(filepath.Join(dir, fmt.Sprintf("fifo%02d", i)), 0o644), os.WriteFile(filepath.Join(dir, fmt.Sprintf("n%02d\xff", i)), nil, 0o644))
		}
		return engine.Exit{}, errors.Join(errs...)
	}))
	limit := int64(1000)
	record := f.exec(shell("p", "litter", func(r *runner.Request) { r.Overrides.MaxArtifactsBytesTotal = &limit })).Record
	left, err := f.Artifacts(t.Context(), record)
	must(t, err)
	defer left.Close()
	list := left.List()
	if len(list.Items) != 1 || list.Items[0].Path != "kept" || len(list.NotKept) != 50 || list.NotKeptCount != 4+below+1+120 {
		t.Fatalf("%d files, %d of %d that were not kept: %+v", len(list.Items), len(list.NotKept), list.NotKeptCount, record)
	}
	for _, want := range []runner.NotKept{
		{Path: "b\u202egpj.exe", Size: 2000, Why: "it did not fit into max_artifacts_bytes_total"},
		{Path: `bad\xff\n`, Size: 1, Why: `its name is not UTF-8; \x and two digits stand for a byte`},
		{Path: `dir\xfe`, Why: `its name is not UTF-8; \x and two digits stand for a byte`},
		{Path: "meta.json", Why: "core-api writes a file of this name itself: use another name"},
		{Path: "a-link", Why: "a symbolic link: links are not followed, copy the file instead"},
		{Path: "fifo23", Why: "a named pipe (FIFO): only regular files are kept"},
	} {
		if !slices.Contains(list.NotKept, want) {
			t.Errorf("%+v is missing", want)
		}
	}
}
