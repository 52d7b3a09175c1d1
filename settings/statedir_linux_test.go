package settings

import (
	"strings"
	"testing"

	"secbox/fault"
)

// The magics as linux/magic.h has them, written down a second time on purpose.
func TestFileSystemsThatAreRefused(t *testing.T) {
	t.Parallel()
	for magic, want := range map[uint32]string{
		0x6969: "NFS", 0x517B: "SMB", 0xFF534D42: "CIFS", 0xFE534D42: "SMB", 0x01021997: "9p", 0x65735546: "FUSE", 0x00C36400: "Ceph",
		0x5346414F: "AFS", 0x6B414653: "AFS", 0x73757245: "Coda", 0x564C: "NCP", 0x7461636F: "OCFS2", 0x01161970: "GFS2", 0x0BD00BD0: "Lustre",
		// local ones
		0xEF53: "", 0x58465342: "", 0x9123683E: "", 0x01021994: "", 0x794C7630: "", 0x2FC12FC1: "",
	} {
		got := magics[magic]
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%#x is %q, want %q", magic, got, want)
		}
	}
}

func TestRefusalHasRemedy(t *testing.T) {
	t.Parallel()
	err := refusal("/mnt/c/secbox", magics[0x01021997])
	if !fault.Is(err, fault.InvalidSettings) || !strings.Contains(err.Error(), "/mnt/c/secbox is on 9p") || !strings.Contains(err.Error(), "local disk") {
		t.Fatal(err)
	}
	if refusal("/srv", "") != nil {
		t.Fatal("a local disk was refused")
	}
}
