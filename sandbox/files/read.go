package files

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"

	"secbox/sandbox"
)

// pieceBytes is how much is read or written between two checks of the context.
const pieceBytes = 256 << 10

// piece returns a buffer for content of this size, or a piece of it. One byte more lets a read see
// the end at once.
func piece(size int64) []byte { return make([]byte, min(max(size+1, 512), pieceBytes)) }

// Open opens a regular file for reading, without blocking. It has at most sandbox.MaxFileBytes, and
// may grow.
func (f *Files) Open(ctx context.Context, name string) (*os.File, *sandbox.FileInfo, error) {
	return f.open(ctx, "open", name)
}

func (f *Files) open(ctx context.Context, op, name string) (*os.File, *sandbox.FileInfo, error) {
	p, err := f.locate(ctx, op, name)
	if err != nil {
		return nil, nil, err
	}
	defer p.close()
	file, fi, err := openRegular(p.root, p.below)
	if err != nil {
		return nil, nil, f.failed(op, name, err)
	}
	if fi.Size() > sandbox.MaxFileBytes {
		file.Close()
		return nil, nil, tooLarge(name)
	}
	return file, describe(name, fi), nil
}

// openRegular checks the file before it opens it, because opening some devices has effects, and
// afterwards, because the file may have been exchanged.
func openRegular(root *os.Root, below string) (*os.File, fs.FileInfo, error) {
	fi, err := root.Stat(below)
	if err != nil {
		return nil, nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, nil, errIrregular
	}
	file, err := root.OpenFile(below, os.O_RDONLY|openSafely, 0)
	if err != nil {
		return nil, nil, err
	}
	if fi, err = file.Stat(); err == nil && !fi.Mode().IsRegular() {
		err = errIrregular
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, fi, nil
}

// ReadFile reads a whole file.
func (f *Files) ReadFile(ctx context.Context, name string) ([]byte, error) {
	var b bytes.Buffer
	_, err := f.read(ctx, name, &b, func(size int64) { b.Grow(int(size) + bytes.MinRead) })
	if err != nil {
		return nil, err
	}
	if b.Len() == 0 {
		return []byte{}, nil
	}
	return b.Bytes(), nil
}

// ReadFileTo writes a file's content to w and returns its length.
func (f *Files) ReadFileTo(ctx context.Context, name string, w io.Writer) (int64, error) {
	return f.read(ctx, name, w, func(int64) {})
}

func (f *Files) read(ctx context.Context, name string, w io.Writer, size func(int64)) (int64, error) {
	const op = "read"
	file, info, err := f.open(ctx, op, name)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	size(info.Size)
	n, err := copyPieces(ctx, w, io.LimitReader(file, sandbox.MaxFileBytes+1), piece(info.Size),
		func(err error) error { return f.failed(op, name, err) })
	if err == nil && n > sandbox.MaxFileBytes { // it grew meanwhile
		err = tooLarge(name)
	}
	return n, err
}

// copyPieces copies until the end of r, or until ctx ends. Errors of r go through failed, errors of
// w are returned as they are.
func copyPieces(ctx context.Context, w io.Writer, r io.Reader, buf []byte, failed func(error) error) (n int64, err error) {
	for {
		if err := ended(ctx); err != nil {
			return n, err
		}
		got, readErr := r.Read(buf)
		if got > 0 {
			put, err := w.Write(buf[:got])
			n += int64(put)
			if err == nil && put < got {
				err = io.ErrShortWrite
			}
			if err != nil {
				return n, err
			}
		}
		if readErr == io.EOF {
			return n, nil
		}
		if readErr != nil {
			return n, failed(readErr)
		}
	}
}

// Stat describes a file, following links.
func (f *Files) Stat(ctx context.Context, name string) (*sandbox.FileInfo, error) {
	const op = "stat"
	p, err := f.locate(ctx, op, name)
	if err != nil {
		return nil, err
	}
	defer p.close()
	fi, err := p.root.Stat(p.below)
	if err != nil {
		return nil, f.failed(op, name, err)
	}
	return describe(name, fi), nil
}
