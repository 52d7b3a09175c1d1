package e2e

import (
	"archive/zip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestArchiveIsNotHeldInMemory uploads and downloads a large archive; the process grows by less
// than half of it.
func TestArchiveIsNotHeldInMemory(t *testing.T) {
	t.Parallel()
	size := int64(scaled(64, 200)) << 20 // bytes
	most := int(size / 2 >> 10)          // KiB
	dir := t.TempDir()
	archive := filepath.Join(dir, "large.zip")
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(f)
	for name, content := range map[string]io.Reader{"large/SKILL.md": strings.NewReader("# Large\n"), "large/model.bin": io.LimitReader(zeros{}, size)} {
		entry, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err == nil {
			_, err = io.Copy(entry, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f.Close()

	p := serveAs(t, releasedBinary(t), dir, "CORE_API_POOL_MAX=0")
	p.upload("u/ag", "", "small.zip", weatherSkill(t)).done(t)
	before := p.peak()
	curl := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "curl", append([]string{"-sS"}, args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if got := curl("-F", "file=@"+archive, p.url+"/v1/skills/u/ag/upload?scope=overlay"); !strings.Contains(got, "skill 'large'") {
		t.Fatal(got)
	}
	if grown := p.peak() - before; grown > most {
		t.Errorf("the upload of %d MiB took %d MiB of memory", size>>20, grown>>10)
	}
	back := filepath.Join(dir, "back.zip")
	curl("-o", back, p.url+"/v1/skills/u/ag/large/download")
	r, err := zip.OpenReader(back)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if grown := p.peak() - before; grown > most {
		t.Errorf("with the download it took %d MiB of memory", grown>>10)
	}
}

// peak is the most memory that the process has had, in KiB.
func (p *process) peak() int {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		p.t.Fatal(err)
	}
	return kib
}
