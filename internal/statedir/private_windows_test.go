package statedir_test

import (
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/windows"

	"secbox/internal/statedir"
)

// TestIsPrivate: other users lose their rights in a directory that becomes the state dir.
func TestIsPrivate(t *testing.T) {
	t.Parallel()
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		t.Fatal(err)
	}
	onlyUs := "D:P(A;OICI;FA;;;" + user.User.Sid.String() + ")"
	// The directory above is private because Wine's SetNamedSecurityInfo inherits from it although
	// it should not.
	parent := filepath.Join(t.TempDir(), "parent")
	mkdir(t, parent, onlyUs)
	path := filepath.Join(parent, "state")
	mkdir(t, path, onlyUs+"(A;OICI;FA;;;WD)")
	if found := rights(t, path); !strings.Contains(found, ";WD)") {
		t.Fatalf("before: %s", found)
	}
	for range 2 {
		dir, err := statedir.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if found := rights(t, path); strings.Contains(found, ";WD)") {
			t.Errorf("rights of the state dir: %s", found)
		}
		if err := dir.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNewFileIsPrivate: a new file is for this user only. Wine makes files that everyone may read.
func TestNewFileIsPrivate(t *testing.T) {
	t.Parallel()
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "dir")
	mkdir(t, dir, "D:P(A;OICI;FA;;;"+user.User.Sid.String()+")") // see above
	path := filepath.Join(dir, "key")
	if err := statedir.WriteNew(path, "secret\n"); err != nil {
		t.Fatal(err)
	}
	if found := rights(t, path); strings.Contains(found, ";WD)") {
		t.Errorf("rights of the file: %s", found)
	}
}

// mkdir makes a directory with rights in Windows' notation for them.
func mkdir(t *testing.T, path, rights string) {
	t.Helper()
	sd, err := windows.SecurityDescriptorFromString(rights)
	if err != nil {
		t.Fatal(err)
	}
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		t.Fatal(err)
	}
	sa := windows.SecurityAttributes{SecurityDescriptor: sd}
	sa.Length = uint32(unsafe.Sizeof(sa))
	if err := windows.CreateDirectory(name, &sa); err != nil {
		t.Fatal(err)
	}
}

func rights(t *testing.T, path string) string {
	t.Helper()
	sd, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.DACL_SECURITY_INFORMATION)
	if err != nil {
		t.Fatal(err)
	}
	return sd.String()
}
