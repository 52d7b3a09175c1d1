package registry

import (
	"context"
	"errors"
	"slices"
	"time"

	"secbox/packages/catalog"
	"secbox/packages/versions"
)

// Grace is the minimal age of a version before it is retired, and the time from then until its
// removal; see library.Collect.
const Grace = time.Hour

// Collect removes the versions that are not current any more. It works as library.Collect does: a
// version that no entry names is first put out of reach by a rename, and removed Grace later if
// still no entry names it. Publish looks for the version of its entry after it has stored the
// entry, and puts a retired one back.
func (r *Registry) Collect(ctx context.Context) error {
	var errs []error
	for _, kind := range catalog.Kinds {
		errs = append(errs, r.collect(ctx, kind))
	}
	return errors.Join(errs...)
}

func (r *Registry) collect(ctx context.Context, kind catalog.Kind) error {
	place, err := r.Versions.Registry(string(kind))
	if err != nil {
		return err
	}
	names, err := place.SkillNames()
	if err != nil {
		return err
	}
	retired, err := place.RetiredSkills()
	if err != nil {
		return err
	}
	names = append(names, retired...)
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names {
		if err := errors.Join(ctx.Err(), r.collectName(ctx, place, kind, name)); err != nil {
			return err
		}
	}
	return place.Tidy(names)
}

func (r *Registry) collectName(ctx context.Context, place *versions.Agent, kind catalog.Kind, name string) error {
	stored, _, err := place.Versions(name)
	if err != nil {
		return err
	}
	e, _, err := r.Store.Entry(ctx, kind, name)
	if err != nil {
		return err
	}
	now := r.Now()
	for _, v := range stored {
		if v.Digest != e.Digest && now.Sub(v.At) > Grace {
			if err := place.Retire(v, now); err != nil {
				return err
			}
		}
	}
	retired, err := place.RetiredVersions(name)
	if err != nil || len(retired) == 0 {
		return err
	}
	if e, _, err = r.Store.Entry(ctx, kind, name); err != nil { // again, after they were retired
		return err
	}
	for _, v := range retired {
		if v.Digest == e.Digest {
			_, err = place.Restore(name, v.Digest)
		} else if now.Sub(v.Retired) > Grace {
			_, err = place.Drop(ctx, v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
