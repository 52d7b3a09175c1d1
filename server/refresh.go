package server

import (
	"context"
	"io"

	"secbox/packages/archive"
	"secbox/packages/catalog"
	"secbox/packages/library"
	"secbox/sandbox"
)

// refreshing is the library for callers whose changes must be in the catalog at once. Changes by commands are noticed when the catalog is read anew.
type refreshing struct {
	*library.Library
	catalog *catalog.Store
}

// changed refreshes the catalog of the owner, and after a change of a baseline the catalogs of all users.
func (r refreshing) changed(o library.Owner, scope library.Scope) {
	user := sandbox.User{AgentID: o.AgentID, ID: o.UserID}
	if scope == library.Baseline {
		user = sandbox.User{}
	}
	r.catalog.InvalidateCache(user)
}

func (r refreshing) UploadSome(ctx context.Context, o library.Owner, scope library.Scope, filename string, pick archive.Pick, zip io.ReaderAt, size int64) ([]library.Uploaded, error) {
	defer r.changed(o, scope)
	return r.Library.UploadSome(ctx, o, scope, filename, pick, zip, size)
}

func (r refreshing) Edit(ctx context.Context, o library.Owner, skillID, path string, content []byte, lines *library.LineRange) error {
	defer r.changed(o, library.Overlay)
	return r.Library.Edit(ctx, o, skillID, path, content, lines)
}

func (r refreshing) Delete(ctx context.Context, o library.Owner, skillID string, scope library.Scope) error {
	defer r.changed(o, scope)
	return r.Library.Delete(ctx, o, skillID, scope)
}

func (r refreshing) Promote(ctx context.Context, o library.Owner, skillID string, force bool, reviewed ...string) (library.Promoted, error) {
	defer r.changed(o, library.Baseline)
	return r.Library.Promote(ctx, o, skillID, force, reviewed...)
}

func (r refreshing) Sync(ctx context.Context, o library.Owner, skillID string, force bool) (library.Synced, error) {
	defer r.changed(o, library.Overlay)
	return r.Library.Sync(ctx, o, skillID, force)
}
