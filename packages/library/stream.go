package library

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"time"

	"secbox/fault"
	"secbox/internal/admission"
	"secbox/workspace/tree"
)

// MaxStreamBytes bounds files that are sent or received piece by piece.
const MaxStreamBytes = 500 << 20

// Opened is an open file.
type Opened struct {
	io.ReadSeekCloser
	Size     int64 // bytes
	Modified time.Time
}

// SandboxOpen opens a file of at most MaxStreamBytes in the user's work/, as SandboxRead finds it.
// The caller must close it.
func (l *Library) SandboxOpen(ctx context.Context, o Owner, path string) (opened Opened, err error) {
	err = l.inSandbox(ctx, o, path, func(t *tree.Tree, path string) error {
		if opened.ReadSeekCloser != nil { // of a copy that was replaced
			opened.Close()
		}
		f, fi, err := openFile(t, path)
		if err != nil {
			opened = Opened{}
			return err
		}
		opened = Opened{f, fi.Size(), fi.ModTime()}
		return nil
	})
	if err == nil && opened.Size > MaxStreamBytes {
		err = fault.New(fault.FileTooLarge, "%q has %d bytes, more than the %d that can be sent: use a command", path, opened.Size,
			int64(MaxStreamBytes))
	}
	if err != nil && opened.ReadSeekCloser != nil {
		opened.Close()
	}
	return opened, err
}

// Absent is the digest of a file that does not exist.
const Absent = "absent"

// Digests are the SHA-256 of a file's content before and after a change, in hexadecimal. Before is
// Absent if there was no file. Empty: not known. Size is the size of the content with the digest
// After, in bytes.
type Digests struct {
	Before, After string
	Size          int64
}

// digestNow returns the digest of a file, Absent if there is none, and an empty string if it cannot
// be read.
func digestNow(ctx context.Context, t *tree.Tree, path string) string {
	f, fi, err := t.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Absent
	}
	if err != nil {
		return ""
	}
	defer f.Close()
	sum := sha256.New()
	n, err := admission.Copy(ctx, sum, io.LimitReader(f, MaxStreamBytes))
	if err != nil || n != fi.Size() { // it is too large, or being written
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// roomBytes is how much is written between two checks of the free space, in bytes.
const roomBytes = 8 << 20

// SandboxWrite replaces a file in the user's work/ with the content of r, where SandboxEdit may
// write. Nothing is changed if r fails. size is how many bytes r has, -1 if unknown. If was is not
// empty, the present content must have that SHA-256, in hexadecimal, or be Absent:
// fault.FileChanged. Of the Digests it sets Before.
func (l *Library) SandboxWrite(ctx context.Context, o Owner, file string, r io.Reader, size int64, was string) (d Digests, err error) {
	file, err = checkSandboxFile(o, file)
	if err != nil {
		return d, err
	}
	if err := l.checkRoomFor(uint64(max(size, roomBytes)), 1); err != nil {
		return d, err
	}
	work, err := l.makeWork(o)
	if err != nil {
		return d, err
	}
	defer work.Close()
	// Refuse a hopeless path before reading the content. The file of a skill may exist in the
	// stored version only.
	if _, _, isSkill := inSkill(file); !isSkill {
		if _, err := present(ctx, work, file, was); err != nil {
			return d, failed(err, file)
		}
	}
	content, err := work.NewContent()
	if err != nil {
		return d, failed(err, file)
	}
	defer content.Discard()
	for n := int64(roomBytes); n == roomBytes; {
		if err := context.Cause(ctx); err != nil {
			return d, err
		}
		if n, err = io.CopyN(content, r, roomBytes); err != nil && !errors.Is(err, io.EOF) {
			return d, failed(err, file)
		}
		if err := l.checkRoomFor(roomBytes, 0); err != nil {
			return d, err
		}
	}
	if err := content.Sync(); err != nil { // before the locks
		return d, failed(err, file)
	}
	err = l.changeInSandbox(ctx, o, file, change{once: true, write: func(ctx context.Context, t *tree.Tree, path string) error {
		seen, err := present(ctx, t, path, was)
		if d.Before = was; was == "" {
			d.Before = digestNow(ctx, t, path)
		}
		if err == nil {
			err = t.Place(content, path, seen)
		}
		if errors.Is(err, tree.ErrChanged) || errors.Is(err, fs.ErrExist) {
			return changed(err, path)
		}
		return err
	}})
	return d, err
}

// present checks that the content of a file has the digest was, and returns the stat data for
// tree.Place. Without a digest, the file must be one that can be replaced.
func present(ctx context.Context, t *tree.Tree, path, was string) (fs.FileInfo, error) {
	fi, err := t.Lstat(path)
	absent := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !absent:
		return nil, err
	case !absent && !fi.Mode().IsRegular():
		return nil, tree.ErrNotRegular
	case was == "":
		return nil, nil
	case was == Absent && absent:
		return tree.Absent, nil
	case was == Absent || absent:
		return nil, changed(err, path)
	}
	f, fi, err := t.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := admission.Copy(ctx, sum, io.LimitReader(f, MaxStreamBytes)); err != nil {
		return nil, err
	}
	if hex.EncodeToString(sum.Sum(nil)) != was {
		return nil, changed(nil, path)
	}
	return fi, nil
}

func changed(err error, path string) error {
	return fault.Wrap(fault.FileChanged, err, "%q has other content than expected, and nothing was written; read it and try again", path)
}
