package feishu

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/adler32"
	"io"
	"mime/multipart"
	"net/http"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"secbox/fault"
	"secbox/sandbox"
)

// Feishu's bounds.
const (
	maxFileBytes  = 30 << 20 // of im/v1/files
	maxImageBytes = 10 << 20 // of im/v1/images
	maxNameRunes  = 250
)

// MaxBlockBytes is how much memory an Upload with a Folder uses at most. Feishu's blocks have 4
// MiB.
const MaxBlockBytes = 16 << 20

// Source is the part of a sandbox that Upload reads.
type Source interface {
	Stat(ctx context.Context, path string, user sandbox.User) (*sandbox.FileInfo, error)
	ReadFileTo(ctx context.Context, path string, w io.Writer, user sandbox.User) (int64, error)
}

// Upload says how a file is uploaded.
type Upload struct {
	Path   string // in the sandbox
	Name   string // in Feishu; empty: the last part of the path
	Image  bool   // to be shown as an image in a message; at most 10 MiB
	Folder string // token of the drive's folder, for a file of more than 30 MiB
}

// Uploaded is a file in Feishu. Either Key or Token is set. After an error, it only has the bytes
// that were sent nevertheless.
type Uploaded struct {
	Key    string // for a message
	Token  string // of a file in the drive
	Bytes  int64  // that were sent, or read to be sent when the transfer broke
	SHA256 string // of these bytes, in hexadecimal; empty: none

	messageType string // of a message with Key: file, image, audio or media
}

// Upload uploads a file of a sandbox: for a message, or to the drive if it has more than 30 MiB.
// Feishu takes no empty files.
func (c *Client) Upload(ctx context.Context, u Upload, from Source, user sandbox.User) (got Uploaded, err error) {
	if u.Name == "" {
		u.Name = path.Base(u.Path)
	}
	if !utf8.ValidString(u.Name) || utf8.RuneCountInString(u.Name) > maxNameRunes || strings.ContainsFunc(u.Name, unicode.IsControl) ||
		strings.ContainsRune(u.Name, '/') {
		return Uploaded{}, badArgument("name", "must be a file name of at most %d characters, without slashes and control characters",
			maxNameRunes)
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	info, err := from.Stat(ctx, u.Path, user)
	if err != nil {
		return Uploaded{}, err
	}
	file := source{from: from, path: u.Path, user: user, bytes: info.Size, sent: &sent{}}
	defer func() { got.Bytes, got.SHA256 = file.sent.bytes, file.sent.digest() }()
	switch {
	case info.IsDir || !info.Mode.IsRegular():
		return Uploaded{}, sandbox.Invalid("upload", u.Path)
	case info.Size == 0:
		return Uploaded{}, badArgument("path", "the file is empty, which Feishu does not take")
	case info.Size > sandbox.MaxFileBytes:
		return Uploaded{}, fault.New(fault.FileTooLarge, "the file has %d bytes, more than %d", info.Size, sandbox.MaxFileBytes)
	case u.Image && info.Size > maxImageBytes:
		return Uploaded{}, fault.New(fault.FileTooLarge, "the image has %d bytes, and Feishu takes %d; send it as a file", info.Size,
			maxImageBytes)
	case u.Image:
		return c.uploadImage(ctx, file, u.Name)
	case info.Size <= maxFileBytes:
		return c.uploadFile(ctx, file, u.Name)
	case u.Folder == "":
		return Uploaded{}, fault.New(fault.FileTooLarge,
			"the file has %d bytes, and a message takes %d; give folder, the token of a folder of Feishu's drive, to upload it there",
			info.Size, maxFileBytes)
	}
	if err := checkID("folder", u.Folder); err != nil {
		return Uploaded{}, err
	}
	return c.uploadToDrive(ctx, file, u.Name, u.Folder)
}

// typeOf returns the type of a file for im/v1/files, and of a message with it.
func typeOf(name string) (file, message string) {
	switch ext := strings.ToLower(path.Ext(name)); ext {
	case ".opus":
		return "opus", "audio"
	case ".mp4":
		return "mp4", "media"
	case ".pdf", ".doc", ".xls", ".ppt":
		return ext[1:], "file"
	case ".docx", ".xlsx", ".pptx":
		return ext[1:4], "file"
	}
	return "stream", "file"
}

func (c *Client) uploadFile(ctx context.Context, file source, name string) (Uploaded, error) {
	kind, message := typeOf(name)
	var got struct {
		Key string `json:"file_key"`
	}
	err := c.call(ctx, &got, c.form("/open-apis/im/v1/files", file, name, "file", "file_type", kind, "file_name", name))
	return Uploaded{Key: got.Key, messageType: message}, checkAnswer(got.Key, err)
}

func (c *Client) uploadImage(ctx context.Context, file source, name string) (Uploaded, error) {
	var got struct {
		Key string `json:"image_key"`
	}
	err := c.call(ctx, &got, c.form("/open-apis/im/v1/images", file, name, "image", "image_type", "message"))
	return Uploaded{Key: got.Key, messageType: "image"}, checkAnswer(got.Key, err)
}

// uploadToDrive uploads a file block by block: the drive takes no calls at once. The file is read
// once.
func (c *Client) uploadToDrive(ctx context.Context, file source, name, folder string) (Uploaded, error) {
	const base = "/open-apis/drive/v1/files/"
	var plan struct {
		ID     string `json:"upload_id"`
		Bytes  int64  `json:"block_size"`
		Blocks int64  `json:"block_num"`
	}
	if err := c.callDrive(ctx, &plan, c.post(base+"upload_prepare", map[string]any{
		"file_name": name, "parent_type": "explorer", "parent_node": folder, "size": file.bytes,
	})); err != nil {
		return Uploaded{}, err
	}
	if checkID("", plan.ID) != nil || plan.Bytes <= 0 || plan.Bytes > MaxBlockBytes || plan.Blocks != (file.bytes+plan.Bytes-1)/plan.Bytes {
		return Uploaded{}, fault.New(fault.UpstreamFailed, "Feishu wants %d bytes in %d blocks of %d, which cannot be", file.bytes,
			plan.Blocks, plan.Bytes)
	}
	blocks := &blockWriter{block: make([]byte, 0, plan.Bytes), put: func(n int64, block []byte) error {
		return c.callDrive(ctx, nil, c.form(base+"upload_part", memory(block), name, "file",
			"upload_id", plan.ID, "seq", strconv.FormatInt(n, 10), "size", strconv.Itoa(len(block)), "checksum",
			strconv.FormatUint(uint64(adler32.Checksum(block)), 10)))
	}}
	err := file.copyTo(ctx, blocks)
	if blocks.err != nil { // the sandbox's error only repeats it
		err = blocks.err
	}
	if err == nil {
		err = blocks.flush()
	}
	if err != nil {
		return Uploaded{}, err
	}
	var got struct {
		Token string `json:"file_token"`
	}
	err = c.callDrive(ctx, &got, c.post(base+"upload_finish", map[string]any{"upload_id": plan.ID, "block_num": plan.Blocks}))
	return Uploaded{Token: got.Token}, checkAnswer(got.Token, err)
}

// blockWriter passes on what is written to it in blocks of the capacity of block.
type blockWriter struct {
	block []byte
	n     int64
	put   func(n int64, block []byte) error
	err   error
}

// Write implements io.Writer.
func (b *blockWriter) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		if len(b.block) == cap(b.block) {
			if b.err = b.flush(); b.err != nil {
				return written, b.err
			}
		}
		take := min(len(p), cap(b.block)-len(b.block))
		b.block = append(b.block, p[:take]...)
		p, written = p[take:], written+take
	}
	return written, nil
}

func (b *blockWriter) flush() error {
	err := b.put(b.n, b.block)
	b.n, b.block = b.n+1, b.block[:0]
	return err
}

// content is the content of a form's file.
type content interface {
	size() int64
	copyTo(ctx context.Context, w io.Writer) error // exactly size bytes, or an error
}

type memory []byte

func (m memory) size() int64 { return int64(len(m)) }

func (m memory) copyTo(_ context.Context, w io.Writer) error {
	_, err := w.Write(m)
	return err
}

// source is a file of a sandbox with the size that it had.
type source struct {
	from  Source
	path  string
	user  sandbox.User
	bytes int64
	sent  *sent
}

// sent is what was read of a file to be sent. A request that is sent again begins anew.
type sent struct {
	bytes int64
	sum   hash.Hash
}

func (s *sent) digest() string {
	if s.bytes == 0 {
		return ""
	}
	return hex.EncodeToString(s.sum.Sum(nil))
}

// Write implements io.Writer.
func (s *sent) Write(p []byte) (int, error) {
	s.bytes += int64(len(p))
	return s.sum.Write(p)
}

func (s source) size() int64 { return s.bytes }

func (s source) copyTo(ctx context.Context, w io.Writer) error {
	s.sent.bytes, s.sent.sum = 0, sha256.New()
	exact := &sandbox.BoundedWriter{W: io.MultiWriter(w, s.sent), Left: s.bytes}
	_, err := s.from.ReadFileTo(ctx, s.path, exact, s.user)
	if exact.Full || err == nil && exact.Left > 0 {
		return fault.New(fault.FileChanged, "%s changed while it was uploaded; try again", path.Base(s.path))
	}
	return err
}

// form returns a function that makes a request with a multipart form: fields are names and values,
// and the file comes last. The content is streamed.
func (c *Client) form(address string, file content, fileName, fileField string, fields ...string) func(context.Context) (*http.Request,
	error) {
	return func(ctx context.Context) (*http.Request, error) {
		var frame bytes.Buffer
		w := multipart.NewWriter(&frame)
		for n := 0; n < len(fields); n += 2 {
			if err := w.WriteField(fields[n], fields[n+1]); err != nil {
				return nil, err
			}
		}
		if _, err := w.CreateFormFile(fileField, fileName); err != nil {
			return nil, err
		}
		before := frame.Len()
		if err := w.Close(); err != nil {
			return nil, err
		}
		body := startBody(ctx, file, frame.Bytes()[:before], frame.Bytes()[before:])
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+address, body)
		if err != nil {
			_ = body.Close()
			return nil, fmt.Errorf("feishu: %w", err)
		}
		req.ContentLength = int64(frame.Len()) + file.size()
		req.Header.Set("Content-Type", w.FormDataContentType())
		return req, nil
	}
}

// body is the body of a form. Close waits until the file is not read any more.
type body struct {
	io.Reader
	pipe   *io.PipeReader
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of the content; before done is closed, only its goroutine uses it
}

func startBody(ctx context.Context, file content, before, after []byte) *body {
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	b := &body{
		Reader: io.MultiReader(bytes.NewReader(before), r, bytes.NewReader(after)), pipe: r, cancel: cancel,
		done: make(chan struct{}),
	}
	go func() {
		defer close(b.done)
		b.err = file.copyTo(ctx, w)
		_ = w.CloseWithError(b.err)
	}()
	return b
}

// Close implements io.Closer. Safe to call twice.
func (b *body) Close() error {
	_ = b.pipe.Close()
	b.cancel()
	<-b.done
	return nil
}

// Err returns the error that ended the content, if it was not Close. Called after Close.
func (b *body) Err() error {
	for _, ended := range []error{io.ErrClosedPipe, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(b.err, ended) {
			return nil
		}
	}
	return b.err
}
