package engine

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// WatchConfig is what Images.Watch is given.
type WatchConfig struct {
	Log *slog.Logger
	// Changed is told, one call at a time, that a name that was resolved once stands for another image now; after.ID is empty when the
	// image is gone. It should not take long, and is not called after Watch has returned. Nil: nobody wants to know.
	Changed func(before, after Image)
	// Retry waits for d, or until ctx ends, before the stream of events is started again. Nil: with a timer.
	Retry func(ctx context.Context, d time.Duration)
}

const (
	minRetry = time.Second // before an ended stream of events is started again; doubled up to
	maxRetry = 30 * time.Second

	// recheckEvery bounds what a storm of events costs: a prune of a hundred images is a few questions per name, not hundreds.
	recheckEvery = 250 * time.Millisecond
)

// Watch follows the engine's events until ctx ends, so that an answer is believed for minutes and is forgotten the moment an image
// changes. It returns when every process that it started has ended. It runs at most once at a time.
//
// An event says that something changed and not what: all that is remembered is forgotten, and the names are asked for again behind the
// execs' backs. Where there is no stream (the engine restarts, its CLI was killed), answers live as short as if nobody watched, and when
// it is there again nothing from before is believed.
func (i *Images) Watch(ctx context.Context, cfg WatchConfig) {
	if cfg.Retry == nil {
		cfg.Retry = sleep
	}
	w := &watch{ctx: ctx, wake: make(chan struct{}, 1)}
	i.mu.Lock()
	i.watch = w
	i.mu.Unlock()
	defer func() {
		i.follow(false)
		i.mu.Lock()
		i.watch = nil
		i.mu.Unlock()
		w.running.Wait()
	}()
	w.running.Go(func() { i.recheck(ctx, w, cfg.Changed) })

	delay, said := minRetry, false
	for {
		begun := i.now()
		err := i.cli.FollowImages(ctx, func() { i.follow(true) }, i.doubt)
		i.follow(false)
		if ctx.Err() != nil {
			return
		}
		if i.now().Sub(begun) >= maxRetry {
			delay, said = minRetry, false
		}
		if !said {
			said = true
			cfg.Log.Warn("the engine's events about images ended; until they are back, image names are asked for every few seconds",
				"believed_for", unwatchedTTL, "error", err)
		}
		cfg.Retry(ctx, delay)
		delay = min(2*delay, maxRetry)
	}
}

// follow begins or ends the time in which changes are heard of.
func (i *Images) follow(on bool) {
	i.mu.Lock()
	i.watching = on
	i.mu.Unlock()
	i.doubt()
}

// doubt forgets every answer and has the names asked for again.
func (i *Images) doubt() {
	i.mu.Lock()
	defer i.mu.Unlock()
	clear(i.cache)
	clear(i.asking)
	i.watch.doubt = true
	i.watch.signal()
}

// recheck asks for the names that have been resolved before, after every doubt, and passes on what was learnt, by whomever.
func (i *Images) recheck(ctx context.Context, w *watch, changed func(before, after Image)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
		refs := i.doubted(w)
		for _, ref := range refs {
			_, _ = i.Resolve(ctx, ref) // what it finds is news; why it fails, the next exec will hear
		}
		for _, c := range i.news(w) {
			if changed != nil && ctx.Err() == nil {
				changed(c.before, c.after)
			}
		}
		if len(refs) > 0 {
			sleep(ctx, recheckEvery)
		}
	}
}

func (i *Images) doubted(w *watch) (refs []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if w.doubt {
		w.doubt = false
		refs = slices.Sorted(maps.Keys(i.known))
	}
	return refs
}

func (i *Images) news(w *watch) []change {
	i.mu.Lock()
	defer i.mu.Unlock()
	news := w.news
	w.news = nil
	return news
}

// watch is what a running Watch shares with the answers. All but running is guarded by Images.mu.
type watch struct {
	ctx     context.Context
	wake    chan struct{} // for recheck: there is news or doubt
	news    []change
	doubt   bool
	running sync.WaitGroup
}

type change struct{ before, after Image }

func (w *watch) tell(c change) {
	w.news = append(w.news, c)
	w.signal()
}

func (w *watch) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// await sees a question to its end for nobody but the memory.
func (w *watch) await(i *Images, q *question) {
	w.running.Go(func() { _, _ = i.await(w.ctx, q) })
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
