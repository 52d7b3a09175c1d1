package engine

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"secbox/dockercli"
	"secbox/fault"
)

// LabelInit is what an image bears that has sandbox-init at /opt/secbox: the digest of the binary.
const LabelInit = "secbox.sandbox-init"

// How long an answer about an image is believed. An exec runs the image id that was resolved, so a stale answer means the image as it
// was that long ago, never a mixture; asking each time would cost 30 ms of CLI, several times a warm exec.
const (
	// unwatchedTTL holds while nobody tells us of changes.
	unwatchedTTL = 10 * time.Second
	// watchedTTL holds while Watch hears of every change. It bounds what a stream of events that died unnoticed can do.
	watchedTTL = 5 * time.Minute
	// refreshAfter is the age from which a use has the answer confirmed behind its back, so that nobody waits for that at watchedTTL.
	refreshAfter = time.Minute

	// askPatience is for one question to the engine, however many wait for its answer.
	askPatience = 15 * time.Second
)

// Image is an image as the engine holds it.
type Image struct {
	Ref string
	ID  string // sha256:…
	// InitVolume is the volume that brings sandbox-init; empty when the image has it.
	InitVolume string
}

// Images resolves image names to ids and remembers them: for a moment, or for as long as Watch hears of no change. It is safe for
// concurrent use.
type Images struct {
	cli          *dockercli.CLI
	own          string // the reference of our own image: where sandbox-init comes from
	volumePrefix string // of the volumes that carry sandbox-init: one per build of it
	now          func() time.Time

	mu       sync.Mutex
	cache    map[string]*cachedImage // by reference, as are the next two
	asking   map[string]*question    // whose answer will be remembered; a question that lost its place here is answered and forgotten
	known    map[string]Image        // the last answer of all, fresh or not: what a change is a change of
	watching bool                    // a stream of events is followed
	watch    *watch                  // nil unless Watch runs
}

type cachedImage struct {
	image   Image
	asked   time.Time // when the question was asked, not when it was answered
	refresh time.Time // when a use has it asked again, while we watch
}

// question is one look at the engine, for all who want to know the same.
type question struct {
	ref     string
	asked   time.Time
	waiting int // guarded by Images.mu; when the last one leaves, the question is dropped
	cancel  context.CancelFunc

	done  chan struct{} // closed when the two below are set
	image Image
	err   error
}

// NewImages makes a resolver; own is the image that has sandbox-init.
func NewImages(cli *dockercli.CLI, own, volume string, now func() time.Time) *Images {
	return &Images{
		cli: cli, own: own, volumePrefix: volume, now: now,
		cache: map[string]*cachedImage{}, asking: map[string]*question{}, known: map[string]Image{},
	}
}

// Resolve says which image a name stands for now; fault.ImageMissing or fault.EngineUnavailable otherwise. Callers who ask for the same
// name at once wait for one answer; a failure is told to all of them and not remembered. No process of a call outlives it.
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

// Forget drops what is remembered: called when the engine says that an image it was asked to run is not there.
func (i *Images) Forget(ref string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forget(ref)
}

// forget is called with mu held. A question that is under way may have been answered before whatever it is that we have just learnt, so
// who asks from now on asks anew.
func (i *Images) forget(ref string) {
	delete(i.cache, ref)
	delete(i.asking, ref)
}

// join adds a waiter to the question about ref, which it asks if nobody does. It is called with mu held; await must follow.
func (i *Images) join(ref string) *question {
	q, ok := i.asking[ref]
	if !ok {
		ctx, cancel := context.WithTimeout(context.Background(), askPatience)
		q = &question{ref: ref, asked: i.now(), cancel: cancel, done: make(chan struct{})}
		i.asking[ref] = q
		go i.answer(ctx, q)
	}
	q.waiting++
	return q
}

// await waits for the answer, or for ctx. The last who leaves takes the question along, and waits until its CLI has ended.
func (i *Images) await(ctx context.Context, q *question) (Image, error) {
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
	return Image{}, silent(context.Cause(ctx))
}

// answer asks the engine and tells all who wait.
func (i *Images) answer(ctx context.Context, q *question) {
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

// learn takes an answer that nothing has overtaken. It is called with mu held.
func (i *Images) learn(q *question) {
	before, was := i.known[q.ref]
	switch {
	case q.err == nil:
		i.cache[q.ref] = &cachedImage{image: q.image, asked: q.asked, refresh: q.asked.Add(refreshAfter)}
		i.known[q.ref] = q.image
	case fault.Is(q.err, fault.ImageMissing):
		delete(i.cache, q.ref)
		delete(i.known, q.ref)
	default:
		return // nothing was learnt: an answer that is being confirmed lives on to its end
	}
	if was && before != q.image && i.watch != nil {
		i.watch.tell(change{before: before, after: Image{Ref: q.ref, ID: q.image.ID, InitVolume: q.image.InitVolume}})
	}
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
	if err != nil {
		return Image{}, err
	}
	return image, nil
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
	name, label := i.volumeOf(build), LabelInit+"="+build
	there, err := i.cli.Volumes(ctx, name, label, false)
	if err != nil || slices.Contains(there, name) {
		return name, err
	}
	// One of this name without the label is empty when `docker run` has made it, after it was removed.
	return name, i.cli.FillVolume(ctx, name, label, initDir, own.ID)
}

func (i *Images) volumeOf(build string) string { return i.volumePrefix + "-" + build[:12] }

// volumeRest is how long a volume of an older sandbox-init stays after our image was replaced: longer than any exec that was given it waits
// for its container. Installations on one engine have the same image of ours and share its volumes.
const volumeRest = 24 * time.Hour

// RemoveOldVolumes removes the volumes that carry an older sandbox-init than our image does and that no container has.
func (i *Images) RemoveOldVolumes(ctx context.Context) error {
	own, err := i.inspect(ctx, i.own)
	if fault.Is(err, fault.ImageMissing) {
		return nil // there is no telling which are old
	}
	build := own.Labels[LabelInit]
	if err != nil || !digest.MatchString(build) {
		return err
	}
	if replaced, err := i.cli.ImageTagged(ctx, own.ID); err != nil || i.now().Sub(replaced) < volumeRest {
		return err
	}
	names, err := i.cli.Volumes(ctx, i.volumePrefix+"-", LabelInit, true)
	if err != nil {
		return err
	}
	var errs []error // one that resists does not keep the others
	for _, name := range names {
		if of, ours := strings.CutPrefix(name, i.volumePrefix+"-"); ours && digest.MatchString(of) && name != i.volumeOf(build) {
			errs = append(errs, i.cli.RemoveVolume(ctx, name))
		}
	}
	return errors.Join(errs...)
}
