package engine_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/engine"
	"secbox/engine/enginetest"
	"secbox/fault"
)

// TestImageWithoutInit runs a job in an image without sandbox-init, which comes from a read-only
// volume.
func TestImageWithoutInit(t *testing.T) {
	t.Parallel()
	tag, prefix := "secbox-test-bare:"+uuid.NewString(), "secbox-test-"+uuid.NewString()[:8]
	var bare engine.Image
	t.Cleanup(func() { // after the engine's own, which waits until no container uses the volume
		enginetest.Docker(t, "rmi", "-f", tag)
		enginetest.Docker(t, "volume", "rm", "-f", bare.InitVolume)
	})
	f := enginetest.New(t, func(_ *testing.T, cfg engine.Config) engine.Engine { return engine.NewCold(cfg) })
	build := exec.Command("docker", "build", "-q", "--network=none", "-t", tag, "-")
	build.Stdin = strings.NewReader("FROM " + enginetest.Image + "\nUSER 0:0\nRUN rm -r /opt/secbox\nLABEL " + engine.LabelInit + "=\n")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	images := engine.NewImages(f.CLI, enginetest.Image, prefix, time.Now)
	var err error
	bare, err = images.Resolve(t.Context(), tag)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(bare.InitVolume, prefix+"-") {
		t.Fatalf("volume %q", bare.InitVolume)
	}
	spec := f.Spec()
	spec.ImageRef, spec.ImageID, spec.InitVolume = bare.Ref, bare.ID, bare.InitVolume
	ran := f.RunSpec(t.Context(), spec, enginetest.Shell("echo bare; touch /opt/secbox/x 2>&1 | grep -o Read-only; exit 3"))
	if ran.Err != nil || ran.Code != 3 || ran.Stdout != "bare\nRead-only\n" {
		t.Fatalf("%+v", ran)
	}
	again, err := engine.NewImages(f.CLI, enginetest.Image, prefix, time.Now).Resolve(t.Context(), tag)
	if err != nil || again != bare {
		t.Fatalf("a second node got %+v, %v", again, err)
	}

	// An empty volume of that name, as `docker run` makes it when it is missing, is filled by the
	// next lookup.
	images = engine.NewImages(f.CLI, enginetest.Image, prefix, time.Now)
	eventually(t, "the end of the container", func() bool { return exec.Command("docker", "volume", "rm", bare.InitVolume).Run() == nil })
	enginetest.Docker(t, "volume", "create", bare.InitVolume)
	if _, err := images.Resolve(t.Context(), tag); err != nil {
		t.Fatal(err)
	}
	if ran := f.RunSpec(t.Context(), spec, enginetest.Shell("exit 4")); ran.Err != nil || ran.Code != 4 {
		t.Fatalf("%+v", ran)
	}
}

// TestRemoveOldVolumes: not while a container uses them, nor on the first day after the image was
// replaced.
func TestRemoveOldVolumes(t *testing.T) {
	t.Parallel()
	cli := enginetest.CLI(t)
	prefix := "secbox-test-" + uuid.NewString()[:8]
	build := enginetest.Docker(t, "image", "inspect", "--format", `{{index .Config.Labels "`+engine.LabelInit+`"}}`, enginetest.Image)
	old, used, unlabelled := prefix+"-000000000000", prefix+"-111111111111", prefix+"-222222222222"
	current, neighbor := prefix+"-"+build[:12], prefix+"-x-000000000000"
	for _, name := range []string{old, used, current, neighbor} {
		enginetest.Docker(t, "volume", "create", "--label", engine.LabelInit+"="+build, name)
	}
	enginetest.Docker(t, "volume", "create", unlabelled)
	user := enginetest.Docker(t, "create", "--network=none", "--mount", "type=volume,source="+used+",target=/mnt", enginetest.Image, "true")
	t.Cleanup(func() {
		enginetest.Docker(t, "rm", user)
		enginetest.Docker(t, "volume", "rm", "-f", old, used, current, neighbor, unlabelled)
	})
	left := func(after time.Duration) []string {
		t.Helper()
		images := engine.NewImages(cli, enginetest.Image, prefix, func() time.Time { return time.Now().Add(after) })
		if err := images.RemoveOldVolumes(t.Context()); err != nil {
			t.Fatal(err)
		}
		names := strings.Fields(enginetest.Docker(t, "volume", "ls", "-q", "--filter", "name="+prefix))
		slices.Sort(names)
		return names
	}
	if names := left(-24 * time.Hour); len(names) != 5 {
		t.Errorf("in the first day, these were left: %v", names)
	}
	want := []string{used, unlabelled, current, neighbor}
	slices.Sort(want)
	if names := left(24 * time.Hour); !slices.Equal(names, want) {
		t.Errorf("left: %v, want %v", names, want)
	}
}

// TestOldVolumesOfLoadedImage: docker knows no time for an image that was loaded from a file. Its
// first day begins when it is seen.
func TestOldVolumesOfLoadedImage(t *testing.T) {
	t.Parallel()
	cli, id := enginetest.CLI(t), uuid.NewString()
	tag, old, file := "secbox-test-loaded:"+id, "secbox-test-"+id[:8]+"-000000000000", filepath.Join(t.TempDir(), "image.tar")
	var root bytes.Buffer
	content := tar.NewWriter(&root)
	if err := errors.Join(content.WriteHeader(&tar.Header{Name: id, Mode: 0o600}), content.Close()); err != nil {
		t.Fatal(err)
	}
	load := exec.Command("docker", "import", "--change", "LABEL "+engine.LabelInit+"="+strings.Repeat("ab", 32), "-", tag)
	load.Stdin = &root
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		enginetest.Docker(t, "rmi", tag)
		enginetest.Docker(t, "volume", "rm", "-f", old)
	})
	enginetest.Docker(t, "save", "-o", file, tag)
	enginetest.Docker(t, "rmi", tag)
	enginetest.Docker(t, "load", "-i", file)
	enginetest.Docker(t, "volume", "create", "--label", engine.LabelInit+"=x", old)
	now := time.Now()
	images := engine.NewImages(cli, tag, strings.TrimSuffix(old, "-000000000000"), func() time.Time { return now })
	for _, c := range []struct {
		after time.Duration
		left  string
	}{{0, old}, {23 * time.Hour, old}, {time.Hour, ""}} {
		now = now.Add(c.after)
		if err := images.RemoveOldVolumes(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := enginetest.Docker(t, "volume", "ls", "-q", "--filter", "name="+old); left != c.left {
			t.Errorf("after %s more: %q is left, want %q", c.after, left, c.left)
		}
	}
}

func TestImagesAreCachedForSeconds(t *testing.T) {
	t.Parallel()
	cli := enginetest.CLI(t)
	now := time.Now()
	tag := "secbox-test-moving:" + uuid.NewString()
	enginetest.Docker(t, "tag", enginetest.Image, tag)
	t.Cleanup(func() { _ = exec.Command("docker", "rmi", tag).Run() })
	images := engine.NewImages(cli, enginetest.Image, "secbox-test-init", func() time.Time { return now })
	first, err := images.Resolve(t.Context(), tag)
	if err != nil {
		t.Fatal(err)
	}
	enginetest.Docker(t, "rmi", tag)
	if again, err := images.Resolve(t.Context(), tag); err != nil || again != first {
		t.Fatalf("within the moment: %+v %v", again, err)
	}
	now = now.Add(time.Minute)
	if _, err := images.Resolve(t.Context(), tag); !fault.Is(err, fault.ImageMissing) || fault.From(err).Fields[0].Field != "image" {
		t.Fatalf("after it: %v", err)
	}
}

func TestSweepRemovesOwnContainersOnly(t *testing.T) {
	t.Parallel()
	mine, other := uuid.NewString(), uuid.NewString()
	start := func(node string) string {
		return enginetest.Docker(t, "run", "-d", "-i", "--network=none", "--label", engine.LabelNode+"="+node, enginetest.Image)
	}
	start(mine)
	start(mine)
	stays := start(other)
	t.Cleanup(func() { enginetest.Docker(t, "rm", "-f", stays) })
	cold := engine.NewCold(engine.Config{Driver: engine.NewDocker(enginetest.CLI(t), engine.Options{}), Identity: engine.Identity{Node: mine}})
	if n, err := cold.Sweep(t.Context()); n != 2 || err != nil {
		t.Fatalf("removed %d, %v", n, err)
	}
	if n, err := cold.Sweep(t.Context()); n != 0 || err != nil {
		t.Fatalf("again: %d, %v", n, err)
	}
	if enginetest.Docker(t, "inspect", "-f", "{{.State.Running}}", stays) != "true" {
		t.Fatal("another node's container was removed")
	}
}
