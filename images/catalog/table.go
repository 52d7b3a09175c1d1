package catalog

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"secbox/engine"
	"secbox/fault"
)

// Table is the table as this process knows it, in front of the engine's images. It is safe for
// concurrent use, and empty until Open.
type Table struct {
	engine engine.ImageResolver
	now    func() time.Time

	images atomic.Pointer[map[string]Image]

	reading sync.Mutex // held while the store is read
	store   Store
	read    time.Time // when the last reading began
}

// How old the table may be.
const (
	interval    = time.Second            // between two readings by Watch
	missAge     = 100 * time.Millisecond // for a name that is not in it: clients may ask for any name
	readTimeout = 2 * time.Second
)

// NewTable returns an empty table.
func NewTable(images engine.ImageResolver, now func() time.Time) *Table {
	return &Table{engine: images, now: now}
}

// Open reads the table for the first time.
func (t *Table) Open(ctx context.Context, store Store) error {
	t.reading.Lock()
	t.store = store
	t.reading.Unlock()
	return t.refresh(ctx, 0)
}

// Watch reads the table every second until ctx ends. After an error, the table stays as it was.
func (t *Table) Watch(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for failed := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := t.refresh(ctx, interval/2)
		if err != nil && !failed && ctx.Err() == nil {
			log.Warn("cannot read the table of own images; trying again each second", "error", err)
		}
		failed = err != nil
	}
}

// refresh reads the table unless it was read less than age ago.
func (t *Table) refresh(ctx context.Context, age time.Duration) error {
	t.reading.Lock()
	defer t.reading.Unlock()
	now := t.now()
	if t.store == nil || age > 0 && now.Sub(t.read) < age {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	t.read = now
	list, err := t.store.List(ctx)
	if err != nil {
		return err
	}
	images := make(map[string]Image, len(list))
	for _, i := range list {
		images[i.Name] = i
	}
	t.images.Store(&images)
	return nil
}

func (t *Table) lookup(name string) (Image, bool) {
	images := t.images.Load()
	if images == nil {
		return Image{}, false
	}
	i, ok := (*images)[name]
	return i, ok
}

// Names returns the names of the own images, sorted. It reads the table again if wanted has the
// form of a name and is not in the table.
func (t *Table) Names(wanted string) []string {
	if _, ok := t.lookup(wanted); !ok && wanted != "" && CheckName(wanted) == nil {
		_ = t.refresh(context.Background(), missAge) // Watch reports the error
	}
	images := t.images.Load()
	if images == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(*images))
}

// Resolve returns the engine's image of a name of the table, and of any other reference what the
// engine says. fault.ImageMissing if this node's engine does not hold it.
func (t *Table) Resolve(ctx context.Context, ref string) (engine.Image, error) {
	own, ok := t.lookup(ref)
	if !ok {
		return t.engine.Resolve(ctx, ref)
	}
	image, err := t.engine.Resolve(ctx, own.Ref)
	if err == nil && image.ID != own.ImageID || fault.Is(err, fault.ImageMissing) {
		missing := fault.Wrap(fault.ImageMissing, err, "the image %q (%s) is not on this node's engine. On a node that has it, run "+
			"`core-api image export %s %s.tar`, and on this one `core-api image import %s.tar`; to make it anew for all nodes, run "+
			"`core-api image rebuild %s`", ref, own.Ref, ref, ref, ref, ref)
		missing.Fields = []fault.Field{{Field: "image", Reason: "the engine does not hold " + own.Ref}}
		return engine.Image{}, missing
	}
	return image, err
}

// Forget forgets what the engine said of a reference.
func (t *Table) Forget(ref string) { t.engine.Forget(ref) }
