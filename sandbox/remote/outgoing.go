package remote

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"regexp"
	"slices"
	"strconv"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// outgoing is content for a runner. Only the transfer's current request may use it.
type outgoing struct {
	replay *replay
	hashed int64 // bytes hashed, from the beginning
	whole  bool  // the runner has got all of it, with the trailers
}

// WriteFile writes a file on the user's machine.
func (h *Hub) WriteFile(ctx context.Context, path string, data []byte, perm fs.FileMode, user sandbox.User) error {
	if len(data) > wire.InlineBytes {
		_, err := h.WriteFileFrom(ctx, path, bytes.NewReader(data), perm, user)
		return err
	}
	if data == nil {
		data = []byte{}
	}
	_, err := h.file(ctx, wire.TypeWriteFile, user, &wire.Path{Path: path, Perm: uint32(perm.Perm()), Data: data}, nil)
	return err
}

// ReplaceFile writes a file there if it has not changed.
func (h *Hub) ReplaceFile(ctx context.Context, path string, r io.Reader, was string, user sandbox.User) (int64, error) {
	hello, err := h.helloOf(ctx, user)
	if err != nil {
		return 0, err
	}
	needed, body := wire.CanCompare, &wire.Path{Path: path, IfSHA256: was}
	if was == sandbox.Absent {
		needed, body = wire.CanCreate, &wire.Path{Path: path, Perm: 0o644, IfAbsent: true}
	}
	if !slices.Contains(hello.Can, needed) {
		return 0, fault.New(fault.Unsupported, "the runner %q cannot compare a file before it writes; update secbox on that machine",
			hello.Name)
	}
	return h.writeFrom(ctx, body, r, user)
}

// WriteFileFrom streams a file to the user's machine. After a break the runner asks for the rest. A
// reader that is also an io.ReaderAt and an io.Seeker can continue anywhere; of others the last 16
// MiB are kept, and if the runner needs earlier content, the call fails and the file is as it was.
func (h *Hub) WriteFileFrom(ctx context.Context, path string, r io.Reader, perm fs.FileMode, user sandbox.User) (int64, error) {
	return h.writeFrom(ctx, &wire.Path{Path: path, Perm: uint32(perm.Perm())}, r, user)
}

// writeFrom writes the content of r; body is the rest of the request.
func (h *Hub) writeFrom(ctx context.Context, body *wire.Path, r io.Reader, user sandbox.User) (int64, error) {
	if err := h.checkPath(string(wire.TypeWriteFile), body.Path); err != nil {
		return 0, err
	}
	src := newReplay(r)
	defer src.free()
	small, err := src.readSmall(wire.InlineBytes)
	if err != nil {
		return 0, err
	}
	if small != nil {
		body.Data = small
		_, err = h.file(ctx, wire.TypeWriteFile, user, body, nil)
		return int64(len(small)), err
	}
	t := h.newTransfer()
	t.outgoing = &outgoing{replay: src}
	req, err := h.file(ctx, wire.TypeWriteFile, user, body, t)
	if err == nil && !t.outgoing.whole {
		err = t.violation("it reports a file as written that it has not fetched")
		h.closeForViolation(req.m, err)
	}
	return t.outgoing.hashed, err
}

// serveGet sends the content from an offset on.
func (t *transfer) serveGet(w http.ResponseWriter, r *http.Request, tr *transferRequest) {
	out := t.outgoing
	from, ok := parseRange(r.Header.Get("Range"))
	if !ok {
		http.Error(w, "Range must be bytes=N-", http.StatusBadRequest)
		return
	}
	if from > out.hashed || !out.replay.seek(from) {
		t.fail(fault.New(fault.RunnerOffline,
			"the connection to %s broke, and the rest of the content cannot be read again; the file is unchanged, try again",
			t.req.m.title()), false)
		http.Error(w, "the content at this offset is not available", http.StatusRequestedRangeNotSatisfiable)
		return
	}
	w.Header().Set("Trailer", wire.SizeTrailer+", "+wire.DigestTrailer)
	w.Header().Set("Connection", "close") // its deadlines must not apply to another request
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set(wire.OffsetHeader, strconv.FormatInt(from, 10))
	if from > 0 {
		w.WriteHeader(http.StatusPartialContent)
	}
	err := t.writeContent(w, tr)
	switch {
	case err == nil:
		w.Header().Set(wire.SizeTrailer, strconv.FormatInt(out.hashed, 10))
		w.Header().Set(wire.DigestTrailer, hex.EncodeToString(t.hash.Sum(nil)))
		if tr.extend(tr.rc.SetWriteDeadline, t.hub.cfg.Stall) == nil {
			out.whole = true
			return
		}
	case errors.Is(err, errSource):
		t.fail(sourceError(err), false)
	}
	tr.interrupt() // abort, so that the runner does not take a part for the whole
}

// writeContent writes the content up to its end.
func (t *transfer) writeContent(w http.ResponseWriter, tr *transferRequest) error {
	out := t.outgoing
	for {
		at, piece, err := out.replay.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := tr.extend(tr.rc.SetWriteDeadline, t.hub.cfg.Stall); err != nil {
			return err
		}
		if end := at + int64(len(piece)); end > out.hashed {
			t.hash.Write(piece[out.hashed-at:])
			out.hashed = end
		}
		if _, err = w.Write(piece); err != nil {
			return err
		}
		t.touch()
	}
}

var rangeHeader = regexp.MustCompile(`^bytes=(\d{1,18})-$`)

// parseRange parses "bytes=N-"; no range means from the beginning.
func parseRange(s string) (from int64, ok bool) {
	if s == "" {
		return 0, true
	}
	m := rangeHeader.FindStringSubmatch(s)
	if m == nil {
		return 0, false
	}
	from, err := strconv.ParseInt(m[1], 10, 64)
	return from, err == nil
}
