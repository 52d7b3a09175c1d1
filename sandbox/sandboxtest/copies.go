//go:build linux

package sandboxtest

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"secbox/sandbox"
)

var copyCases = []testCase{
	{name: "CopyThereAndBack", run: copyThereAndBack},
}

// copyThereAndBack: l38, l39 and l303–323. A tree with links is walked and copied to this side, and
// back to the sandbox without links.
func copyThereAndBack(b *bench) {
	source, isSource := b.s.(sandbox.Source)
	target, isTarget := b.s.(sandbox.Target)
	if !isSource || !isTarget {
		return // a Sandbox that is no Streamer
	}
	for _, dir := range []string{"from", "from/bin", "from/a", "from/a/b", "beside"} {
		b.plantDir(dir)
	}
	for name, content := range map[string]string{
		"from/SKILL.md": "text", "from/bin/run": "#!/bin/sh\n", "from/a/b/c": "",
		"beside/y": "yy",
	} {
		b.plant(name, content)
	}
	b.must(os.Chmod(filepath.Join(b.host, "from/bin/run"), 0o755))
	b.plantLink("../beside", "from/link")
	var seen []string
	b.must(sandbox.WalkDir(b.ctx, b.s, b.at("from"), b.user, sandbox.DefaultWalkBounds, func(rel string, _ sandbox.DirEntry) error {
		seen = append(seen, rel)
		return nil
	}))
	if want := []string{"SKILL.md", "a/b/c", "bin/run", "link"}; !slices.Equal(seen, want) {
		b.Errorf("the walk saw %q, want %q", seen, want)
	}
	here, err := os.OpenRoot(b.TempDir())
	b.must(err)
	defer here.Close()
	bounds := sandbox.CopyBounds{WalkBounds: sandbox.WalkBounds{Entries: 100, Depth: 8, Time: time.Minute}, Bytes: 1 << 20}
	whole := sandbox.Copied{Files: 4, Bytes: 16}
	if done, err := sandbox.CopyFrom(b.ctx, source, b.at("from"), b.user, here, bounds, nil); err != nil || done != whole {
		b.Fatalf("%+v %v", done, err)
	}
	if fi, err := here.Stat("bin/run"); err != nil || fi.Mode() != 0o755 {
		b.Errorf("%v %v, not executable", fi, err)
	}
	executable := map[string]bool{"bin/run": true}
	if done, err := sandbox.CopyTo(b.ctx, here.FS(), target, b.at("back"), b.user, "SKILL.md", executable); err != nil || done != whole {
		b.Fatalf("%+v %v", done, err)
	}
	for name, content := range map[string]string{"SKILL.md": "text", "bin/run": "#!/bin/sh\n", "a/b/c": "", "link/y": "yy"} {
		at := filepath.Join(b.host, "back", name)
		got, err := os.ReadFile(at)
		fi, statErr := os.Lstat(at)
		if err != nil || statErr != nil || string(got) != content || !fi.Mode().IsRegular() ||
			(fi.Mode()&0o100 != 0) != (name == "bin/run") {
			b.Errorf("%s: %q %v %v %v", name, got, err, fi, statErr)
		}
	}
}
