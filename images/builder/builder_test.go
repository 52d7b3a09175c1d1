//go:build unix

package builder_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"secbox/audit/admin"
	"secbox/engine"
	"secbox/engine/dockercli/dockerclitest"
	"secbox/fault"
	"secbox/images/builder"
	"secbox/images/catalog"
	"secbox/store/sqlite"
	"secbox/store/storetest/sqlitetest"
)

// docker is an engine of files: tags has "ref id" lines, untagged the id of the last build. What it
// says for a command is in a file of the command's name, and it fails then.
const docker = `
cd %s
for last; do :; done
id() { case $1 in sha256:*) echo "$1";; *) grep -F "$1 " tags | tail -n 1 | cut -d' ' -f2;; esac; }
fail() { [ ! -e "$1" ] || { cat "$1" >&2; exit 1; }; }
case "$1 $2" in
"build "*) cat >/dev/null; fail build; cp next untagged ;;
"image inspect")
	found=$(id "$last")
	[ -n "$found" ] || { echo "Error response from daemon: No such image: $last" >&2; exit 1; }
	echo "{\"ID\":\"$found\",\"Labels\":{\"secbox.sandbox-init\":\"$(cat init)\"},\"User\":\"$(cat user)\",\"Size\":7,\"Volumes\":$(cat volumes)}" ;;
"image ls") cat untagged ;;
"image tag") grep -v "^$4 " tags >rest; echo "$4 $(id "$3")" >>rest; mv rest tags ;;
"image rm") fail rm; grep -v "^$3 " tags >rest; mv rest tags ;;
"image prune") : >untagged ;;
"image save") fail save; echo saved ;;
"image load") cat >loaded; fail load; cat next-tag >>tags ;;
"image pull") fail pull; echo "$last $(cat next)" >>tags ;;
"create "*) echo container ;;
"cp "*) fail cp; cat init.tar ;;
esac`

type bench struct {
	t     *testing.T
	dir   string // of the engine
	state string
	db    *sqlite.DB
	probe func() error
	told  func(step string)
	file  string // that is imported
	*builder.Builder
	ctx context.Context
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{
		t: t, dir: t.TempDir(), state: filepath.Join(t.TempDir(), "images"), probe: func() error { return nil },
		told: func(string) {},
		ctx:  admin.By(t.Context(), admin.Actor{Type: admin.ByCommand, ID: admin.CommandID}),
	}
	db, err := sqlite.Open(t.Context(), sqlitetest.Migrated(t, filepath.Join(t.TempDir(), "test.db")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	b.db = db
	sum := sha256.Sum256([]byte("init"))
	b.put("init", hex.EncodeToString(sum[:]))
	b.put("init.tar", tarOf(t, "sandbox-init", "init"))
	b.put("user", "1000:1000")
	b.put("volumes", "null")
	b.put("tags", "own:1 "+idOf(0)+"\n")
	b.put("untagged", "")
	b.put("next", idOf(1))
	var ids atomic.Int64
	b.Builder, err = builder.New(builder.Config{
		CLI: dockerclitest.Script(t, fmt.Sprintf(docker, b.dir)), Store: db.OwnImages(), Dir: b.state, Own: "own:1", Others: []string{"taken"},
		Probe: func(context.Context, string, string, engine.Image, []string) (string, error) {
			return `[{"kind":"deb","name":"jq","version":"1.6"}]`, b.probe()
		},
		CleanUp: func(context.Context, string) error { return nil },
		NewID:   func() string { return fmt.Sprint("build-", ids.Add(1)) }, Now: time.Now, Tell: func(step string, _ ...any) { b.told(step) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func idOf(n int) string { return fmt.Sprintf("sha256:%064x", n) }

func tarOf(t *testing.T, pairs ...string) string {
	t.Helper()
	var entries []tar.Header
	var contents []string
	for i := 0; i < len(pairs); i += 2 {
		entries, contents = append(entries, tar.Header{Name: pairs[i]}), append(contents, pairs[i+1])
	}
	return tarWith(t, entries, contents...)
}

// tarWith is an archive with entries; regular files have contents.
func tarWith(t *testing.T, entries []tar.Header, contents ...string) string {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i, h := range entries {
		content := contents[i]
		if h.Typeflag != 0 {
			content = ""
		} else {
			h.Typeflag = tar.TypeReg
		}
		h.Size, h.Mode = int64(len(content)), 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func (b *bench) put(name, content string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(content), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) read(name string) string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(data)
}

func (b *bench) build() (catalog.Image, error) {
	return b.Build(b.ctx, "data", builder.Source{Text: "apt: [jq]\n", Dir: b.dir, Network: "none"})
}

// nothingLeft compares what is on the engine, in the table and among the journals.
func (b *bench) nothingLeft(what string, images ...string) {
	b.t.Helper()
	want := "own:1 " + idOf(0) + "\n"
	for _, i := range images {
		want += i + "\n"
	}
	journals, err := os.ReadDir(b.state)
	if tags := b.read("tags"); err != nil || len(journals) != 0 || tags != want || b.read("untagged") != "" {
		b.t.Errorf("%s: left are journals %v, and the images %q, want %q", what, journals, tags, want)
	}
	if rows, err := b.db.OwnImages().List(b.t.Context()); err != nil || len(rows) != len(images) {
		b.t.Errorf("%s: rows %v, %v", what, rows, err)
	}
}

// TestBuildAllowsAnImage: an image is in the table and on the engine under its digest; a second
// build takes its place, and a removal ends both.
func TestBuildAllowsAnImage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	image, err := b.build()
	if err != nil || image.Ref != "secbox-image-data:000000000000" || image.Packages != 1 || !strings.Contains(string(image.BOM), "pkg:deb/debian/jq@1.6") {
		t.Fatalf("%+v, %v", image, err)
	}
	b.nothingLeft("after a build", image.Ref+" "+idOf(1))
	next := "sha256:" + strings.Repeat("2", 64)
	b.put("next", next)
	second, err := b.Rebuild(b.ctx, "data", "", "none")
	if err != nil || second.ImageID != next || second.Recipe != image.Recipe {
		t.Fatalf("%+v, %v", second, err)
	}
	b.nothingLeft("after another", second.Ref+" "+next)

	file := filepath.Join(t.TempDir(), "data.tar")
	if err := b.Export(b.ctx, "data", file); err != nil {
		t.Error(err)
	}
	if err := b.Export(b.ctx, "data", file); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("over a file: %v", err)
	}

	b.put("rm", `Error response from daemon: conflict: unable to remove repository reference "x" (must force) - container 74c is using its referenced image`)
	if inUse, err := b.Remove(b.ctx, "data"); err != nil || !inUse {
		t.Errorf("a removal while a container uses it: %v, %v", inUse, err)
	}
	if err := os.Remove(filepath.Join(b.dir, "rm")); err != nil {
		t.Fatal(err)
	}
	b.Sweep(b.ctx)
	b.nothingLeft("after the removal")
	if _, err := b.Remove(b.ctx, "data"); !fault.Is(err, fault.UnknownImage) {
		t.Errorf("a second removal: %v", err)
	}
	b.nothingLeft("after a second removal")
}

// TestFailuresLeaveNothing: each has a clear error, and leaves no row, image or journal.
func TestFailuresLeaveNothing(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		file, content string // of the engine
		probe         error
		code          fault.Code
		says          string
	}{
		"missing package": {
			"build", "\x1b[91mE: Unable to locate package nosuch\nsecbox-step-failed: apt\nThe command '/bin/sh -c x' returned a non-zero code: 100\n", nil,
			fault.BuildFailed, `the step "apt" of the file failed: E: Unable to locate package nosuch.`,
		},
		"silent line":         {"build", "Step 4/5 : RUN x\n ---> Running in 1\nsecbox-step-failed: run, line 1\n", nil, fault.BuildFailed, "it printed nothing"},
		"full disk":           {"build", "failed to register layer: no space left on device\n", nil, fault.DiskFull, "the engine's disk is full"},
		"full disk in a step": {"build", "E: Write error - write (28: No space left on device)\nsecbox-step-failed: apt\n", nil, fault.DiskFull, "the engine's disk is full"},
		"root":                {"user", "", nil, fault.ImageUnfit, "runs as root"},
		"a volume":            {"volumes", `{"/var/lib/data":{}}`, nil, fault.ImageUnfit, `has the volume "/var/lib/data"`},
		"root by name":        {"user", "root:1000", nil, fault.ImageUnfit, "runs as root"},
		"no sandbox-init":     {"cp", "Error response from daemon: Could not find the file /opt/secbox/sandbox-init in container x\n", nil, fault.ImageUnfit, "has no sandbox-init"},
		"another":             {"init.tar", tarOf(t, "sandbox-init", "evil"), nil, fault.ImageUnfit, "not this installation's"},
		"a probe":             {"next", idOf(1), fault.New(fault.ImageUnfit, "the image fails"), fault.ImageUnfit, "the image fails"},
	} {
		b := newBench(t)
		b.put(c.file, c.content)
		b.probe = func() error { return c.probe }
		_, err := b.build()
		if !fault.Is(err, c.code) || !strings.Contains(fault.From(err).Message, c.says) {
			t.Errorf("%s: %v, want %q", what, err, c.says)
		}
		b.nothingLeft(what)
	}
}

// TestTwoAtOnce: a second command of a name is refused at once, and one on another node that was
// faster wins.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := "sha256:" + strings.Repeat("3", 64)
	b.probe = func() error {
		if _, err := b.build(); !fault.Is(err, fault.ImageConflict) {
			t.Errorf("a second build on this node: %v", err)
		}
		_, err := b.db.OwnImages().Put(b.ctx, catalog.Image{
			Name: "data", Ref: catalog.Ref("data", other), ImageID: other, Source: catalog.Built, BOM: []byte("{}"),
		}, "")
		return err
	}
	if _, err := b.build(); !fault.Is(err, fault.ImageConflict) {
		t.Errorf("another node was faster: %v", err)
	}
	if rows, err := b.db.OwnImages().List(t.Context()); err != nil || len(rows) != 1 || rows[0].ImageID != other {
		t.Errorf("the table has %+v, %v", rows, err)
	}
	if strings.Contains(b.read("tags"), "secbox-image") {
		t.Errorf("the engine has %s", b.read("tags"))
	}
	for _, name := range []string{"taken", "../x", "A", ""} {
		if _, err := b.Build(b.ctx, name, builder.Source{Text: "apt: [jq]", Dir: b.dir}); err == nil {
			t.Errorf("the name %q", name)
		}
	}
}

// TestKilledCommandIsCleanedUp: the next command removes what the journal names and the table does
// not have.
func TestKilledCommandIsCleanedUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put("tags", "own:1 "+idOf(0)+"\nsecbox-image-data:1 "+idOf(1)+"\n")
	b.put("untagged", idOf(5))
	for name, content := range map[string]string{
		"data": `{"build":"b","refs":["secbox-image-data:1","secbox-image-data:gone"]}`, "cut": `{"build":"b","re`, "empty": "",
	} {
		if err := os.WriteFile(filepath.Join(b.state, name+".json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.Sweep(b.ctx)
	b.nothingLeft("after the next command")
}

// TestImport: a file brings its own tag only, and its image is checked like any other.
func TestImport(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	load := func(entries ...string) (catalog.Image, error) {
		b.file = filepath.Join(t.TempDir(), "x.tar")
		if err := os.WriteFile(b.file, []byte(tarOf(t, entries...)), 0o600); err != nil {
			t.Fatal(err)
		}
		return b.Import(b.ctx, b.file)
	}
	const good = `[{"RepoTags":["secbox-image-data:v1"]}]`
	for what, entries := range map[string][]string{
		"nothing":            {"a", "b"},
		"another tag":        {"manifest.json", `[{"RepoTags":["secbox-sandbox:latest"]}]`},
		"two tags":           {"manifest.json", `[{"RepoTags":["secbox-image-data:v1","secbox-sandbox:latest"]}]`},
		"two images":         {"manifest.json", `[{"RepoTags":["secbox-image-data:v1"]},{"RepoTags":["secbox-sandbox:latest"]}]`},
		"another annotation": {"manifest.json", good, "index.json", `{"manifests":[{"annotations":{"io.containerd.image.name":"docker.io/library/secbox-sandbox:latest"}}]}`},
		"another repository": {"manifest.json", good, "repositories", `{"secbox-sandbox":{"latest":"x"}}`},
		"a second manifest":  {"manifest.json", good, "./manifest.json", `[{"RepoTags":["secbox-sandbox:latest"]}]`},
	} {
		if _, err := load(entries...); !fault.Is(err, fault.InvalidArchive) {
			t.Errorf("%s: %v", what, err)
		}
		b.nothingLeft(what)
	}
	const evil = `[{"RepoTags":["secbox-sandbox:latest"]}]`
	for what, entries := range map[string][]tar.Header{
		"dots":                {{Name: "././manifest.json"}},
		"slashes":             {{Name: ".//manifest.json"}},
		"a directory above":   {{Name: "a/../manifest.json"}},
		"the root":            {{Name: "/manifest.json"}},
		"above the archive":   {{Name: "../x/manifest.json"}},
		"a link":              {{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "."}, {Name: "a/manifest.json"}},
		"a hard link":         {{Name: "a"}, {Name: "b", Typeflag: tar.TypeLink, Linkname: "a"}},
		"the manifest a link": {{Name: "a"}, {Name: "manifest.json", Typeflag: tar.TypeSymlink, Linkname: "a"}},
		"a layer elsewhere":   {{Name: strings.Repeat("a", 64) + "/layer.tar", Typeflag: tar.TypeSymlink, Linkname: "/etc/shadow"}},
		"a device":            {{Name: "a", Typeflag: tar.TypeChar}},
		"a directory":         {{Name: "manifest.json", Typeflag: tar.TypeDir}},
	} {
		file := filepath.Join(t.TempDir(), "x.tar")
		entries = append([]tar.Header{{Name: "manifest.json"}}, entries...)
		contents := append([]string{good}, slices.Repeat([]string{evil}, len(entries))...)
		if err := os.WriteFile(file, []byte(tarWith(t, entries, contents...)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Import(b.ctx, file); !fault.Is(err, fault.InvalidArchive) {
			t.Errorf("%s: %v", what, err)
		}
		b.nothingLeft(what)
	}
	id := "sha256:" + strings.Repeat("4", 64)
	b.put("next-tag", "secbox-image-data:v1 "+id+"\n")
	b.put("user", "0")
	if _, err := load("manifest.json", good); !fault.Is(err, fault.ImageUnfit) {
		t.Errorf("as root: %v", err)
	}
	b.nothingLeft("as root")
	b.put("user", "1000")
	layer := strings.Repeat("a", 64) + "/layer.tar"
	image, err := load("manifest.json", good, "./"+layer, "layer")
	if err != nil || image.ImageID != id || image.Source != catalog.Imported {
		t.Fatalf("%+v, %v", image, err)
	}
	if got, want := b.read("loaded"), tarOf(t, "manifest.json", good, layer, "layer"); got != want {
		t.Errorf("docker got another archive, of %d bytes", len(got))
	}
	b.nothingLeft("after the import", image.Ref+" "+id)
	b.told = func(step string) {
		if strings.HasPrefix(step, "loading") {
			other := strings.Replace(good, "image-data", "image-else", 1)
			if err := os.WriteFile(b.file, []byte(tarOf(t, "manifest.json", other)), 0o600); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := load("manifest.json", good); !fault.Is(err, fault.InvalidArchive) || strings.Contains(b.read("loaded"), "else") {
		t.Errorf("a file that was changed: %v", err)
	}
	b.told = func(string) {}
	if again, err := load("manifest.json", good); err != nil || !again.UpdatedAt.Equal(image.UpdatedAt) {
		t.Errorf("again: %+v, %v", again, err)
	}
	if _, err := b.Rebuild(b.ctx, "data", "", "none"); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("a rebuild: %v", err)
	}
}

// TestPull: an image of a registry comes by its digest only.
func TestPull(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := "registry.example.com/jobs@sha256:" + strings.Repeat("7", 64)
	for _, bad := range []string{"registry.example.com/jobs:latest", "-x@sha256:" + strings.Repeat("7", 64), ""} {
		if _, err := b.Pull(b.ctx, bad, "data"); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	b.put("pull", "Error response from daemon: pull access denied for jobs\n")
	if _, err := b.Pull(b.ctx, ref, "data"); !fault.Is(err, fault.BuildFailed) || !strings.Contains(fault.From(err).Message, "pull access denied") {
		t.Errorf("without credentials: %v", err)
	}
	b.nothingLeft("without credentials")
	if err := os.Remove(filepath.Join(b.dir, "pull")); err != nil {
		t.Fatal(err)
	}
	image, err := b.Pull(b.ctx, ref, "data")
	if err != nil || image.Base != ref || image.Source != catalog.Pulled {
		t.Fatalf("%+v, %v", image, err)
	}
	b.nothingLeft("after the pull", image.Ref+" "+idOf(1))
}
