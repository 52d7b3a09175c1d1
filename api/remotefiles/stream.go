package remotefiles

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"

	"secbox/fault"
	"secbox/packages/library"
	"secbox/sandbox"
)

// SandboxOpen opens a file of at most sandbox.MaxFileBytes. It can be read from any offset, but a
// sandbox sends files from the beginning: everything before the offset is transferred too.
func (f Files) SandboxOpen(ctx context.Context, _ library.Owner, name string) (library.Opened, error) {
	full, err := sandboxPath(name)
	if err != nil {
		return library.Opened{}, err
	}
	info, err := f.Sandbox.Stat(ctx, full, f.User)
	if err == nil && !info.Mode.IsRegular() {
		err = &fs.PathError{Op: "open", Path: full, Err: fs.ErrInvalid}
	}
	if err != nil {
		return library.Opened{}, Fault(err)
	}
	if info.Size > sandbox.MaxFileBytes {
		return library.Opened{}, fault.New(fault.FileTooLarge, "%q has %d bytes, more than the %d that can be sent", name, info.Size,
			int64(sandbox.MaxFileBytes))
	}
	r := &reader{size: max(0, info.Size), read: func(w io.Writer) error {
		_, err := f.Sandbox.ReadFileTo(ctx, full, w, f.User)
		return Fault(err)
	}}
	return library.Opened{ReadSeekCloser: r, Size: r.size, Modified: info.ModTime}, nil
}

// reader reads a file from any offset. It returns the last byte only after read has succeeded and
// the size is right, so that a reader of the whole file has what the machine has.
type reader struct {
	size int64
	read func(w io.Writer) error // writes the whole file

	at   int64
	pipe *io.PipeReader // of the call of read in progress; nil: none
	done chan struct{}  // closed when that call has ended
}

// Seek implements io.Seeker.
func (r *reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 {
		return 0, fs.ErrInvalid
	}
	if offset != r.at {
		r.stop()
		r.at = offset
	}
	return offset, nil
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if r.at >= r.size {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	if r.pipe == nil {
		r.start()
	}
	n, err := r.pipe.Read(p[:min(int64(len(p)), r.size-r.at)])
	switch {
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF // it has shrunk
	case err == nil && r.at+int64(n) == r.size:
		err = r.verify()
	}
	if err != nil {
		return 0, err
	}
	r.at += int64(n)
	return n, nil
}

var errGrown = errors.New("the file has grown while it was read")

// verify waits for the end of the file.
func (r *reader) verify() error {
	n, err := r.pipe.Read(make([]byte, 1))
	switch {
	case n > 0:
		return errGrown
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}

// start begins a call of read whose first bytes are dropped.
func (r *reader) start() {
	pipe, w := io.Pipe()
	r.pipe, r.done = pipe, make(chan struct{})
	go func(done chan struct{}, skip int64) {
		defer close(done)
		w.CloseWithError(r.read(&skipper{w, skip}))
	}(r.done, r.at)
}

// stop ends the call of read in progress and waits for it.
func (r *reader) stop() {
	if r.pipe != nil {
		r.pipe.Close()
		<-r.done
		r.pipe = nil
	}
}

// Close implements io.Closer.
func (r *reader) Close() error {
	r.stop()
	return nil
}

// skipper drops the first bytes.
type skipper struct {
	w    io.Writer
	skip int64
}

func (s *skipper) Write(p []byte) (int, error) {
	dropped := int(min(s.skip, int64(len(p))))
	s.skip -= int64(dropped)
	if dropped == len(p) {
		return dropped, nil
	}
	n, err := s.w.Write(p[dropped:])
	return dropped + n, err
}

// SandboxWrite replaces a file with the content of r and creates its parent directories. Nothing
// else is changed if r fails. If was is not empty, the present content must have that SHA-256, in
// hexadecimal, or be library.Absent: fault.FileChanged. The machine checks its disk. Of the Digests
// it sets Before.
func (f Files) SandboxWrite(ctx context.Context, _ library.Owner, name string, r io.Reader, _ int64, was string) (d library.Digests,
	err error,
) {
	full, err := sandboxPath(name)
	if err != nil {
		return d, err
	}
	info, err := f.Sandbox.Stat(ctx, full, f.User)
	absent := errors.Is(err, fs.ErrNotExist)
	switch { // refuse a hopeless request before its content is sent
	case err != nil && !absent:
		return d, Fault(err)
	case !absent && !info.Mode.IsRegular():
		return d, Fault(&fs.PathError{Op: "write", Path: full, Err: fs.ErrInvalid})
	case was != "" && absent != (was == library.Absent):
		return d, fault.New(fault.FileChanged, "%q has other content than expected, and nothing was written; read it and try again", name)
	case absent && path.Dir(full) != sandbox.Root:
		if err := f.Sandbox.MkdirAll(ctx, path.Dir(full), 0o755, f.User); err != nil {
			return d, Fault(err)
		}
	}
	switch d.Before = was; was {
	case "":
		if d.Before = library.Absent; !absent {
			d.Before = f.digestNow(ctx, full)
		}
		_, err = f.Sandbox.WriteFileFrom(ctx, full, r, 0o644, f.User)
	case library.Absent:
		_, err = f.Sandbox.ReplaceFile(ctx, full, r, sandbox.Absent, f.User)
	default:
		_, err = f.Sandbox.ReplaceFile(ctx, full, r, was, f.User)
	}
	return d, Fault(err)
}
