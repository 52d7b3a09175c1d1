package runner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"secbox/engine"
	"secbox/engine/memengine"
	"secbox/runner"
)

// TestNotKeptArtifacts: a list names what was removed and special files with reasons, has few of
// them however many a job makes, and counts all.
func TestNotKeptArtifacts(t *testing.T) {
	t.Parallel()
	const below = 10_000
	f := setUp(t, run(func(_ context.Context, c *memengine.Container) (engine.Exit, error) {
		file, _ := c.Path("/workspace/artifacts/x", true)
		dir := filepath.Dir(file)
		errs := []error{
			os.WriteFile(filepath.Join(dir, "kept"), nil, 0o644), os.WriteFile(filepath.Join(dir, "b\u202egpj.exe"), make([]byte, 2000), 0o644),
			os.WriteFile(filepath.Join(dir, "bad\xff\n"), []byte("x"), 0o644),
			os.WriteFile(filepath.Join(dir, "bad%FF\n"), nil, 0o644), os.WriteFile(filepath.Join(dir, "dir%FE"), nil, 0o644), // take the names
			os.Mkdir(filepath.Join(dir, "dir\xfe"), 0o755), os.Symlink("/etc/passwd", filepath.Join(dir, "a-link")),
			os.WriteFile(filepath.Join(dir, "meta.json"), nil, 0o644),
		}
		for i := range below {
			errs = append(errs, os.WriteFile(filepath.Join(dir, "dir\xfe", strconv.Itoa(i)), nil, 0o644))
		}
		for i := range 60 {
			errs = append(errs, syscall.Mkfifo(filepath.Join(dir, fmt.Sprintf("fifo%02d", i)), 0o644),
				os.WriteFile(filepath.Join(dir, fmt.Sprintf("n%02d\xff", i)), nil, 0o644),
				os.WriteFile(filepath.Join(dir, fmt.Sprintf("n%02d%%FF", i)), nil, 0o644))
		}
		return engine.Exit{}, errors.Join(errs...)
	}))
	limit := int64(1000)
	record := f.exec(shell("p", "litter", func(r *runner.Request) { r.Overrides.MaxArtifactsBytesTotal = &limit })).Record
	left, err := f.Artifacts(t.Context(), record)
	must(t, err)
	defer left.Close()
	list := left.List()
	if len(list.Items) != 64 || len(list.NotKept) != 50 || list.NotKeptCount != 3+below+1+120 {
		t.Fatalf("%d files, %d of %d that were not kept: %+v", len(list.Items), len(list.NotKept), list.NotKeptCount, record)
	}
	for _, want := range []runner.NotKept{
		{Path: "b\u202egpj.exe", Size: 2000, Reason: "over_limit", Why: "it did not fit into max_artifacts_bytes_total"},
		{
			Path: `bad\xff\n`, Size: 1, Reason: "name_not_utf8",
			Why: `its name is not UTF-8, and its bytes as %XX give a name that is taken or too long; \x and two digits stand for a byte`,
		},
		{
			Path: `dir\xfe`, Reason: "name_not_utf8",
			Why: `its name is not UTF-8, and its bytes as %XX give a name that is taken or too long; \x and two digits stand for a byte`,
		},
		{
			Path: "a-link", Reason: "symlink",
			Why: "a symbolic link, which leads to no regular file of this project that the job could read, or on too long a way: copy the file instead",
		},
		{Path: "fifo23", Reason: "fifo", Why: "a named pipe (FIFO): only regular files are kept"},
	} {
		if !slices.Contains(list.NotKept, want) {
			t.Errorf("%+v is missing", want)
		}
	}
	for _, want := range []string{"artifacts over a limit were removed", `not among the artifacts: "bad\\xff\\n" (its name is not UTF-8`, "more, see omitted"} {
		if !strings.Contains(record.Detail, want) {
			t.Errorf("%q is not in the detail %q", want, record.Detail)
		}
	}
}

// TestJobsOwnNames: results with the names of core-api's own files, and links to the project's
// files, are results like any other.
func TestJobsOwnNames(t *testing.T) {
	t.Parallel()
	f := setUp(t, run(func(_ context.Context, c *memengine.Container) (engine.Exit, error) {
		file, _ := c.Path("/workspace/artifacts/x", true)
		made, _ := c.Path("/workspace/work/made.txt", true)
		dir := filepath.Dir(file)
		return engine.Exit{}, errors.Join(
			os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(`{"name": "my app"}`), 0o644),
			os.WriteFile(filepath.Join(dir, "stdout.txt"), []byte("mine"), 0o644),
			os.WriteFile(made, []byte("made"), 0o644), os.Symlink("/workspace/work/made.txt", filepath.Join(dir, "link.txt")),
		)
	}))
	result := f.exec(shell("p", "results"))
	left, err := f.Artifacts(t.Context(), result.Record)
	must(t, err)
	defer left.Close()
	var paths []string
	for _, a := range result.Artifacts {
		paths = append(paths, a.Path)
	}
	if !slices.Equal(paths, []string{"link.txt", "manifest.json", "stdout.txt"}) || result.NotKeptCount != 0 || result.Record.Detail != "" {
		t.Errorf("%q, %+v, %q", paths, result.LeftOut, result.Record.Detail)
	}
	for name, want := range map[string]string{"manifest.json": `{"name": "my app"}`, "stdout.txt": "mine", "link.txt": "made"} {
		content, _, err := left.Open(t.Context(), name)
		must(t, err)
		got, err := io.ReadAll(content)
		content.Close()
		if must(t, err); string(got) != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if f.published(result.Record, "stdout.txt") != "" {
		t.Error("the job's stdout.txt is its output")
	}
}
