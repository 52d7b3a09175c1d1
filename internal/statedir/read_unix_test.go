//go:build unix

package statedir_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"secbox/fault"
	"secbox/internal/statedir"
)

// TestReadSecret: what is no private, small, regular file is refused at once.
func TestReadSecret(t *testing.T) {
	t.Parallel()
	write := func(text string, mode os.FileMode) func(string) error {
		return func(path string) error {
			return errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode))
		}
	}
	for name, tc := range map[string]struct {
		make func(path string) error
		says string // empty: it is read
	}{
		"a file":               {write("secret\n", 0o600), ""},
		"a file for the group": {write("secret\n", 0o440), ""},
		"a link to a file": {func(path string) error {
			return errors.Join(write("secret\n", 0o600)(path+".file"), os.Symlink(path+".file", path))
		}, ""},
		"a file for all":                 {write("secret\n", 0o644), "make its mode 0600"},
		"a file that the group may edit": {write("secret\n", 0o660), "make its mode 0600"},
		"a large file":                   {write(strings.Repeat("secret\n", 1000), 0o600), "more than 4096 bytes"},
		"a pipe":                         {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "no regular file"},
		"a directory":                    {func(path string) error { return os.Mkdir(path, 0o700) }, "no regular file"},
		"a device":                       {func(path string) error { return os.Symlink("/dev/zero", path) }, "no regular file"},
		"a link to a pipe": {func(path string) error {
			return errors.Join(syscall.Mkfifo(path+".pipe", 0o600), os.Symlink(path+".pipe", path))
		}, "no regular file"},
		"a link to itself": {func(path string) error { return os.Symlink(path, path) }, "symbolic links"},
	} {
		path := filepath.Join(t.TempDir(), "key")
		if err := tc.make(path); err != nil {
			t.Fatal(err)
		}
		text, err := statedir.ReadSecret(path)
		if tc.says == "" && (string(text) != "secret\n" || err != nil) {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		if tc.says != "" && (err == nil || !strings.Contains(fault.Reason(err), tc.says) || errors.Is(err, fs.ErrNotExist)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := statedir.ReadSecret(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
