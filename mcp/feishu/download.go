package feishu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path"
	"time"

	"secbox/fault"
	"secbox/sandbox"
)

const (
	transferTimeout = time.Hour   // of one file
	stallTimeout    = time.Minute // of a body: some of it must arrive
	maxIDBytes      = 256
)

// Resource is a file in Feishu: of a message, or of the drive.
type Resource struct {
	MessageID, FileKey string // of a message, and of a file or image in it
	Type               string // file (also audio and video) or image
	FileToken          string // of a file in the drive, instead of the others
}

// Target is the part of a sandbox that Download writes to.
type Target interface {
	MkdirAll(ctx context.Context, path string, perm fs.FileMode, user sandbox.User) error
	WriteFileFrom(ctx context.Context, path string, r io.Reader, perm fs.FileMode, user sandbox.User) (int64, error)
}

// Downloaded is a file that Download has written.
type Downloaded struct {
	Bytes  int64
	SHA256 string // of the content, in hexadecimal
}

// Download writes a file of Feishu to a path of a sandbox, and makes the parents. An existing file
// is replaced only when all content has arrived. Feishu gives at most 100 MB of a message, the
// sandbox takes at most sandbox.MaxFileBytes.
func (c *Client) Download(ctx context.Context, from Resource, to Target, at string, user sandbox.User) (Downloaded, error) {
	if err := from.Check(); err != nil {
		return Downloaded{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	resp, _, err := c.exchange(ctx, func(ctx context.Context) (*http.Request, error) {
		return http.NewRequestWithContext(ctx, http.MethodGet, c.base+from.address(), nil)
	}, true)
	if err != nil {
		return Downloaded{}, err
	}
	defer resp.Body.Close()
	if resp.ContentLength > sandbox.MaxFileBytes {
		return Downloaded{}, fault.New(fault.FileTooLarge, "the file has %d bytes, more than %d", resp.ContentLength, sandbox.MaxFileBytes)
	}
	if err := to.MkdirAll(ctx, path.Dir(at), 0o755, user); err != nil {
		return Downloaded{}, err
	}
	sum := sha256.New()
	body := &watched{from: resp.Body, most: c.stall}
	body.stalled = time.AfterFunc(c.stall, func() { _ = resp.Body.Close() })
	body.stalled.Stop()
	n, err := to.WriteFileFrom(ctx, at, io.TeeReader(body, sum), 0o644, user)
	if err != nil {
		if body.err != nil {
			err = fault.Wrap(fault.UpstreamFailed, body.err, "Feishu stopped in the middle of the file; nothing was written; try again")
		}
		return Downloaded{}, err
	}
	return Downloaded{Bytes: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// watched reads a body that must not stall.
type watched struct {
	from    io.Reader
	most    time.Duration
	stalled *time.Timer // runs while Read waits, because the sandbox may take its time
	err     error       // other than the end
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	w.stalled.Reset(w.most)
	defer w.stalled.Stop()
	n, err := w.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
	return n, err
}

// Check refuses ids that cannot be Feishu's.
func (r Resource) Check() error {
	if r.FileToken != "" {
		return checkID("file_token", r.FileToken)
	}
	if err := checkID("message_id", r.MessageID); err != nil {
		return err
	}
	if r.Type != "file" && r.Type != "image" {
		return badArgument("type", "must be file or image; audio and video are files")
	}
	return checkID("file_key", r.FileKey)
}

// address returns the path and query of a checked resource.
func (r Resource) address() string {
	if r.FileToken != "" {
		return "/open-apis/drive/v1/files/" + r.FileToken + "/download"
	}
	return "/open-apis/im/v1/messages/" + r.MessageID + "/resources/" + r.FileKey + "?type=" + r.Type
}

// checkID refuses what cannot be one of Feishu's ids, so that it cannot name another endpoint.
func checkID(name, id string) error {
	ok := len(id) > 0 && len(id) <= maxIDBytes
	for _, r := range id {
		ok = ok && (r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}
	if !ok {
		return badArgument(name, "must be an id of Feishu: up to %d letters, digits, - and _", maxIDBytes)
	}
	return nil
}

// checkAnswer returns err, or an error for an id in an answer that cannot be one.
func checkAnswer(id string, err error) error {
	if err == nil && checkID("", id) != nil {
		err = fault.New(fault.UpstreamFailed, "Feishu's answer has no id that could be used; it may be done nevertheless")
	}
	return err
}

func badArgument(name, format string, args ...any) error {
	e := fault.BadField(name, format, args...)
	e.Code = fault.InvalidInputs
	return e
}
