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
	req, err := h.file(ctx, wire.TypeStat, path, user, nil)
	if err != nil {
		return nil, err
	}
	i := req.answer.(*wire.FileInfo)
	return &sandbox.FileInfo{Name: i.Name, Size: i.Size, Mode: fs.FileMode(i.Mode), ModTime: i.ModTime, IsDir: i.IsDir}, nil
}

// ReadDir lists a directory there.
func (h *Hub) ReadDir(ctx context.Context, path string, user sandbox.User) ([]sandbox.DirEntry, error) {
	req, err := h.file(ctx, wire.TypeReadDir, path, user, nil)
	if err != nil {
		return nil, err
	}
	list := make([]sandbox.DirEntry, len(req.entries))
	for i, e := range req.entries {
		list[i] = sandbox.DirEntry{Name: e.Name, IsDir: e.IsDir, Size: e.Size, Mode: fs.FileMode(e.Mode)}
	}
	slices.SortFunc(list, func(a, b sandbox.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// MkdirAll makes directories there.
func (h *Hub) MkdirAll(ctx context.Context, path string, perm fs.FileMode, user sandbox.User) error {
	_, err := h.file(ctx, wire.TypeMkdirAll, path, user, func(p *wire.Path) { p.Perm = uint32(perm.Perm()) })
	return err
}

// Remove removes a file there.
func (h *Hub) Remove(ctx context.Context, path string, user sandbox.User) error {
	_, err := h.file(ctx, wire.TypeRemove, path, user, nil)
	return err
}

// RemoveAll removes a tree there.
func (h *Hub) RemoveAll(ctx context.Context, path string, user sandbox.User) error {
	_, err := h.file(ctx, wire.TypeRemoveAll, path, user, nil)
	return err
}

// file is a request about a path, of which fill may say more.
func (h *Hub) file(ctx context.Context, op wire.Type, path string, user sandbox.User, fill func(*wire.Path)) (*request, error) {
	return h.fileWith(ctx, op, path, user, fill, nil)
}

func (h *Hub) fileWith(ctx context.Context, op wire.Type, path string, user sandbox.User, fill func(*wire.Path), t *transfer) (*request, error) {
	if err := h.where(string(op), path); err != nil {
		return nil, err
	}
	body := &wire.Path{Path: path, UserID: user.ID}
	if fill != nil {
		fill(body)
	}
	if t != nil {
		body.Transfer = t.id
	}
	changes := op != wire.TypeReadFile && op != wire.TypeStat && op != wire.TypeReadDir
	return h.do(ctx, call{op: op, path: path, body: body, user: user, changes: changes, within: h.cfg.Patience, transfer: t})
}
