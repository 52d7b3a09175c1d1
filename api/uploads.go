package api

import (
	"cmp"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"syscall"

	"github.com/labstack/echo/v4"

	"secbox/fault"
)

// DefaultMaxUploadBytes is the largest archive when Config sets none: 256 MiB.
const DefaultMaxUploadBytes = 256 << 20

// formBytes is what a form may take beside its file: boundaries, headers, a few small fields.
const formBytes = 64 << 10

// uploads is where archives wait on the disk until they are unpacked, so that none of them sits in memory.
type uploads struct {
	dir      string
	maxBytes int64
	waiting  *quota
	room     func() (bytes uint64, err error) // on the disk of dir; nil: nobody knows
}

// maxScope is how much of the form's field scope is read, in bytes; its values are shorter.
const maxScope = 64

// keptFree is what an upload leaves on the disk of the state dir, in bytes: the database and the spool of the audit lie there too.
const keptFree = 16 << 20

// openUploads makes the directory and empties it of what an earlier process left.
func openUploads(dir string, maxBytes int64, b Bounds) (uploads, error) {
	if maxBytes <= 0 {
		maxBytes = DefaultMaxUploadBytes
	}
	err := os.RemoveAll(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return uploads{}, fault.Wrap(fault.InvalidSettings, err, "%s cannot be emptied and made anew; it must belong to the user that runs core-api", dir)
	}
	return uploads{dir: dir, maxBytes: maxBytes, waiting: newQuota("uploads", share{b.Uploads, b.UploadBytes}, share{b.UploadsPerToken, b.BytesPerToken})}, nil
}

// gate refuses what is no form before its body is looked at, and bounds the body.
func (u uploads) gate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil || media != "multipart/form-data" || params["boundary"] == "" {
			return fault.New(fault.UnsupportedMedia, "the Content-Type is %q; send a form (multipart/form-data) with the archive as file: curl -F file=@myskill.zip",
				clip(r.Header.Get("Content-Type")))
		}
		if coding := r.Header.Get("Content-Encoding"); coding != "" {
			return fault.New(fault.UnsupportedMedia, "the Content-Encoding is %q; send the form as it is", clip(coding))
		}
		if r.ContentLength > u.maxBytes+formBytes {
			return u.tooLarge()
		}
		r.Body = http.MaxBytesReader(c.Response(), r.Body, u.maxBytes+formBytes)
		return next(c)
	}
}

func (u uploads) tooLarge() error {
	return fault.New(fault.ArchiveTooLarge, "the upload has more than the %d bytes that this server takes; the setting skills.max_upload_bytes says how many", u.maxBytes)
}

// upload is an archive on the disk. Close removes it.
type upload struct {
	*os.File
	*stay
	name  string  // what the client called it
	scope *string // the form's field; nil: not given
	size  int64
}

// Close removes the archive.
func (u *upload) Close() error {
	err := errors.Join(u.File.Close(), os.Remove(u.Name()))
	u.leave()
	return err
}

// checkRoom refuses what cannot have room, before it is sent: a length that is not given, -1, is found out by writing.
func (u uploads) checkRoom(length int64) error {
	if u.room == nil || length <= 0 {
		return nil
	}
	free, err := u.room()
	if err != nil {
		return stateDirFailed(err)
	}
	if free < uint64(length)+keptFree {
		return fault.New(fault.DiskFull, "the upload has %d bytes, and the state dir's disk has %d free, of which %d are kept: make room, or send a smaller archive",
			length, free, keptFree)
	}
	return nil
}

// take writes the form's one file to the disk, for a token; length is that of the body, -1 when it is not known.
func (u uploads) take(form *multipart.Reader, token string, length int64) (_ *upload, err error) {
	if err := u.checkRoom(length); err != nil {
		return nil, err
	}
	var taken *upload
	var scope *string
	waits, err := u.waiting.enter(token, length)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			waits.leave()
		}
		if err != nil && taken != nil {
			taken.Close()
		}
	}()
	for {
		part, err := form.NextRawPart()
		switch {
		case errors.Is(err, io.EOF) && taken == nil:
			return nil, fault.BadField("file", "is missing; send the archive as the form's file: curl -F file=@myskill.zip")
		case errors.Is(err, io.EOF):
			taken.scope = scope
			return taken, nil
		case err != nil:
			return nil, u.cutOff(err)
		case part.FormName() == "scope":
			if scope != nil {
				return taken, fault.BadField("scope", "is given more than once")
			}
			value, err := io.ReadAll(io.LimitReader(part, maxScope))
			if err != nil {
				return taken, u.cutOff(err)
			}
			scope = new(string(value))
			continue
		case part.FormName() != "file":
			return taken, fault.BadField(cmp.Or(clip(part.FormName()), "form"), "the form has two fields only, file and scope")
		case taken != nil:
			return taken, fault.BadField("file", "is given more than once")
		}
		if taken, err = u.keep(part, waits); err != nil {
			return taken, err
		}
	}
}

func (u uploads) keep(part *multipart.Part, waits *stay) (*upload, error) {
	f, err := os.CreateTemp(u.dir, "*.zip")
	if err != nil {
		return nil, stateDirFailed(err)
	}
	taken := &upload{File: f, stay: waits, name: part.FileName()}
	written := &noting{Writer: f, waits: waits}
	taken.size, err = io.Copy(written, io.LimitReader(part, u.maxBytes+1))
	switch {
	case fault.Is(written.err, fault.SkillsBusy):
		return taken, written.err
	case written.err != nil:
		return taken, stateDirFailed(written.err)
	case err != nil:
		return taken, u.cutOff(err)
	case taken.size > u.maxBytes:
		return taken, u.tooLarge()
	}
	return taken, nil
}

// cutOff is an error of reading the form: too much of it, or too little.
func (u uploads) cutOff(err error) error {
	if tooMuch := (*http.MaxBytesError)(nil); errors.As(err, &tooMuch) {
		return u.tooLarge()
	}
	return fault.New(fault.InvalidRequest, "the form is broken or was cut off: send it again, completely")
}

// noting counts what is written, and remembers an error of the disk, to tell it from one of the connection.
type noting struct {
	io.Writer
	waits *stay
	err   error
}

func (n *noting) Write(p []byte) (int, error) {
	if n.err = n.waits.grow(int64(len(p))); n.err != nil {
		return 0, n.err
	}
	k, err := n.Writer.Write(p)
	n.err = err
	return k, err
}

func stateDirFailed(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fault.Wrap(fault.DiskFull, err, "the state dir has no room for the upload; free some, or send a smaller archive")
	}
	return fault.Wrap(fault.Internal, err, "the upload cannot be kept in the state dir")
}
