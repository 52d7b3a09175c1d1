package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	stdhash "hash"
	"io"
	"net/http"
	"path"
	"time"

	"secbox/api/content"
	"secbox/api/decode"
	"secbox/api/inflight"
	"secbox/api/wire"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/packages/library"
	"secbox/sandbox"
)

// Routes for files of any content, up to library.MaxStreamBytes: a user's, and the end of a
// session's and a project's.
const (
	filePath    = "/v1/sandbox/{userId}/{agentId}/file"
	contentPath = "/files/content"
)

// DownloadSandboxFile sends a file of a user's workspace as it is. A file that SandboxRead returns
// is read first, so that its entity tag is known; a larger one is sent while it is read.
func (s *Server) DownloadSandboxFile(ctx context.Context, in wire.DownloadSandboxFileRequestObject) (wire.DownloadSandboxFileResponseObject,
	error,
) {
	o, err := owner(ctx, in.UserID, in.AgentID)
	if err != nil {
		return nil, err
	}
	files, err := s.filesOf(ctx, o)
	if err != nil {
		return nil, err
	}
	return nil, s.sendFile(ctx, path.Base(in.Params.Path), func() ([]byte, error) {
		small, err := files.SandboxRead(ctx, o, in.Params.Path)
		if err != nil {
			return nil, err
		}
		return small, callFrom(ctx).reserve(int64(len(small)))
	}, func() (library.Opened, error) { return files.SandboxOpen(ctx, o, in.Params.Path) })
}

// sendFile answers with a file: with what read returns or, if that is fault.FileTooLarge, with what
// open opens, while it is read.
func (s *Server) sendFile(ctx context.Context, name string, read func() ([]byte, error), open func() (library.Opened, error)) error {
	call := callFrom(ctx)
	f := content.File{Type: "application/octet-stream", SaveAs: name}
	small, err := read()
	switch {
	case err == nil:
		f.Content, f.SHA256 = inMemory{bytes.NewReader(small)}, hash(small)
	case fault.Is(err, fault.FileTooLarge):
		share, err := s.downloads.Enter(call.caller.ID, 0)
		if err != nil {
			return err
		}
		opened, err := open()
		if err != nil {
			share.Leave()
			return err
		}
		f.Content, f.Modified, f.Digest = &download{opened, share, time.Now().Add(s.cfg.Bounds.Download)}, opened.Modified, true
	default:
		return err
	}
	return call.answer(func(w http.ResponseWriter) error { return f.Serve(w, call.request) })
}

// inMemory is content without resources.
type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

// download is a large file that is being sent.
type download struct {
	library.Opened
	share *inflight.Reservation
	until time.Time
}

func (d *download) Read(p []byte) (int, error) {
	if time.Now().After(d.until) {
		return 0, errors.New("the download took too long")
	}
	return d.Opened.Read(p)
}

func (d *download) Close() error {
	defer d.share.Leave()
	return d.Opened.Close()
}

// UploadSandboxFile writes a file of a user's workspace from the body, whatever its bytes.
func (s *Server) UploadSandboxFile(ctx context.Context, in wire.UploadSandboxFileRequestObject) (wire.UploadSandboxFileResponseObject,
	error,
) {
	o, err := owner(ctx, in.UserID, in.AgentID)
	if err != nil {
		return nil, err
	}
	up, ctx, err := s.receive(ctx, in.Params.IfMatch, in.Params.IfNoneMatch, in.Body)
	if err != nil {
		return nil, err
	}
	defer up.end()
	execID, err := s.changeFile(ctx, o, "uploadSandboxFile", in.Params.Path, up.known(),
		func(ctx context.Context, files userFiles) (library.Digests, error) {
			digests, err := files.SandboxWrite(ctx, o, in.Params.Path, up.body, up.size, up.was)
			return up.digests(ctx, digests.Before, err)
		})
	if err != nil {
		return nil, err
	}
	out := wire.UploadSandboxFile200JSONResponse{Body: wire.V1WrittenAnswer{Status: envelopeSuccess, Data: up.written()}}
	out.Headers.ETag, out.Headers.XExecID = new(content.ETagOf(up.digest)), &execID
	return out, nil
}

// received is the content of a file that is being uploaded.
type received struct {
	body    *checkedBody
	size    int64  // of the body, as declared; -1: not known
	was     string // see condition
	digest  string // of the whole content; empty: it was not written
	tooLong error
	end     func() // to be called
}

// receive begins an upload, whose context it returns.
func (s *Server) receive(ctx context.Context, match, noneMatch *string, in io.Reader) (*received, context.Context, error) {
	call := callFrom(ctx)
	if err := decode.CheckBytes(call.request); err != nil {
		return nil, nil, err
	}
	was, err := condition(match, noneMatch)
	if err != nil {
		return nil, nil, err
	}
	want, err := content.RequestDigest(call.request.Header)
	if err != nil {
		return nil, nil, err
	}
	length := call.request.ContentLength
	if length > library.MaxStreamBytes {
		return nil, nil, errUploadTooLarge
	}
	counted, leave, err := s.uploads.Count(in, call.caller.ID, length)
	if err != nil {
		return nil, nil, err
	}
	tooLong := fault.New(fault.BodyTooSlow,
		"the upload took longer than %v, and nothing was written; send a smaller file, or over a faster connection", s.cfg.Bounds.Download)
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Bounds.Download, tooLong)
	return &received{
		body: &checkedBody{ctx: ctx, r: counted, sum: sha256.New(), want: want}, size: length, was: was, tooLong: tooLong,
		end: func() {
			cancel()
			leave()
		},
	}, ctx, nil
}

// known are the digests from the request.
func (up *received) known() sandbox.Digests {
	return sandbox.Digests{Before: up.was, After: up.body.want, Size: up.size}
}

// digests are those for the record, after the content was written or err was the reason why not.
func (up *received) digests(ctx context.Context, before string, err error) (library.Digests, error) {
	if up.was != "" && fault.Is(err, fault.FileChanged) {
		err = fault.Wrap(fault.PreconditionFailed, err, "%s", fault.From(err).Message)
	}
	if errors.Is(err, context.DeadlineExceeded) && fault.CodeOf(err) == fault.Internal && errors.Is(context.Cause(ctx), up.tooLong) {
		err = up.tooLong // a user's machine has given up
	}
	if err != nil {
		return library.Digests{Before: before}, err
	}
	up.digest = hex.EncodeToString(up.body.sum.Sum(nil))
	return library.Digests{Before: before, After: up.digest, Size: up.body.size}, nil
}

func (up *received) written() wire.V1Written {
	return wire.V1Written{Size: up.body.size, Sha256: up.digest}
}

// condition returns the digest that the file must have now, library.Absent if there must be none,
// or an empty string.
func condition(ifMatch, ifNoneMatch *string) (string, error) {
	match, none := value(ifMatch), value(ifNoneMatch)
	switch {
	case none != "" && match != "":
		return "", fault.BadField("If-None-Match", "contradicts If-Match; give one of them")
	case none == "*":
		return library.Absent, nil
	case none != "":
		return "", fault.BadField("If-None-Match", "must be *, which means that the file must not exist")
	case match != "":
		digest, ok := content.DigestOf(match)
		if !ok {
			return "",
				fault.BadField("If-Match", `must be one ETag of this route, "sha256:…", with the SHA-256 of the content in hexadecimal`)
		}
		return digest, nil
	}
	return "", nil
}

var errUploadTooLarge = fault.New(fault.FileTooLarge, "the file has more than %d bytes, the most that can be written",
	int64(library.MaxStreamBytes))

// checkedBody is a body whose end is an error if it is too large or has another digest than the
// request says.
type checkedBody struct {
	ctx  context.Context // of the request
	r    io.Reader
	sum  stdhash.Hash
	want string // SHA-256 in hexadecimal; empty: any
	size int64
}

func (b *checkedBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.size += int64(n)
	hashing := admission.Do(b.ctx, func() error {
		_, err := b.sum.Write(p[:n])
		return err
	})
	switch {
	case hashing != nil:
		return 0, hashing
	case b.size > library.MaxStreamBytes:
		return 0, errUploadTooLarge
	case errors.Is(err, io.EOF) && b.want != "" && hex.EncodeToString(b.sum.Sum(nil)) != b.want:
		return 0,
			fault.BadField("Repr-Digest", "is not the SHA-256 of the %d bytes that arrived, and nothing was written: send the file again",
				b.size)
	case err != nil && !errors.Is(err, io.EOF) && fault.CodeOf(err) == fault.Internal:
		return 0, fault.Wrap(fault.InvalidRequest, errors.Join(io.ErrUnexpectedEOF, err), "the body was cut off: send all of it again")
	}
	return n, err
}
