package engine_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/engine"
	"secbox/engine/dockercli/dockerclitest"
	"secbox/engine/enginetest"
	"secbox/fault"
)

// TestVolumesOfAnImage: the paths of an image's VOLUMEs, and refusals of paths that no directory
// can close.
func TestVolumesOfAnImage(t *testing.T) {
	t.Parallel()
	resolve := func(volumes ...string) (string, error) {
		t.Helper()
		for i, at := range volumes {
			volumes[i] = fmt.Sprintf("%q: {}", at)
		}
		cli := dockerclitest.Script(t, `echo '{"ID":"sha256:a","Labels":{"`+engine.LabelInit+`":"0"},"Volumes":{`+strings.Join(volumes, ",")+`}}'`)
		image, err := engine.NewImages(cli, "own", "prefix", time.Now).Resolve(t.Context(), "image")
		return image.Volumes, err
	}
	for want, volumes := range map[string][]string{
		"": nil, "/data,/var/lib/db": {"/var/lib/db", "/data/"}, "/a": {"/a", "/a/"}, "/workspace2": {"/workspace2"}, "/tmp/x": {"/tmp/x"},
	} {
		if got, err := resolve(volumes...); err != nil || got != want {
			t.Errorf("%q: %q %v", want, got, err)
		}
	}
	for _, bad := range []string{
		"/", "", "data", "/a/../b", "/a//b", "/a,readonly", "/a b", "/a:b", `/a"b`, "/ä", "/workspace", "/workspace/work/x", "/opt", "/opt/secbox", "/proc",
		"/dev/shm", "/..", "${X}",
	} {
		if got, err := resolve(bad); !fault.Is(err, fault.ImageUnfit) {
			t.Errorf("%q: %q %v", bad, got, err)
		}
	}
	var many []string
	for i := range 65 {
		many = append(many, fmt.Sprintf("/v%d", i))
	}
	if _, err := resolve(many...); !fault.Is(err, fault.ImageUnfit) {
		t.Error(err)
	}
}

// TestVolumesAreClosed: at each VOLUME without a mount is an empty directory that cannot be
// written.
func TestVolumesAreClosed(t *testing.T) {
	t.Parallel()
	tag := "secbox-test-volume:" + uuid.NewString()
	t.Cleanup(func() { enginetest.Docker(t, "rmi", "-f", tag) })
	f := enginetest.New(t, func(_ *testing.T, cfg engine.Config) engine.Engine { return engine.NewCold(cfg) })
	build := exec.Command("docker", "build", "-q", "--network=none", "-t", tag, "-")
	build.Stdin = strings.NewReader("FROM " + enginetest.Image + `
USER 0:0
RUN mkdir -p /data/sub && head -c 100000 /dev/zero > /data/big && chmod -R 777 /data
VOLUME ["/data", "/data/sub", "/new", "/tmp", "/tmp/x"]
USER 1000:1000
`)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	image, err := engine.NewImages(f.CLI, enginetest.Image, "secbox-test", time.Now).Resolve(t.Context(), tag)
	if err != nil || image.Volumes != "/data,/data/sub,/new,/tmp,/tmp/x" {
		t.Fatalf("%+v %v", image, err)
	}
	spec := f.Spec()
	spec.ImageRef, spec.ImageID, spec.Volumes = image.Ref, image.ID, image.Volumes
	ran := f.RunSpec(t.Context(), spec, enginetest.Shell(`for d in /data /data/sub /new /tmp/x; do touch $d/file 2>&1 | grep -o Read-only; ls $d; done; echo > /tmp/file`))
	if ran.Err != nil || ran.Code != 0 || strings.Join(strings.Fields(ran.Stdout), " ") != "Read-only sub Read-only Read-only Read-only" {
		t.Errorf("%+v", ran)
	}
	if args := engine.VolumeArgs("/data,/mnt,/tmp", engine.Mount{Source: "/s", Target: "/mnt"}); !slices.Equal(args, []string{
		"--mount", "type=tmpfs,target=/data,readonly,tmpfs-size=4k",
	}) {
		t.Errorf("%q", args)
	}
}
