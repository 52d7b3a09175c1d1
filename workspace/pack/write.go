package pack

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"secbox/workspace/tree"

	"github.com/klauspost/compress/zstd"
)

// packer writes a tree into a pack.
type packer struct {
	ctx    context.Context
	wanted func() bool     // reports whether a caller waits for the tree
	skip   map[string]bool // paths left out, with everything below them

	tar    *tar.Writer
	sum    hash.Hash // of the tar archive
	seen   hash.Hash // of the stat data of every entry
	links  map[tree.FileID]string
	buffer []byte
	Content
	looked int64 // bytes since the last call of wanted
}

// ErrWanted ends packing because a caller waits for the tree.
var ErrWanted = errors.New("it is being used")

// Write packs the tree t into f without the paths in skip. If there is no error, f was read again, is on the disk, and the tree did
// not change meanwhile. wanted is called now and then; packing ends when it returns true. Errors: tree.ErrNotCarried,
// tree.ErrChanged, ErrWanted, those of the file system.
func Write(ctx context.Context, t *tree.Tree, f *os.File, skip map[string]bool, wanted func() bool) (Content, error) {
	p := packer{
		ctx: ctx, wanted: wanted, skip: skip, sum: sha256.New(), seen: sha256.New(), links: map[tree.FileID]string{}, buffer: make([]byte, 256<<10),
	}
	z, err := zstd.NewWriter(f, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithWindowSize(packWindow))
	if err != nil {
		return Content{}, err
	}
	p.tar = tar.NewWriter(io.MultiWriter(z, p.sum))
	err = p.tree(t)
	if err == nil {
		err = p.tar.Close()
	}
	if e := z.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return Content{}, err
	}
	if err := p.verify(f); err != nil {
		return Content{}, err
	}
	again := packer{ctx: ctx, wanted: wanted, skip: skip, seen: sha256.New()}
	if err := again.walk(t, again.recordStat); err != nil {
		return Content{}, err
	}
	if !bytes.Equal(p.seen.Sum(nil), again.seen.Sum(nil)) {
		return Content{}, tree.ErrChanged
	}
	return p.Content, nil
}

// verify reads the pack as Unpack does.
func (p *packer) verify(f *os.File) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	sum := sha256.New()
	got, err := readPack(pausing{p, f}, sum, discard{})
	if err != nil {
		return err
	}
	if got != p.Content || !bytes.Equal(sum.Sum(nil), p.sum.Sum(nil)) {
		return damaged("it differs from the written archive")
	}
	return nil
}

// pausing calls pause between reads.
type pausing struct {
	p    *packer
	from io.Reader
}

func (r pausing) Read(b []byte) (int, error) {
	if err := r.p.pause(int64(len(b))); err != nil {
		return 0, err
	}
	return r.from.Read(b)
}

// pause is called after so many bytes of work.
func (p *packer) pause(bytes int64) error {
	if err := context.Cause(p.ctx); err != nil {
		return err
	}
	const between = 4 << 20
	if p.looked += bytes + 16<<10; p.looked > between {
		p.looked = 0
		if p.wanted() {
			return ErrWanted
		}
	}
	return nil
}

func (p *packer) tree(t *tree.Tree) error {
	if err := p.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{recordVersion: packVersion}}); err != nil {
		return err
	}
	if err := p.walk(t, func(e tree.Entry) error {
		if err := p.recordStat(e); err != nil {
			return err
		}
		if err := p.entry(e); err != nil {
			return fmt.Errorf("%q: %w", tree.CutName(e.Path, 512), err)
		}
		p.Entries++
		return nil
	}); err != nil {
		return err
	}
	return p.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{recordEntries: strconv.FormatInt(p.Entries, 10)},
	})
}

// walk visits the top of the tree and everything below it that is not skipped.
func (p *packer) walk(t *tree.Tree, visit func(tree.Entry) error) error {
	top, err := t.Top()
	if err != nil {
		return err
	}
	if err := visit(top); err != nil {
		return err
	}
	left := "" // the directory, with a slash, that is being left out
	return t.Walk(p.ctx, bounds, func(e tree.Entry) error {
		if left != "" && strings.HasPrefix(e.Path, left) {
			return nil
		}
		if left = ""; p.skip[e.Path] {
			left = e.Path + "/"
			return nil
		}
		if err := p.pause(0); err != nil {
			return err
		}
		return visit(e)
	})
}

// recordStat hashes the stat data of an entry, in the order of the walk.
func (p *packer) recordStat(e tree.Entry) error {
	uid, gid := tree.OwnerOf(e.Info)
	_, err := fmt.Fprintf(p.seen, "%q %+v %d %d\n", e.Path, tree.StatOf(e.Info), uid, gid)
	return err
}

func (p *packer) entry(e tree.Entry) error {
	h := &tar.Header{Format: tar.FormatPAX, Name: e.Path, Mode: tarMode(e.Info.Mode()), ModTime: e.Info.ModTime()}
	h.Uid, h.Gid = tree.OwnerOf(e.Info)
	if !mayGive(h.Uid, h.Gid) {
		return fmt.Errorf("%w: it belongs to %d:%d, to whom it could not be given back", tree.ErrNotCarried, h.Uid, h.Gid)
	}
	switch mode := e.Info.Mode(); {
	case mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, e.Path+"/"
		return p.directory(e, h)
	case mode&fs.ModeSymlink != 0 && carriesLinks:
		h.Typeflag = tar.TypeSymlink
		var err error
		if h.Linkname, err = e.Readlink(); err != nil {
			return err
		}
		return p.tar.WriteHeader(h)
	case mode.IsRegular():
		h.Typeflag = tar.TypeReg
		return p.file(e, h)
	}
	return fmt.Errorf("%w: it is no file, directory or link, but %v", tree.ErrNotCarried, e.Info.Mode().Type())
}

func (p *packer) directory(e tree.Entry, h *tar.Header) error {
	if err := e.CheckPlain(); err != nil {
		return err
	}
	return p.tar.WriteHeader(h)
}

func (p *packer) file(e tree.Entry, h *tar.Header) error {
	f, err := e.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	if err := tree.PlainAttributes(f); err != nil {
		return err
	}
	if _, id, linked := tree.OnDisk(e.Info); linked {
		if first, ok := p.links[id]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return p.tar.WriteHeader(h)
		}
		p.links[id] = e.Path
	}
	h.Size = e.Info.Size()
	extents := []extent{{0, h.Size}}
	if pieces, ok := dataOf(f, e.Info); ok {
		extents, h.Size = pieces, 0
		for _, piece := range pieces {
			h.Size += piece.length
		}
		h.PAXRecords = map[string]string{recordSize: strconv.FormatInt(e.Info.Size(), 10), recordExtents: formatExtents(pieces)}
	}
	if err := p.tar.WriteHeader(h); err != nil {
		return err
	}
	for _, piece := range extents {
		if err := p.copy(io.NewSectionReader(f, piece.offset, piece.length), piece.length); err != nil {
			return err
		}
	}
	p.Bytes += h.Size
	return nil
}

// copy copies exactly so many bytes.
func (p *packer) copy(from io.Reader, length int64) error {
	for length > 0 {
		n, err := from.Read(p.buffer[:min(length, int64(len(p.buffer)))])
		if n == 0 && (err == nil || errors.Is(err, io.EOF)) {
			return tree.ErrChanged // it has become shorter
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if _, err := p.tar.Write(p.buffer[:n]); err != nil {
			return err
		}
		length -= int64(n)
		if err := p.pause(int64(n)); err != nil {
			return err
		}
	}
	return nil
}
