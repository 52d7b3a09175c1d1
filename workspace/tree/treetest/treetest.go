//go:build unix

// Package treetest makes hostile directory trees for tests and checks the results.
package treetest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Must fails the test on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Write writes a file and makes the directories above it.
func Write(t testing.TB, path, content string) {
	t.Helper()
	Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	Must(t, os.WriteFile(path, []byte(content), 0o644))
}

// Read reads a file.
func Read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	Must(t, err)
	return string(data)
}

// Gone checks that nothing has this path.
func Gone(t testing.TB, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", path, err)
	}
}

// Deadline returns a context that ends after two minutes.
func Deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// EndsAfter is a context that ends after it was asked Looks times: a time budget without a clock.
type EndsAfter struct {
	context.Context
	Looks int
}

// Err implements context.Context.
func (c *EndsAfter) Err() error {
	if c.Looks--; c.Looks < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// InMemory returns a temporary directory for trees of 100,000 entries, on a tmpfs where there is
// one: after so many are removed from an ext4, making a file takes a thousand times as long for
// half a minute.
func InMemory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "tree")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { Must(t, os.RemoveAll(dir)) })
	return dir
}

// Sparse makes a file of this size that takes no blocks.
func Sparse(t testing.TB, path string, size int64) {
	t.Helper()
	Write(t, path, "")
	Must(t, os.Truncate(path, size))
}

// Nest makes n directories inside each other, with a file in the last one. It goes by handles,
// since paths do not reach that deep.
func Nest(t testing.TB, dir string, n int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	Must(t, err)
	for range n {
		Must(t, unix.Mkdirat(fd, "d", 0o755))
		next, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		Must(t, err)
		unix.Close(fd)
		fd = next
	}
	file, err := unix.Openat(fd, "file", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	Must(t, err)
	unix.Close(file)
	unix.Close(fd)
}

// Fill makes n empty files.
func Fill(t testing.TB, dir string, n int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	Must(t, err)
	defer unix.Close(fd)
	for i := range n {
		file, err := unix.Openat(fd, fmt.Sprintf("f%06d", i), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		Must(t, err)
		unix.Close(file)
	}
}

// Count counts everything below dir and follows nothing.
func Count(t testing.TB, dir string) (n int) {
	t.Helper()
	Must(t, filepath.WalkDir(dir, func(string, fs.DirEntry, error) error {
		n++
		return nil
	}))
	return n - 1
}
