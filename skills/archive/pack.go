package archive

import (
	"archive/zip"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"time"

	"secbox/diskspace"
	"secbox/fault"
)

// epoch is the time of everything that Pack writes: the first day that a ZIP file can name.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// Pack writes the tree as a ZIP file whose top folder is top, a skill's id. The same tree gives the same bytes: entries are in lexical
// order, all of one time, and files are executable or not. Names are in UTF-8.
//
// The tree holds regular files and directories with names that Unpack takes, or nothing is written at all: it is walked once to look
// and once to write. from must not follow links and must not wait at FIFOs; whoever opens a user's folder sees to it. On an error
// after the first byte the archive has no end, so that nobody takes it for a whole one. When ctx ends, so does Pack, with an error
// that wraps its cause. Errors: fault.InvalidArchive names what cannot be packed.
func Pack(ctx context.Context, w io.Writer, from fs.FS, top string) error {
	if why := idFault(top); why != "" {
		return bad("the skill's id is %s, which %s", quoted(top), why)
	}
	err := walk(ctx, from, func(string, fs.FileInfo) error { return nil })
	if err != nil {
		return err
	}
	p := packer{from: from, zip: zip.NewWriter(w), buffer: make([]byte, bufferBytes)}
	err = walk(ctx, from, func(name string, fi fs.FileInfo) error { return p.add(ctx, path.Join(top, name), name, fi) })
	if err != nil {
		return err
	}
	return unsent(p.zip.Close())
}

// walk calls each with all that the tree holds, the root first, and fails at what cannot be packed.
func walk(ctx context.Context, from fs.FS, each func(name string, fi fs.FileInfo) error) error {
	return fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return unpackable(err, name)
		}
		if err := given(ctx); err != nil {
			return err
		}
		if name != "." {
			if why := partFault(d.Name()); why != "" {
				return bad("%s cannot be packed: its name %s; rename it", quoted(name), why)
			}
		}
		if !d.IsDir() && !d.Type().IsRegular() {
			return errSpecial(name)
		}
		fi, err := d.Info()
		if err != nil {
			return unpackable(err, name)
		}
		return each(name, fi)
	})
}

func errSpecial(name string) error {
	return bad("%s cannot be packed: it is a link or something special; put the file itself there, or remove it", quoted(name))
}

// unpackable is a failure to read the tree.
func unpackable(err error, name string) error {
	return fault.Wrap(fault.Internal, err, "the skill's %s cannot be read", quoted(name))
}

// unsent is a failure to write the archive: whoever asked for it has gone, or the disk is full.
func unsent(err error) error {
	switch {
	case err == nil:
		return nil
	case diskspace.IsFull(err):
		return fault.Wrap(fault.DiskFull, err, "the disk has no room for the archive: free some space")
	}
	return fault.Wrap(fault.Internal, err, "the archive cannot be written")
}

type packer struct {
	from   fs.FS
	zip    *zip.Writer
	buffer []byte
}

func (p *packer) add(ctx context.Context, as, name string, fi fs.FileInfo) error {
	h := &zip.FileHeader{Name: as, Method: zip.Deflate, Modified: epoch}
	switch {
	case fi.IsDir():
		h.Name += "/"
		h.Method = zip.Store
		h.SetMode(fs.ModeDir | 0o755)
	case fi.Mode()&0o111 != 0:
		h.SetMode(0o755)
	default:
		h.SetMode(0o644)
	}
	out, err := p.zip.CreateHeader(h)
	if err != nil || fi.IsDir() {
		return unsent(err)
	}
	in, err := p.from.Open(name)
	if err != nil {
		return unpackable(err, name)
	}
	defer in.Close()
	if now, err := in.Stat(); err != nil {
		return unpackable(err, name)
	} else if !now.Mode().IsRegular() {
		return errSpecial(name)
	}
	for {
		if err := given(ctx); err != nil {
			return err
		}
		n, err := in.Read(p.buffer)
		if n > 0 {
			if _, err := out.Write(p.buffer[:n]); err != nil {
				return unsent(err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return unpackable(err, name)
		}
	}
}
