// Package upload receives archives as multipart forms and keeps them on disk until they are
// unpacked, so that none of them is held in memory. It must not know skills or what an archive
// contains.
package upload

import (
	"cmp"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"

	"github.com/labstack/echo/v4"

	"secbox/api/inflight"
	"secbox/api/problem"
	"secbox/fault"
	"secbox/workspace/diskspace"
)

const (
	defaultMaxBytes = 256 << 20

	formBytes  = 64 << 10 // of a form beside its file: boundaries, headers, a few small fields
	scopeBytes = 64       // of the field scope that are read; its values are shorter

	// keptFree is how much an upload leaves free on the disk of the state directory, in bytes: the
	// database and the audit spool need it.
	keptFree = 16 << 20
)

// Config says where archives are kept and how many.
type Config struct {
	Dir      string // belongs to the Receiver, which empties it
	MaxBytes int64  // of one archive; 0: 256 MiB
	Quota    *inflight.Quota

	// Free returns the free bytes on the disk of Dir; nil: an upload fails when the disk is full.
	Free func() (bytes uint64, err error)
}

// Receiver is safe for concurrent use.
type Receiver struct{ cfg Config }

// Open makes the directory and removes what an earlier process left in it.
func Open(cfg Config) (*Receiver, error) {
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = defaultMaxBytes
	}
	err := os.RemoveAll(cfg.Dir)
	if err == nil {
		err = os.MkdirAll(cfg.Dir, 0o700)
	}
	if err != nil {
		return nil, fault.Wrap(fault.InvalidSettings, err, "cannot empty and recreate %s; it must belong to the user that runs core-api",
			cfg.Dir)
	}
	return &Receiver{cfg}, nil
}

// Gate is a middleware that refuses a request without a form before its body is read, and bounds
// the body.
func (u *Receiver) Gate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil || media != "multipart/form-data" || params["boundary"] == "" {
			return fault.New(fault.UnsupportedMedia,
				"the Content-Type is %q; send a form (multipart/form-data) with the archive as file: curl -F file=@myskill.zip",
				problem.Clip(r.Header.Get("Content-Type")))
		}
		if coding := r.Header.Get("Content-Encoding"); coding != "" {
			return fault.New(fault.UnsupportedMedia, "the Content-Encoding is %q; send the form without one", problem.Clip(coding))
		}
		if r.ContentLength > u.cfg.MaxBytes+formBytes {
			return u.tooLarge()
		}
		r.Body = http.MaxBytesReader(c.Response(), r.Body, u.cfg.MaxBytes+formBytes)
		return next(c)
	}
}

func (u *Receiver) tooLarge() error {
	return fault.New(fault.ArchiveTooLarge, "the upload has more than %d bytes; the setting skills.max_upload_bytes raises the limit",
		u.cfg.MaxBytes)
}

// Archive is a received file. Close removes it.
type Archive struct {
	*os.File
	ClientName string  // of the file, as the client gave it
	Scope      *string // the form's field scope; nil: absent
	Size       int64   // in bytes

	reservation *inflight.Reservation
}

// Close removes the archive and gives back its share of the quota.
func (a *Archive) Close() error {
	err := errors.Join(a.File.Close(), os.Remove(a.Name()))
	a.reservation.Leave()
	return err
}

// Receive writes the form's one file to disk. length is the body's, -1 if unknown. The caller must
// close the archive.
func (u *Receiver) Receive(form *multipart.Reader, token string, length int64) (_ *Archive, err error) {
	if err := u.checkFree(length); err != nil {
		return nil, err
	}
	reservation, err := u.cfg.Quota.Enter(token, length)
	if err != nil {
		return nil, err
	}
	var archive *Archive
	var scope *string
	defer func() {
		if err != nil {
			reservation.Leave()
		}
		if err != nil && archive != nil {
			archive.Close()
		}
	}()
	for {
		part, err := form.NextRawPart()
		switch {
		case errors.Is(err, io.EOF) && archive == nil:
			return nil, fault.BadField("file", "is missing; send the archive as the form's file: curl -F file=@myskill.zip")
		case errors.Is(err, io.EOF):
			archive.Scope = scope
			return archive, nil
		case err != nil:
			return nil, u.formFailed(err)
		case part.FormName() == "scope":
			if scope != nil {
				return nil, fault.BadField("scope", "is given more than once")
			}
			value, err := io.ReadAll(io.LimitReader(part, scopeBytes))
			if err != nil {
				return nil, u.formFailed(err)
			}
			scope = new(string(value))
			continue
		case part.FormName() != "file":
			return nil, fault.BadField(cmp.Or(problem.Clip(part.FormName()), "form"),
				"is unknown; the form has only the fields file and scope")
		case archive != nil:
			return nil, fault.BadField("file", "is given more than once")
		}
		if archive, err = u.save(part, reservation); err != nil {
			return nil, err
		}
	}
}

// Count counts a body that is stored elsewhere like an archive: r must be read instead of it. The
// caller must call leave when it is stored.
func (u *Receiver) Count(body io.Reader, token string, length int64) (r io.Reader, leave func(), err error) {
	reservation, err := u.cfg.Quota.Enter(token, length)
	if err != nil {
		return nil, nil, err
	}
	return countingReader{body, reservation}, reservation.Leave, nil
}

// countingReader counts bytes before it returns them.
type countingReader struct {
	io.Reader
	reservation *inflight.Reservation
}

func (r countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if busy := r.reservation.Grow(int64(n)); busy != nil {
		return 0, busy
	}
	return n, err
}

// checkFree refuses a body of known length that the disk has no room for.
func (u *Receiver) checkFree(length int64) error {
	if u.cfg.Free == nil || length <= 0 {
		return nil
	}
	free, err := u.cfg.Free()
	if err != nil {
		return diskFailed(err)
	}
	return diskspace.StateDir(keptFree, "or send a smaller archive").Check(diskspace.Space{Bytes: free},
		diskspace.Space{Bytes: uint64(length)})
}

// save returns the archive beside an error if its file exists.
func (u *Receiver) save(part *multipart.Part, reservation *inflight.Reservation) (*Archive, error) {
	f, err := os.CreateTemp(u.cfg.Dir, "*.zip")
	if err != nil {
		return nil, diskFailed(err)
	}
	archive := &Archive{File: f, ClientName: part.FileName(), reservation: reservation}
	w := &countingWriter{Writer: f, reservation: reservation}
	archive.Size, err = io.Copy(w, io.LimitReader(part, u.cfg.MaxBytes+1))
	switch {
	case fault.Is(w.err, fault.SkillsBusy):
		return archive, w.err
	case w.err != nil:
		return archive, diskFailed(w.err)
	case err != nil:
		return archive, u.formFailed(err)
	case archive.Size > u.cfg.MaxBytes:
		return archive, u.tooLarge()
	}
	return archive, nil
}

// formFailed returns the fault of an error while reading the form.
func (u *Receiver) formFailed(err error) error {
	if limit := (*http.MaxBytesError)(nil); errors.As(err, &limit) {
		return u.tooLarge()
	}
	return fault.New(fault.InvalidRequest, "the form is malformed or was cut off: send all of it again")
}

// countingWriter counts bytes before it writes them. It keeps its error apart from the errors of
// the connection.
type countingWriter struct {
	io.Writer
	reservation *inflight.Reservation
	err         error
}

func (w *countingWriter) Write(p []byte) (n int, err error) {
	if w.err = w.reservation.Grow(int64(len(p))); w.err != nil {
		return 0, w.err
	}
	n, w.err = w.Writer.Write(p)
	return n, w.err
}

func diskFailed(err error) error {
	if diskspace.IsFull(err) {
		return fault.Wrap(fault.DiskFull, err, "the state directory's disk is full; free some space, or send a smaller archive")
	}
	return fault.Wrap(fault.Internal, err, "cannot write the upload to the state directory")
}
