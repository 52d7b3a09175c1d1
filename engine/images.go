package engine

import (
	"context"
	"regexp"
	"sync"
	"time"

	"secbox/dockercli"
	"secbox/fault"
)

// LabelInit is what an image bears that has sandbox-init at /opt/secbox: the digest of the binary.
const LabelInit = "secbox.sandbox-init"

// imageTTL is how long an answer about an image is believed. An exec runs the image id that was resolved, so a stale answer means the
// image as it was that long ago, never a mixture; asking each time would cost 30 ms of CLI.
const imageTTL = 10 * time.Second

// Image is an image as the engine holds it.
type Image struct {
	Ref string
	ID  string // sha256:…
	// InitVolume is the volume that brings sandbox-init; empty when the image has it.
	InitVolume string
}

// Images resolves image names to ids and remembers them for a moment. It is safe for concurrent use.
type Images struct {
	cli          *dockercli.CLI
	own          string // the reference of our own image: where sandbox-init comes from
	volumePrefix string // of the volumes that carry sandbox-init: one per build of it
	now          func() time.Time

	mu    sync.Mutex
	cache map[string]cachedImage
}

type cachedImage struct {
	image Image
	until time.Time
}

// NewImages makes a resolver; own is the image that has sandbox-init.
func NewImages(cli *dockercli.CLI, own, volume string, now func() time.Time) *Images {
	return &Images{cli: cli, own: own, volumePrefix: volume, now: now, cache: map[string]cachedImage{}}
}

// Resolve says which image a name stands for now; fault.ImageMissing or fault.EngineUnavailable otherwise.
func (i *Images) Resolve(ctx context.Context, ref string) (Image, error) {
	i.mu.Lock()
	defer i.mu.Unlock() // one question at a time: a burst of execs waits for one answer instead of starting a CLI each
	if c, ok := i.cache[ref]; ok && i.now().Before(c.until) {
		return c.image, nil
	}
	image, err := i.ask(ctx, ref)
	if err != nil {
		delete(i.cache, ref)
		return Image{}, err
	}
	i.cache[ref] = cachedImage{image: image, until: i.now().Add(imageTTL)}
	return image, nil
}

// Forget drops what is remembered: called when the engine says that an image it was asked to run is not there.
func (i *Images) Forget(ref string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.cache, ref)
}

func (i *Images) ask(ctx context.Context, ref string) (Image, error) {
	found, err := i.inspect(ctx, ref)
	if err != nil {
		return Image{}, err
	}
	image := Image{Ref: ref, ID: found.ID}
	if found.Labels[LabelInit] == "" {
		image.InitVolume, err = i.volume(ctx)
	}
	return image, err
}

func (i *Images) inspect(ctx context.Context, ref string) (dockercli.Image, error) {
	found, err := i.cli.InspectImage(ctx, ref)
	if fault.Is(err, fault.ImageMissing) {
		e := fault.Wrap(fault.ImageMissing, err,
			"image %q is not on the engine; nothing is pulled at run time: `docker pull` or build it on the engine's host (`make setup` builds %s)", ref, i.own)
		e.Fields = []fault.Field{{Field: "image", Reason: "the engine does not hold " + ref}}
		return dockercli.Image{}, e
	}
	return found, err
}

var digest = regexp.MustCompile(`^[0-9a-f]{12,64}$`)

// volume makes sure that the volume with our sandbox-init exists and returns its name. Docker fills a new volume from the image of the
// first container that mounts it, already when that container is created.
func (i *Images) volume(ctx context.Context) (string, error) {
	own, err := i.inspect(ctx, i.own)
	if err != nil {
		return "", err
	}
	build := own.Labels[LabelInit]
	if !digest.MatchString(build) {
		return "", fault.New(fault.ImageMissing, "image %q carries no sandbox-init; rebuild it with `make setup`", i.own)
	}
	name := i.volumePrefix + "-" + build[:12]
	there, err := i.cli.Volume(ctx, name)
	if there || err != nil {
		return name, err
	}
	return name, i.cli.FillVolume(ctx, name, initDir, own.ID)
}
