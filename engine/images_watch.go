package engine

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// WatchConfig is the configuration of Images.Watch.
type WatchConfig struct {
	Log *slog.Logger
	// Changed is called, one call at a time, when a name that was resolved before stands for
	// another image; after.ID is empty when the image is gone. It should return soon, and is not
	// called after Watch has returned. May be nil.
	Changed func(before, after Image)
	// Retry waits for d, or until ctx ends, before the stream of events is started again. Nil: with
	// a timer.
	Retry func(ctx context.Context, d time.Duration)
}

const (
	minRetry = time.Second // before an ended stream of events is started again; doubled up to
	maxRetry = 30 * time.Second

	// recheckEvery bounds the cost of many events: pruning a hundred images causes a few lookups
	// per name, not hundreds.
	recheckEvery = 250 * time.Millisecond
)

// Watch follows the engine's events until ctx ends, so that images are cached for minutes and
// forgotten as soon as one changes. It returns when every process that it started has ended. It
// must not run twice at the same time.
//
// Any event clears the cache, and the names are resolved again in the background. While there is no
// stream of events (the engine restarts, its CLI was killed), images are cached for seconds, and a
// new stream clears the cache.
func (i *Images) Watch(ctx context.Context, cfg WatchConfig) {
	if cfg.Retry == nil {
		cfg.Retry = sleep
	}
	w := &watch{ctx: ctx, wake: make(chan struct{}, 1)}
	i.mu.Lock()
	i.watch = w
	i.mu.Unlock()
	defer func() {
		i.setWatching(false)
		i.mu.Lock()
		i.watch = nil
		i.mu.Unlock()
		w.running.Wait()
	}()
	w.running.Go(func() { i.recheck(ctx, w, cfg.Changed) })

	delay, logged := minRetry, false
	for {
		begun := i.now()
		err := i.cli.FollowImages(ctx, func() { i.setWatching(true) }, i.invalidate)
		i.setWatching(false)
		if ctx.Err() != nil {
			return
		}
		if i.now().Sub(begun) >= maxRetry {
			delay, logged = minRetry, false
		}
		if !logged {
			logged = true
			cfg.Log.Warn("the engine's events about images ended; until they are back, image names are asked for every few seconds",
				"believed_for", unwatchedTTL, "error", err)
		}
		cfg.Retry(ctx, delay)
		delay = min(2*delay, maxRetry)
	}
}

// setWatching notes whether events are received, and clears the cache.
func (i *Images) setWatching(on bool) {
	i.mu.Lock()
	i.watching = on
	i.mu.Unlock()
	i.invalidate()
}

// invalidate clears the cache and has the names resolved again.
func (i *Images) invalidate() {
	i.mu.Lock()
	defer i.mu.Unlock()
	clear(i.cache)
	clear(i.asking)
	i.watch.invalidate = true
	i.watch.signal()
}

// recheck resolves the known names again after every invalidate, and reports all changes that
// lookups have found.
func (i *Images) recheck(ctx context.Context, w *watch, changed func(before, after Image)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
		refs := i.invalidated(w)
		for _, ref := range refs {
			_, _ = i.Resolve(ctx, ref) // learn notes changes; the next exec reports an error
		}
		for _, c := range i.changes(w) {
			if changed != nil && ctx.Err() == nil {
				changed(c.before, c.after)
			}
		}
		if len(refs) > 0 {
			sleep(ctx, recheckEvery)
		}
	}
}

func (i *Images) invalidated(w *watch) (refs []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if w.invalidate {
		w.invalidate = false
		refs = slices.Sorted(maps.Keys(i.known))
	}
	return refs
}

func (i *Images) changes(w *watch) []change {
	i.mu.Lock()
	defer i.mu.Unlock()
	changes := w.changes
	w.changes = nil
	return changes
}

// watch is the state of a running Watch. All but running is guarded by Images.mu.
type watch struct {
	ctx        context.Context
	wake       chan struct{} // wakes recheck
	changes    []change
	invalidate bool
	running    sync.WaitGroup
}

type change struct{ before, after Image }

func (w *watch) add(c change) {
	w.changes = append(w.changes, c)
	w.signal()
}

func (w *watch) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// await waits for a lookup in the background, for the cache.
func (w *watch) await(i *Images, q *lookup) {
	w.running.Go(func() { _, _ = i.await(w.ctx, q) })
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
