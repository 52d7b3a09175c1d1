package row

import (
	"context"

	"secbox/access/views"
)

// Views implements views.Store.
type Views struct{ Database }

// List implements views.Store. The bound is for views that were saved at the same time.
func (db Views) List(ctx context.Context, owner string) ([]views.View, error) {
	return All(ctx, db.Query, func(scan Scan) (v views.View, err error) {
		err = scan(&v.Name, &v.Query)
		return v, err
	}, "SELECT name, query FROM console_views WHERE owner = $1 ORDER BY name LIMIT $2", Text(owner), 2*views.MaxPerOwner)
}

// Save implements views.Store.
func (db Views) Save(ctx context.Context, owner string, v views.View) error {
	if err := v.Check(); err != nil {
		return err
	}
	_, saved, err := One(ctx, db.Write, Value[string], "INSERT INTO console_views (owner, name, query) SELECT $1, $2, $3 WHERE "+
		"(SELECT count(*) FROM console_views WHERE owner = $1 AND name <> $2) < $4 "+
		"ON CONFLICT (owner, name) DO UPDATE SET query = excluded.query RETURNING name", Text(owner), Text(v.Name), v.Query, views.MaxPerOwner)
	if err == nil && !saved {
		err = views.TooMany()
	}
	return err
}

// Remove implements views.Store.
func (db Views) Remove(ctx context.Context, owner, name string) error {
	return db.Write(ctx, nil, "DELETE FROM console_views WHERE owner = $1 AND name = $2", Text(owner), Text(name))
}
