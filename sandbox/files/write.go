package files

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"secbox/fault"
	"secbox/internal/admission"
	"secbox/sandbox"
	"secbox/workspace/tree"
)

// maxLinks is how many links are followed from a name to write to, as on Linux.
const maxLinks = 40

// roomBytes is how much is written between two calls of Config.Room.
const roomBytes = 8 << 20

// WriteFile replaces a file's content with data, or leaves the file as it is.
func (f *Files) WriteFile(ctx context.Context, name string, data []byte, perm fs.FileMode) error {
	_, err := f.write(ctx, name, bytes.NewReader(data), piece(int64(len(data))), perm, "")
	return err
}

// newFileMode has the permission bits of a file that ReplaceFile makes.
const newFileMode = 0o644

// ReplaceFile replaces a file's content with r's if the SHA-256 of the present content is was, in
// hexadecimal, or makes the file if was is sandbox.Absent; else fault.FileChanged.
func (f *Files) ReplaceFile(ctx context.Context, name string, r io.Reader, was string) (int64, error) {
	return f.write(ctx, name, r, piece(pieceBytes), newFileMode, was)
}

// WriteFileFrom replaces a file's content with r's, or leaves the file as it is.
func (f *Files) WriteFileFrom(ctx context.Context, name string, r io.Reader, perm fs.FileMode) (int64, error) {
	return f.write(ctx, name, r, piece(pieceBytes), perm, "")
}

func (f *Files) write(ctx context.Context, name string, r io.Reader, buf []byte, perm fs.FileMode, was string) (int64, error) {
	p, err := f.Create(ctx, name, perm)
	if err != nil {
		return 0, err
	}
	defer p.Discard()
	p.Was = was
	n, err := copyPieces(ctx, p, r, buf, func(err error) error { return err })
	if err == nil {
		err = p.Commit(ctx)
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// Pending is new content of a file, invisible under the file's name before Commit. One goroutine at
// a time may use it. It must be discarded, after Commit too.
type Pending struct {
	// Was is the SHA-256, in hexadecimal, that the present content must have for Commit, or
	// sandbox.Absent; else Commit returns fault.FileChanged. Empty: no condition.
	Was string

	files *Files
	name  string   // as given
	dir   *os.Root // the file's directory, also of the temporary file
	base  string   // the file's name in dir
	temp  string
	file  *os.File
	mode  fs.FileMode
	old   bool // the file exists
	size  int64
	asked int64 // the size at the last call of Config.Room
	err   error // the error that ended it
}

// errDone is the error for using a Pending after its end.
var errDone = errors.New("files: the content was committed or discarded")

// Create begins new content of a file. A new file gets the permission bits of perm, regardless of
// the umask; an existing one keeps its own. A link to a file inside is followed, a link that leads
// out is fs.ErrPermission.
func (f *Files) Create(ctx context.Context, name string, perm fs.FileMode) (*Pending, error) {
	const op = "write"
	at, err := f.locateToChange(ctx, op, name)
	if err != nil {
		return nil, err
	}
	if err := f.room(); err != nil {
		return nil, err
	}
	p := &Pending{files: f, name: name, mode: perm.Perm()}
	if err := p.find(at.root, at.below); err != nil {
		return nil, f.failed(op, name, err)
	}
	if err := p.begin(); err != nil {
		p.dir.Close()
		return nil, f.failed(op, name, err)
	}
	return p, nil
}

// find opens the file's directory. It reads links one by one, and resolves each target from the
// root again, so that none leads out.
func (p *Pending) find(root *os.Root, below string) error {
	for range maxLinks {
		above, base := split(below)
		if base == "." || base == ".." || base == "" {
			return errIrregular
		}
		dir, err := openDir(root, above)
		if err != nil {
			return err
		}
		fi, err := dir.Lstat(base)
		var target string
		if err == nil && fi.Mode().Type() == fs.ModeSymlink {
			if target, err = dir.Readlink(base); err == nil {
				below, err = p.files.follow(above, target)
			} else if isNoPath(err) {
				err = nil // no longer a link: try again
			}
			if err == nil {
				dir.Close()
				continue
			}
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = nil
		case err == nil && !fi.Mode().IsRegular():
			err = errIrregular
		case err == nil:
			p.old, p.mode = true, fi.Mode().Perm()
			err = mayWrite(dir, base)
		}
		if err != nil {
			dir.Close()
			return err
		}
		p.dir, p.base = dir, base
		return nil
	}
	return fs.ErrInvalid
}

// follow returns the path of a link's target. os.Root resolves its steps upwards.
func (f *Files) follow(above, target string) (string, error) {
	if filepath.IsAbs(target) || filepath.VolumeName(target) != "" || target == "" || os.IsPathSeparator(target[0]) {
		return "", f.escapes
	}
	below := above + "/" + filepath.ToSlash(target)
	if len(below) > 4*sandbox.MaxPathBytes {
		return "", fs.ErrInvalid
	}
	return below, nil
}

// mayWrite returns an error if this process may not write to the file: a rename would ignore the
// file's mode.
func mayWrite(dir *os.Root, base string) error {
	file, err := dir.OpenFile(base, os.O_WRONLY|openSafely, 0)
	if err == nil {
		return file.Close()
	}
	if errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil // removed meanwhile, or a running program
}

func (p *Pending) begin() (err error) {
	p.temp = tempPrefix + rand.Text() + tempSuffix
	p.file, err = p.dir.OpenFile(p.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	p.files.give(p.file)
	return nil
}

// give sets the owner of a new file, where that is possible.
func (f *Files) give(file *os.File) {
	if f.cfg.UID >= 0 && f.cfg.GID >= 0 {
		_ = file.Chown(f.cfg.UID, f.cfg.GID)
	}
}

func (f *Files) room() error {
	if f.cfg.Room == nil {
		return nil
	}
	return f.cfg.Room()
}

// Size returns how many bytes were written.
func (p *Pending) Size() int64 { return p.size }

// Write appends to the content. More than sandbox.MaxFileBytes in all is fault.FileTooLarge. After
// an error, later writes fail too.
func (p *Pending) Write(data []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	if p.size+int64(len(data)) > sandbox.MaxFileBytes {
		p.err = tooLarge(p.name)
		return 0, p.err
	}
	if p.size-p.asked >= roomBytes {
		if p.err = p.files.room(); p.err != nil {
			return 0, p.err
		}
		p.asked = p.size
	}
	n, err := p.file.Write(data)
	p.size += int64(n)
	p.err = p.files.failed("write", p.name, err)
	return n, p.err
}

// Commit renames the content into the file's place. Content that replaces other content is synced
// first, so that a crash leaves one or the other.
func (p *Pending) Commit(ctx context.Context) error {
	if p.err != nil {
		return p.err
	}
	err := p.file.Chmod(p.mode)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) {
		err = nil // the file system has no permissions
	}
	if err == nil && p.old {
		err = p.file.Sync()
	}
	if err = errors.Join(err, p.file.Close()); err == nil {
		err = p.replace(ctx)
	}
	if err != nil {
		err = p.files.failed("write", p.name, err)
	}
	p.end(err == nil)
	return err
}

// replace renames the content as the only editor. Commands take no lock: the file must still be the
// file that was read.
func (p *Pending) replace(ctx context.Context) error {
	release, err := p.files.cfg.LockEdits(ctx)
	if err != nil {
		return errors.Join(ended(ctx), err)
	}
	defer release()
	if p.Was == sandbox.Absent {
		err := tree.RenameNew(p.dir, p.temp, p.dir, p.base)
		if errors.Is(err, fs.ErrExist) {
			return p.changed(err)
		}
		return err
	}
	var read fs.FileInfo
	if p.Was != "" {
		if read, err = p.compare(ctx); err != nil {
			return err
		}
	}
	if read != nil {
		now, err := p.dir.Lstat(p.base)
		if err != nil || !os.SameFile(now, read) || now.Size() != read.Size() || !now.ModTime().Equal(read.ModTime()) {
			return p.changed(err)
		}
	}
	return p.dir.Rename(p.temp, p.base)
}

// compare checks the digest of the file to be replaced, and describes the file as it was before
// reading.
func (p *Pending) compare(ctx context.Context) (fs.FileInfo, error) {
	file, fi, err := openRegular(p.dir, p.base)
	if err != nil {
		return nil, p.changed(err)
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := admission.Copy(ctx, sum, io.LimitReader(file, sandbox.MaxFileBytes+1)); err != nil {
		return nil, err
	}
	if hex.EncodeToString(sum.Sum(nil)) != p.Was {
		return nil, p.changed(nil)
	}
	return fi, nil
}

func (p *Pending) changed(cause error) error {
	return fault.Wrap(fault.FileChanged, cause, "%s was changed meanwhile, and nothing was written; read it and try again", cut(p.name))
}

// Discard ends the Pending. Without Commit, the file stays as it is. Safe to call more than once.
func (p *Pending) Discard() {
	if p.dir != nil {
		p.file.Close()
		p.end(false)
	}
}

func (p *Pending) end(renamed bool) {
	if !renamed {
		_ = p.dir.Remove(p.temp)
	}
	p.dir.Close()
	p.dir, p.err = nil, errDone
}
