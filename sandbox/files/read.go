package files

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"

	"secbox/sandbox"
)

// pieceBytes is how much is read or written between two looks at whether the call is still wanted.
const pieceBytes = 256 << 10

// piece is a buffer for content of this many bytes, or for a piece of it. One byte more sees the end at once.
func piece(size int64) []byte { return make([]byte, min(max(size+1, 512), pieceBytes)) }

// Open opens a regular file for reading, without waiting. It is at most sandbox.MaxFileBytes large now, and may grow.
func (f *Files) Open(name string) (*os.File, *sandbox.FileInfo, error) { return f.open("open", name) }

func (f *Files) open(op, name string) (*os.File, *sandbox.FileInfo, error) {
	p, err := f.locate(op, name)
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

// openRegular looks before it opens, since opening is an action of its own for some devices, and after, since another thing may lie there then.
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

// ReadFileTo writes a file's content to w and returns how much that was.
func (f *Files) ReadFileTo(ctx context.Context, name string, w io.Writer) (int64, error) {
	return f.read(ctx, name, w, func(int64) {})
}

func (f *Files) read(ctx context.Context, name string, w io.Writer, size func(int64)) (int64, error) {
	const op = "read"
	if err := ended(ctx); err != nil {
		return 0, err
	}
	file, info, err := f.open(op, name)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	size(info.Size)
	n, err := copyPieces(ctx, w, io.LimitReader(file, sandbox.MaxFileBytes+1), piece(info.Size), func(err error) error { return f.failed(op, name, err) })
	if err == nil && n > sandbox.MaxFileBytes { // it has grown
		err = tooLarge(name)
	}
	return n, err
}

// copyPieces copies until the end, or until ctx ends. What reading fails with goes through failed, what writing fails with is the writer's.
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

// Stat describes what lies at a path, links followed.
func (f *Files) Stat(ctx context.Context, name string) (*sandbox.FileInfo, error) {
	const op = "stat"
	if err := ended(ctx); err != nil {
		return nil, err
	}
	p, err := f.locate(op, name)
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
