package memengine

import (
	"context"
	"slices"
	"sync"

	"secbox/engine"
)

// Images resolves image names for an Engine: each name to an id made from it, unless Fail was told
// otherwise. The zero value is ready, and safe for concurrent use.
type Images struct {
	mu        sync.Mutex
	errs      map[string]error
	forgotten []string
}

// Fail makes Resolve return err for a name; nil ends that.
func (i *Images) Fail(ref string, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.errs == nil {
		i.errs = map[string]error{}
	}
	i.errs[ref] = err
}

// Resolve returns the image of a name.
func (i *Images) Resolve(_ context.Context, ref string) (engine.Image, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.errs[ref]; err != nil {
		return engine.Image{}, err
	}
	return engine.Image{Ref: ref, ID: "sha256:" + ref}, nil
}

// Forget notes the name.
func (i *Images) Forget(ref string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forgotten = append(i.forgotten, ref)
}

// Forgotten lists the names that Forget was called with.
func (i *Images) Forgotten() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.forgotten)
}
