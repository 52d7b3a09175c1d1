package tools

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"

	"secbox/fault"
	"secbox/internal/admission"
	"secbox/sandbox"
)

// Bounds of transfers between a sandbox and the caller, in bytes.
const (
	maxInlineBytes = 1 << 20  // of a file that is in the answer, or in the arguments
	maxDigestBytes = 64 << 20 // of a file that is read only for its digest: on a user's machine that is a transfer
)

const (
	downloadDescription = `Gives a file of the user's workspace to the caller: one of up to 1 MiB as a resource in the answer, and of every file the path of the HTTP request that downloads it ` +
		`(up to 500 MiB), with its size, type and SHA-256.`
	uploadDescription = `Writes bytes from the caller to a file of the user's workspace, and makes its parent directories: up to 1 MiB in data. For more, and without data, the answer has the path of the ` +
		`HTTP request that uploads up to 500 MiB. As for files_write, an existing file must have been read or downloaded in this session.`
)

// DownloadParams are the arguments of Download.
type DownloadParams struct {
	Path string `json:"path" jsonschema:"the file: relative to the current directory, or absolute below /workspace"`
}

// UploadParams are the arguments of Upload.
type UploadParams struct {
	Path   string  `json:"path" jsonschema:"the file: relative to the current directory, or absolute below /workspace"`
	Data   *string `json:"data,omitempty" jsonschema:"the content in base64; left out: the answer says how to upload it by HTTP"`
	SHA256 string  `json:"sha256,omitempty" jsonschema:"the SHA-256 of the content in hexadecimal; data with another one is not written"`
}

// File is a file in a result.
type File struct {
	Path    string // in the sandbox, absolute
	Content []byte
}

// Download gives a file to the caller. Its Meta has path, size, mime, http_path and, of a file of
// up to maxDigestBytes, sha256.
func (s *Session) Download(ctx context.Context, p DownloadParams) (*Result, error) {
	full := path.Clean(s.resolve(p.Path))
	at, err := s.httpPath(full)
	if err != nil {
		return nil, err
	}
	info, err := s.sandbox.Stat(ctx, full, s.user)
	if err == nil && !info.Mode.IsRegular() {
		err = &fs.PathError{Op: "open", Path: full, Err: fs.ErrInvalid}
	}
	if err != nil {
		return nil, s.explain(ctx, full, err)
	}
	if info.Size > sandbox.MaxFileBytes {
		return nil, fault.New(fault.FileTooLarge, "%s has %d bytes, more than the %d that can be sent; split it with a command",
			quote(full), info.Size, int64(sandbox.MaxFileBytes))
	}
	if info.Size <= maxInlineBytes {
		if err := callerOf(ctx).reserve(3 * info.Size); err != nil { // base64 too
			return nil, err
		}
	}
	ctx, release := callerOf(ctx).present(ctx)
	defer release()
	got := &fileHead{sum: sha256.New(), keep: info.Size <= maxInlineBytes}
	bounded := &sandbox.BoundedWriter{W: admission.InTurns(ctx, got), Left: maxDigestBytes}
	if info.Size > maxDigestBytes { // only for its type
		bounded.Left = sniffBytes
	}
	size, err := s.sandbox.ReadFileTo(ctx, full, bounded, s.user)
	whole := err == nil
	switch {
	case bounded.Full:
		size = max(info.Size, maxDigestBytes+1)
	case err != nil:
		return nil, s.explain(ctx, full, err)
	}
	kind := http.DetectContentType(got.head)
	r := &Result{Meta: map[string]any{"path": full, "size": size, "mime": kind, "http_path": at}}
	r.Text = fmt.Sprintf("%s: %d bytes, %s\n", quote(full), size, kind)
	if whole {
		digest := hex.EncodeToString(got.sum.Sum(nil))
		s.sawFile(full, digest)
		r.Meta["sha256"] = digest
		r.Text += "sha256: " + digest + "\n"
	}
	r.Text += "download: GET " + at + " (with the header Want-Repr-Digest: sha-256=1 the answer has its digest)\n"
	if whole && got.keep {
		r.File = &File{Path: full, Content: got.head}
	}
	return r, nil
}

// Upload writes bytes from the caller. Its Meta has http_path, and with data also what Write's Meta
// has.
func (s *Session) Upload(ctx context.Context, p UploadParams) (*Result, error) {
	full := path.Clean(s.resolve(p.Path))
	at, err := s.httpPath(full)
	if err != nil {
		return nil, err
	}
	if p.Data == nil {
		return &Result{
			Meta: map[string]any{"path": full, "http_path": at},
			Text: fmt.Sprintf("upload: PUT %s with the content as the body, up to %d bytes.\n"+
				"Repr-Digest: sha-256=:…: has it checked, If-Match: \"sha256:…\" replaces only that content, If-None-Match: * makes only a "+
				"new file.\n", at, int64(sandbox.MaxFileBytes)),
		}, nil
	}
	if base64.StdEncoding.DecodedLen(len(*p.Data)) > maxInlineBytes+2 {
		return nil, fault.New(fault.FileTooLarge, "data has more than the %d bytes that an argument may have; upload it with PUT %s",
			maxInlineBytes, at)
	}
	content, err := base64.StdEncoding.DecodeString(*p.Data)
	if err != nil {
		return nil, badArgument("data", "is not base64 with the standard alphabet and padding")
	}
	if p.SHA256 != "" && !strings.EqualFold(p.SHA256, digestOf(content)) {
		return nil, badArgument("sha256", "is not the SHA-256 of the %d bytes in data, and nothing was written; send the file again",
			len(content))
	}
	r, err := s.put(ctx, uploadTool, full, content)
	if err == nil {
		r.Meta["http_path"] = at
	}
	return r, err
}

// httpPath returns the path and query of the route that serves a file of the workspace.
func (s *Session) httpPath(full string) (string, error) {
	below, ok := strings.CutPrefix(full, sandbox.Root+"/")
	if !ok {
		return "", fault.New(fault.PathRefused, "%s is not in /workspace; copy it there first", quote(full))
	}
	return "/v1/sandbox/" + url.PathEscape(s.user.ID) + "/" + url.PathEscape(s.user.AgentID) + "/file?path=" + url.QueryEscape(below), nil
}

// fileHead keeps the first bytes of a file, or all of a small one, and hashes all.
type fileHead struct {
	sum  hash.Hash
	keep bool // all, up to maxInlineBytes
	head []byte
}

func (h *fileHead) Write(p []byte) (int, error) {
	h.sum.Write(p)
	most := sniffBytes
	if h.keep {
		most = maxInlineBytes
	}
	room := most - len(h.head)
	if h.keep && len(p) > room { // it has grown
		h.keep = false
	}
	h.head = append(h.head, p[:min(len(p), max(room, 0))]...)
	return len(p), nil
}
