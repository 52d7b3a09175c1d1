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
}

// openUploads makes the directory and empties it of what an earlier process left.
func openUploads(dir string, maxBytes int64) (uploads, error) {
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
	return uploads{dir, maxBytes}, nil
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
	name string // what the client called it
	size int64
}

// Close removes the archive.
func (u *upload) Close() error {
	return errors.Join(u.File.Close(), os.Remove(u.Name()))
}

// take writes the form's one file to the disk.
func (u uploads) take(form *multipart.Reader) (_ *upload, err error) {
	var taken *upload
	defer func() {
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
			return taken, nil
		case err != nil:
			return nil, u.cutOff(err)
		case part.FormName() != "file":
			return taken, fault.BadField(cmp.Or(clip(part.FormName()), "form"), "the form has one field only, file; scope belongs into the query")
		case taken != nil:
			return taken, fault.BadField("file", "is given more than once")
		}
		if taken, err = u.keep(part); err != nil {
			return taken, err
		}
	}
}

func (u uploads) keep(part *multipart.Part) (*upload, error) {
	f, err := os.CreateTemp(u.dir, "*.zip")
	if err != nil {
		return nil, stateDirFailed(err)
	}
	taken := &upload{File: f, name: part.FileName()}
	written := &noting{Writer: f}
	taken.size, err = io.Copy(written, io.LimitReader(part, u.maxBytes+1))
	switch {
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

// noting remembers an error of the disk, to tell it from one of the connection.
type noting struct {
	io.Writer
	err error
}

func (n *noting) Write(p []byte) (int, error) {
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
