package archive

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/fault"
)

// weather is what testdata/made/README.md says of the folder with Chinese names.
var weather = map[string]string{
	"SKILL.md":      "---\nname: 天气查询技能\ndescription: 提供全球实时天气查询服务\n---\n# 天气\n",
	"乗法表.txt":       "1\n",
	"模/":            "-rwxr-xr-x",
	"模/说明.txt":      "2\n",
	"模/a.py" + star: "#!/usr/bin/env python3\n",
}

var hello = map[string]string{"SKILL.md": "# Demo\n", "run.sh" + star: "echo hi\n", "hard.sh" + star: "echo hi\n"}

func read(t testing.TB, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "made", file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestArchivesOfOtherPrograms(t *testing.T) {
	t.Parallel()
	for file, c := range map[string]struct {
		id   string
		want map[string]string
	}{
		"gbk-infozip.zip":        {"天气查询", weather},
		"gbk-bsdtar.zip":         {"天气查询", weather},
		"utf8-7zip.zip":          {"天气查询", weather},
		"utf8-infozip.zip":       {"天气查询", weather},
		"zip64-infozip.zip":      {"demo", hello},
		"streamed-infozip.zip":   {"uploaded", hello},
		"streamed-python.zip":    {"demo", map[string]string{"SKILL.md": "# x\n", "a.txt": strings.Repeat("x", 1000)}},
		"descriptor-infozip.zip": {"uploaded", map[string]string{"SKILL.md": "# Demo\n"}},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			skill, tree, err := unpack(t, read(t, file), "uploaded.zip", DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(tree, c.want) {
				t.Errorf("got %q", tree)
			}
			files, bytes := 0, int64(0)
			for name, content := range c.want {
				if name[len(name)-1] != '/' {
					files++
					bytes += int64(len(content))
				}
			}
			if (skill != Skill{ID: c.id, Files: files, Bytes: bytes}) {
				t.Errorf("got %+v", skill)
			}
		})
	}
}

func TestRefusedArchivesOfOtherPrograms(t *testing.T) {
	t.Parallel()
	for file, says := range map[string]string{
		"link-infozip.zip":      `"demo/link" is a link`,
		"link-bsdtar.zip":       `"demo/link" is a link`,
		"link-7zip.zip":         `"demo/link" is a link`,
		"fifo-infozip.zip":      `"demo/fifo" is a FIFO`,
		"encrypted-infozip.zip": "is encrypted: pack the archive again, without a password",
		"aes-7zip.zip":          "is encrypted: pack the archive again, without a password",
		"bzip2-7zip.zip":        `"demo/a.txt" is packed with bzip2`,
		"lzma-7zip.zip":         `"demo/a.txt" is packed with LZMA`,
		"ppmd-7zip.zip":         `"demo/a.txt" is packed with PPMd`,
		"deflate64-7zip.zip":    `"demo/a.txt" is packed with Deflate64`,
		"split-infozip.zip":     "ZIP archive",
		"streamed-bsdtar.zip":   "other data after its end",
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			_, tree, err := unpack(t, read(t, file), "uploaded.zip", DefaultLimits())
			wantFault(t, err, fault.InvalidArchive, says)
			if len(tree) != 0 {
				t.Errorf("left behind: %s", paths(tree))
			}
		})
	}
}
