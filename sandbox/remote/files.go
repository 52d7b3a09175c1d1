package remote

import (
	"context"
	"io/fs"
	"slices"
	"strings"

	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// Stat describes a file on the user's machine.
func (h *Hub) Stat(ctx context.Context, path string, user sandbox.User) (*sandbox.FileInfo, error) {
	req, err := h.file(ctx, wire.TypeStat, user, &wire.Path{Path: path}, nil)
	if err != nil {
		return nil, err
	}
	i := req.answer.(*wire.FileInfo)
	return &sandbox.FileInfo{Name: i.Name, Size: i.Size, Mode: fs.FileMode(i.Mode), ModTime: i.ModTime, IsDir: i.IsDir}, nil
}

// ReadDir lists a directory there. Of entries with the same name, the first one is listed.
func (h *Hub) ReadDir(ctx context.Context, path string, user sandbox.User) ([]sandbox.DirEntry, error) {
	req, err := h.file(ctx, wire.TypeReadDir, user, &wire.Path{Path: path}, nil)
	if err != nil {
		return nil, err
	}
	list := make([]sandbox.DirEntry, len(req.entries))
	for i, e := range req.entries {
		list[i] = sandbox.DirEntry{Name: e.Name, IsDir: e.IsDir, Size: e.Size, Mode: fs.FileMode(e.Mode)}
	}
	slices.SortStableFunc(list, func(a, b sandbox.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(list, func(a, b sandbox.DirEntry) bool { return a.Name == b.Name }), nil
}

// MkdirAll makes directories there.
func (h *Hub) MkdirAll(ctx context.Context, path string, perm fs.FileMode, user sandbox.User) error {
	_, err := h.file(ctx, wire.TypeMkdirAll, user, &wire.Path{Path: path, Perm: uint32(perm.Perm())}, nil)
	return err
}

// Remove removes a file there.
func (h *Hub) Remove(ctx context.Context, path string, user sandbox.User) error {
	_, err := h.file(ctx, wire.TypeRemove, user, &wire.Path{Path: path}, nil)
	return err
}

// RemoveAll removes a tree there.
func (h *Hub) RemoveAll(ctx context.Context, path string, user sandbox.User) error {
	_, err := h.file(ctx, wire.TypeRemoveAll, user, &wire.Path{Path: path}, nil)
	return err
}

// file makes a request about a path; t is its transfer, if it may need one.
func (h *Hub) file(ctx context.Context, op wire.Type, user sandbox.User, body *wire.Path, t *transfer) (*request, error) {
	if err := h.checkPath(string(op), body.Path); err != nil {
		return nil, err
	}
	body.UserID = user.ID
	if t != nil {
		body.Transfer = t.id
	}
	return h.do(ctx, call{op: op, path: body.Path, body: body, user: user, timeout: h.cfg.RequestTimeout, transfer: t})
}
