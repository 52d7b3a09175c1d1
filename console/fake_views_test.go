package console_test

import (
	"context"
	"slices"
	"strings"
	"sync"

	"secbox/access/views"
)

// fakeViews has saved views in memory, by owner.
type fakeViews struct {
	mu sync.Mutex
	of map[string][]views.View
}

func (f *fakeViews) List(_ context.Context, owner string) ([]views.View, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(slices.Values(f.of[owner]), func(a, b views.View) int { return strings.Compare(a.Name, b.Name) }), nil
}

func (f *fakeViews) Save(ctx context.Context, owner string, v views.View) error {
	if err := v.Check(); err != nil {
		return err
	}
	_ = f.Remove(ctx, owner, v.Name) // never fails
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.of[owner]) >= views.MaxPerOwner {
		return views.TooMany()
	}
	f.of[owner] = append(f.of[owner], v)
	return nil
}

func (f *fakeViews) Remove(_ context.Context, owner, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[owner] = slices.DeleteFunc(f.of[owner], func(v views.View) bool { return v.Name == name })
	return nil
}
