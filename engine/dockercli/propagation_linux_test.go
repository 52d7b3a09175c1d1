package dockercli_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"secbox/engine/dockercli"
	"secbox/fault"
)

// TestMountThatIsNotShared: an engine that does not get the mounts at a source says so when the
// container asks for later ones.
func TestMountThatIsNotShared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("%v; run this test as root", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	kind, code := kindOf(t, find(t), "run", "--rm", "--pull=never", "--network=none",
		"--mount", "type=bind,source="+dir+",target=/x,bind-propagation=rslave", "secbox-sandbox:latest")
	if kind != dockercli.BadMount || code != fault.Internal {
		t.Errorf("read as kind %d, code %s", kind, code)
	}
}
