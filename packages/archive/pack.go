package archive

import (
	"archive/zip"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"time"

	"secbox/fault"
	"secbox/internal/admission"
	"secbox/workspace/diskspace"
)

// epoch is the time of all entries that Pack writes: the earliest that a ZIP file can have.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// Pack writes a tree as a ZIP file whose top folder is top, a skill's id. The same tree gives the
// same bytes: entries are in lexical order, have the same time, and are executable or not. Names
// are in UTF-8.
//
// The tree must hold regular files and directories with names that Unpack accepts, or nothing is
// written: it is checked in a first walk and written in a second. from must not follow links and
// must not block at FIFOs. After an error during writing, the archive has no end record, so that it
// cannot be mistaken for a complete one. When ctx ends, Pack fails with an error that wraps its
// cause. fault.InvalidArchive names an entry that cannot be packed.
func Pack(ctx context.Context, w io.Writer, from fs.FS, top string) error {
	if why := idFault(top); why != "" {
		return bad("the skill's id is %s, which %s", quoted(top), why)
	}
	err := walk(ctx, from, func(string, fs.FileInfo) error { return nil })
	if err != nil {
		return err
	}
	turn, err := admission.Begin(ctx)
	if err != nil {
		return givenUp(err)
	}
	defer turn.End()
	p := packer{from: from, zip: zip.NewWriter(turn.Writer(w)), buffer: make([]byte, bufferBytes)}
	err = walk(ctx, from, func(name string, fi fs.FileInfo) error { return p.add(turn, path.Join(top, name), name, fi) })
	if err != nil {
		return err
	}
	return unsent(p.zip.Close())
}

// walk calls each with every entry of the tree, the root first, and fails at one that cannot be
// packed.
func walk(ctx context.Context, from fs.FS, each func(name string, fi fs.FileInfo) error) error {
	return fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return unpackable(err, name)
		}
		if err := ended(ctx); err != nil {
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
	return bad("%s cannot be packed: it is a link or special file; put the file itself there, or remove it", quoted(name))
}

// unpackable wraps an error of reading the tree.
func unpackable(err error, name string) error {
	return fault.Wrap(fault.Internal, err, "the skill's %s cannot be read", quoted(name))
}

// unsent wraps an error of writing the archive: the client has disconnected, or the disk is full.
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

func (p *packer) add(turn *admission.Turn, as, name string, fi fs.FileInfo) error {
	h := &zip.FileHeader{Name: as, Method: zip.Deflate, Modified: epoch}
	switch {
	case fi.IsDir():
		h.Name += "/"
		h.Method = zip.Store
		h.SetMode(fs.ModeDir | 0o755)
	case fi.Mode()&0o100 != 0:
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
		if err := turn.Next(); err != nil {
			return givenUp(err)
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
