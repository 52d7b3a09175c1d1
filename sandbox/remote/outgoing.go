package remote

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// outgoing is content that a runner gets. It belongs to whoever has the transfer's turn.
type outgoing struct {
	replay *replay
	hash   hash.Hash
	hashed int64 // bytes of the content that the hash has seen, from the beginning
	whole  bool  // all of it, and the runner was told so
}

// WriteFile writes a file on the user's machine.
func (h *Hub) WriteFile(ctx context.Context, path string, data []byte, perm fs.FileMode, user sandbox.User) error {
	return h.writeFile(ctx, path, data, condition{perm: perm}, user)
}

// ReplaceFile writes a file there if it has not changed.
func (h *Hub) ReplaceFile(ctx context.Context, path string, data []byte, was string, user sandbox.User) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h.mu.Lock()
	m, err := h.pick(user)
	if err == nil && !slices.Contains(m.hello.Can, wire.CanCompare) {
		err = fault.New(fault.Unsupported, "%s cannot compare before it writes; update secbox on that machine", m.title())
	}
	h.mu.Unlock()
	if err != nil {
		return err
	}
	return h.writeFile(ctx, path, data, condition{was: was}, user)
}

// condition is how a file is to be written: with these permissions if it is new, and, unless was is empty, only over this content.
type condition struct {
	perm fs.FileMode
	was  string // SHA-256 in hexadecimal
}

func (h *Hub) writeFile(ctx context.Context, path string, data []byte, c condition, user sandbox.User) error {
	if len(data) > wire.InlineBytes {
		_, err := h.writeFrom(ctx, path, bytes.NewReader(data), c, user)
		return err
	}
	if data == nil {
		data = []byte{}
	}
	_, err := h.write(ctx, path, data, c, user, nil)
	return err
}

// WriteFileFrom streams a file there. After a break the runner asks for what it has not got; a reader that is also an io.ReaderAt and an
// io.Seeker is read again from anywhere, of others the last 16 MiB are kept, and when the runner needs what was before, the call fails and
// the file is as it was.
func (h *Hub) WriteFileFrom(ctx context.Context, path string, r io.Reader, perm fs.FileMode, user sandbox.User) (int64, error) {
	return h.writeFrom(ctx, path, r, condition{perm: perm}, user)
}

func (h *Hub) writeFrom(ctx context.Context, path string, r io.Reader, c condition, user sandbox.User) (int64, error) {
	if err := h.where(string(wire.TypeWriteFile), path); err != nil {
		return 0, err
	}
	src := newReplay(r)
	defer src.free()
	small, err := src.upTo(wire.InlineBytes)
	if err != nil {
		return 0, err
	}
	if small != nil {
		_, err = h.write(ctx, path, small, c, user, nil)
		return int64(len(small)), err
	}
	t := h.newTransfer()
	t.outgoing = &outgoing{replay: src, hash: newHash()}
	req, err := h.write(ctx, path, nil, c, user, t)
	if err == nil && !t.outgoing.whole {
		err = t.lied("that it has written what it has not fetched")
		h.accuse(req.m, err)
	}
	return t.outgoing.hashed, err
}

// write is the request to write data, or what the transfer gives.
func (h *Hub) write(ctx context.Context, path string, data []byte, c condition, user sandbox.User, t *transfer) (*request, error) {
	return h.fileWith(ctx, wire.TypeWriteFile, path, user, func(p *wire.Path) {
		p.Perm, p.Data, p.IfSHA256 = uint32(c.perm.Perm()), data, c.was
	}, t)
}

// serveOut gives the content from an offset on.
func (t *transfer) serveOut(w http.ResponseWriter, r *http.Request, me *worker) {
	out := t.outgoing
	from, ok := parseRange(r.Header.Get("Range"))
	if !ok {
		http.Error(w, "Range must be bytes=N-", http.StatusBadRequest)
		return
	}
	if from > out.hashed || !out.replay.seek(from) {
		t.fail(fault.New(fault.RunnerOffline,
			"the connection to %s broke, and what it has not got is not kept any more; the file is as it was, try again", t.req.m.title()), false)
		http.Error(w, "the content before this offset has not gone out, or is not kept", http.StatusRequestedRangeNotSatisfiable)
		return
	}
	w.Header().Set("Trailer", wire.SizeTrailer+", "+wire.DigestTrailer)
	w.Header().Set("Connection", "close") // the deadlines for its bytes are not those of what would come next
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set(wire.OffsetHeader, strconv.FormatInt(from, 10))
	if from > 0 {
		w.WriteHeader(http.StatusPartialContent)
	}
	err := t.pour(w, me)
	switch {
	case err == nil:
		w.Header().Set(wire.SizeTrailer, strconv.FormatInt(out.hashed, 10))
		w.Header().Set(wire.DigestTrailer, hex.EncodeToString(out.hash.Sum(nil)))
		if me.mayWrite(t.hub.cfg.Stall) == nil {
			out.whole = true
			return
		}
	case errors.Is(err, errSource):
		t.fail(sourceError(err), false)
	}
	me.kick() // without an end, so that the runner does not take a part for all of it
}

// pour writes the content up to its end.
func (t *transfer) pour(w http.ResponseWriter, me *worker) error {
	out := t.outgoing
	for {
		at, piece, err := out.replay.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := me.mayWrite(t.hub.cfg.Stall); err != nil {
			return err
		}
		var hashed <-chan struct{}
		if end := at + int64(len(piece)); end > out.hashed {
			fresh := piece[out.hashed-at:]
			hashed = beside(func() { out.hash.Write(fresh) })
			out.hashed = end
		}
		_, err = w.Write(piece)
		if hashed != nil {
			<-hashed
		}
		if err != nil {
			return err
		}
		t.touch()
	}
}

// parseRange reads bytes=N-; nothing is from the beginning.
func parseRange(s string) (from int64, ok bool) {
	if s == "" {
		return 0, true
	}
	rest, ok := strings.CutPrefix(s, "bytes=")
	first, last, ok2 := strings.Cut(rest, "-")
	if !ok || !ok2 || last != "" {
		return 0, false
	}
	return parseOffset(first)
}
