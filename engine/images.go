package engine

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"secbox/engine/dockercli"
	"secbox/fault"
)

// LabelInit is the label of an image that has sandbox-init in /opt/secbox. Its value is the digest
// of the binary.
const LabelInit = "secbox.sandbox-init"

// How long a resolved image is cached. An exec runs the image id that was resolved, so a stale
// answer is an older image, never a mixture. Asking each time would cost 30 ms of CLI, several
// times a warm exec.
const (
	// unwatchedTTL applies while Watch receives no events.
	unwatchedTTL = 10 * time.Second
	// watchedTTL applies while Watch receives events. It bounds the effect of a stream that died
	// unnoticed.
	watchedTTL = 5 * time.Minute
	// refreshAfter is the age from which a use refreshes an answer in the background, so that no
	// exec waits for that at watchedTTL.
	refreshAfter = time.Minute

	// lookupTimeout bounds one lookup, which many callers may wait for.
	lookupTimeout = 15 * time.Second
)

// Image is an image of the engine.
type Image struct {
	Ref string
	ID  string // sha256:…
	// InitVolume is the volume with sandbox-init; empty when the image has it.
	InitVolume string
	// Volumes are the paths of its VOLUMEs, separated by commas.
	Volumes string
}

// ImageResolver resolves references of an engine. It is safe for concurrent use.
type ImageResolver interface {
	// Resolve returns the image that a name refers to now: fault.ImageMissing,
	// fault.EngineUnavailable.
	Resolve(ctx context.Context, ref string) (Image, error)
	// Forget removes a name from a cache. It is called when the engine does not have the image that
	// it should run.
	Forget(ref string)
}

// Images resolves image names to ids and caches them: for some seconds, or, while Watch runs, until
// an image changes. It is safe for concurrent use.
type Images struct {
	cli          *dockercli.CLI
	own          string // the reference of our own image, which has sandbox-init
	volumePrefix string // of the volumes with sandbox-init: one per build of it
	now          func() time.Time

	mu       sync.Mutex
	cache    map[string]*cachedImage // by reference, as are the next two
	asking   map[string]*lookup      // whose result will be cached, unless the lookup is removed from here
	known    map[string]Image        // the last results, fresh or not, which changes are detected against
	watching bool                    // Watch receives events
	watch    *watch                  // nil unless Watch runs
	ownID    string                  // of our own image when old volumes were last looked for
	ownSeen  time.Time               // since when it had that id
}

type cachedImage struct {
	image   Image
	asked   time.Time // when the lookup began
	refresh time.Time // from when a use refreshes it, while Watch receives events
}

// lookup is one question to the engine, which all callers for the same name share.
type lookup struct {
	ref     string
	asked   time.Time
	waiting int // callers; guarded by Images.mu; the last caller that leaves cancels the lookup
	cancel  context.CancelFunc

	done  chan struct{} // closed when image and err are set
	image Image
	err   error
}

// NewImages makes a resolver; own is the image that has sandbox-init.
func NewImages(cli *dockercli.CLI, own, volume string, now func() time.Time) *Images {
	return &Images{
		cli: cli, own: own, volumePrefix: volume, now: now,
		cache: map[string]*cachedImage{}, asking: map[string]*lookup{}, known: map[string]Image{},
	}
}

// Resolve returns the image that a name refers to now; fault.ImageMissing or
// fault.EngineUnavailable. Concurrent calls for one name share a lookup, and its error, which is
// not cached. No process of a call outlives it.
func (i *Images) Resolve(ctx context.Context, ref string) (Image, error) {
	i.mu.Lock()
	if c, ok := i.cache[ref]; ok {
		now := i.now()
		ttl := unwatchedTTL
		if i.watching {
			ttl = watchedTTL
		}
		if now.Sub(c.asked) < ttl {
			if i.watching && !now.Before(c.refresh) {
				c.refresh = now.Add(refreshAfter)
				i.watch.await(i, i.join(ref))
			}
			i.mu.Unlock()
			return c.image, nil
		}
	}
	q := i.join(ref)
	i.mu.Unlock()
	return i.await(ctx, q)
}

// Forget removes a name from the cache. It is called when the engine does not have the image that
// it should run.
func (i *Images) Forget(ref string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forget(ref)
}

// forget is called with mu held. A lookup in progress may have an outdated result, so later calls
// begin a new one.
func (i *Images) forget(ref string) {
	delete(i.cache, ref)
	delete(i.asking, ref)
}

// join adds a caller to the lookup of ref, which it begins if there is none. It is called with mu
// held; await must follow.
func (i *Images) join(ref string) *lookup {
	q, ok := i.asking[ref]
	if !ok {
		ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
		q = &lookup{ref: ref, asked: i.now(), cancel: cancel, done: make(chan struct{})}
		i.asking[ref] = q
		go i.answer(ctx, q)
	}
	q.waiting++
	return q
}

// await waits for the result, or for ctx. The last caller that leaves early cancels the lookup and
// waits until its CLI has ended.
func (i *Images) await(ctx context.Context, q *lookup) (Image, error) {
	select {
	case <-q.done:
		return q.image, q.err
	case <-ctx.Done():
	}
	i.mu.Lock()
	q.waiting--
	last := q.waiting == 0
	if last && i.asking[q.ref] == q {
		delete(i.asking, q.ref)
	}
	i.mu.Unlock()
	if last {
		q.cancel()
		<-q.done
	}
	return Image{}, noAnswer(context.Cause(ctx))
}

// answer does the lookup and wakes the callers.
func (i *Images) answer(ctx context.Context, q *lookup) {
	defer q.cancel()
	q.image, q.err = i.ask(ctx, q.ref)
	i.mu.Lock()
	if i.asking[q.ref] == q {
		delete(i.asking, q.ref)
		i.learn(q)
	}
	i.mu.Unlock()
	close(q.done)
}

// learn caches a result. It is called with mu held.
func (i *Images) learn(q *lookup) {
	before, was := i.known[q.ref]
	switch {
	case q.err == nil:
		i.cache[q.ref] = &cachedImage{image: q.image, asked: q.asked, refresh: q.asked.Add(refreshAfter)}
		i.known[q.ref] = q.image
	case fault.Is(q.err, fault.ImageMissing):
		delete(i.cache, q.ref)
		delete(i.known, q.ref)
	default:
		return // the engine did not answer: a cached result stays until its end
	}
	if was && before != q.image && i.watch != nil {
		after := q.image
		after.Ref = q.ref
		i.watch.add(change{before: before, after: after})
	}
}

func (i *Images) ask(ctx context.Context, ref string) (Image, error) {
	found, err := i.inspect(ctx, ref)
	if err != nil {
		return Image{}, err
	}
	image := Image{Ref: ref, ID: found.ID}
	if image.Volumes, err = volumesOf(ref, found.Volumes); err != nil {
		return Image{}, err
	}
	if found.Labels[LabelInit] == "" {
		image.InitVolume, err = i.volume(ctx)
	}
	if err != nil {
		return Image{}, err
	}
	return image, nil
}

func (i *Images) inspect(ctx context.Context, ref string) (dockercli.Image, error) {
	found, err := i.cli.InspectImage(ctx, ref)
	if fault.Is(err, fault.ImageMissing) {
		e := fault.Wrap(fault.ImageMissing, err,
			"image %q is not on the engine; nothing is pulled at run time: `docker pull` or build it on the engine's host (`make setup` "+
				"builds %s)", ref, i.own)
		e.Fields = []fault.Field{{Field: "image", Reason: "the engine does not hold " + ref}}
		return dockercli.Image{}, e
	}
	return found, err
}

var digest = regexp.MustCompile(`^[0-9a-f]{12,64}$`)

// volume returns the name of the volume with our sandbox-init, which it makes if needed. Docker
// fills a new volume from the image of the first container that mounts it when that container is
// created.
func (i *Images) volume(ctx context.Context) (string, error) {
	own, err := i.inspect(ctx, i.own)
	if err != nil {
		return "", err
	}
	build := own.Labels[LabelInit]
	if !digest.MatchString(build) {
		return "", fault.New(fault.ImageMissing, "image %q carries no sandbox-init; rebuild it with `make setup`", i.own)
	}
	name, label := i.volumeOf(build), LabelInit+"="+build
	there, err := i.cli.Volumes(ctx, name, label, false)
	if err != nil || slices.Contains(there, name) {
		return name, err
	}
	// A volume of this name without the label may be empty: `docker run` made it after ours was
	// removed.
	return name, i.cli.FillVolume(ctx, name, label, initDir, own.ID)
}

func (i *Images) volumeOf(build string) string { return i.volumePrefix + "-" + build[:12] }

// volumeRest is how long a volume of an older sandbox-init stays after our image was replaced:
// longer than an exec that uses it waits for its container. Installations on one engine share our
// image and its volumes.
const volumeRest = 24 * time.Hour

// firstSeen returns since when our own image is known to have this id.
func (i *Images) firstSeen(id string) time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ownID != id {
		i.ownID, i.ownSeen = id, i.now()
	}
	return i.ownSeen
}

// RemoveOldVolumes removes unused volumes whose sandbox-init is older than our image's.
func (i *Images) RemoveOldVolumes(ctx context.Context) error {
	own, err := i.inspect(ctx, i.own)
	if fault.Is(err, fault.ImageMissing) {
		return nil // it is unknown which are old
	}
	build := own.Labels[LabelInit]
	if err != nil || !digest.MatchString(build) {
		return err
	}
	replaced, err := i.cli.ImageTagged(ctx, own.ID)
	if replaced.IsZero() { // docker knows no time for an image that came with `docker load`
		replaced = i.firstSeen(own.ID)
	}
	if err != nil || i.now().Sub(replaced) < volumeRest {
		return err
	}
	names, err := i.cli.Volumes(ctx, i.volumePrefix+"-", LabelInit, true)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if of, ours := strings.CutPrefix(name, i.volumePrefix+"-"); ours && digest.MatchString(of) && name != i.volumeOf(build) {
			errs = append(errs, i.cli.RemoveVolume(ctx, name))
		}
	}
	return errors.Join(errs...)
}
