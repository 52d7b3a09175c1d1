package console

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"secbox/console/ui"
	"secbox/console/view"
)

const (
	imageMost  = 16 << 20 // bytes of an image that is shown
	pixelsMost = 40e6     // of an image that is shown: a browser takes 4 bytes for each
	headMost   = 1 << 20  // bytes of an image that are read to find its size
	pdfMost    = 64 << 20 // bytes of a PDF that is shown
)

// imageKind is a format of images. Formats that can have scripts are none of them: SVG is shown as
// text.
type imageKind struct {
	name, media string
	size        func(io.Reader) (image.Config, error)
}

// imageKinds are the formats by extension.
var imageKinds = map[string]imageKind{
	".png":  {"PNG image", "image/png", png.DecodeConfig},
	".jpg":  jpegKind,
	".jpeg": jpegKind,
	".gif":  {"GIF image", "image/gif", gif.DecodeConfig},
	".webp": {"WebP image", "image/webp", webpSize},
}

var jpegKind = imageKind{"JPEG image", "image/jpeg", jpeg.DecodeConfig}

// previewOf finds out how a file is shown: an image or PDF whose name and content agree, or UTF-8
// text, some of whose formats have a rendering. The offset of the file is 0 after it.
func previewOf(name string, size int64, f io.ReadSeeker, reserve func(int64) error) (view.Preview, error) {
	p, err := func() (view.Preview, error) {
		ext := strings.ToLower(path.Ext(name))
		if kind, ok := imageKinds[ext]; ok {
			return kind.preview(size, io.LimitReader(f, headMost))
		}
		if ext == ".pdf" {
			return pdfPreview(size, f)
		}
		p, err := textPreview(size, f, reserve)
		if format, ok := textFormats[ext]; ok && err == nil && len(p.Raw) > 0 && size <= format.most {
			p.Format, p.Kind = ext, format.name
			err = reserve(renderPrice * int64(len(p.Raw)))
		}
		return p, err
	}()
	_, seekErr := f.Seek(0, io.SeekStart)
	return p, cmp.Or(err, seekErr)
}

// failing remembers the error of a reader other than its end.
type failing struct {
	io.Reader
	err error
}

func (r *failing) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

func (k imageKind) preview(size int64, r io.Reader) (view.Preview, error) {
	in := &failing{Reader: r}
	config, err := k.size(in)
	switch {
	case in.err != nil:
		return view.Preview{}, in.err
	case err != nil:
		return view.Preview{Why: "Its name says " + k.name + ", but its content is no " + k.name + "."}, nil
	case size > imageMost:
		return view.Preview{Why: "Images of more than " + ui.Bytes(imageMost) + " are not shown."}, nil
	case config.Width < 1 || config.Height < 1 || int64(config.Width)*int64(config.Height) > pixelsMost:
		return view.Preview{Why: fmt.Sprintf("It has %d × %d pixels. Images of more than %d million pixels are not shown.", config.Width,
			config.Height, int64(pixelsMost/1e6))}, nil
	}
	return view.Preview{Kind: fmt.Sprintf("%s, %d × %d", k.name, config.Width, config.Height), Image: k.media, Size: config}, nil
}

// pdfPreview is a preview of a PDF, which the browser's own viewer shows.
func pdfPreview(size int64, r io.Reader) (view.Preview, error) {
	head := make([]byte, len("%PDF-"))
	switch n, err := io.ReadFull(r, head); {
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return view.Preview{}, err
	case string(head[:n]) != "%PDF-":
		return view.Preview{Why: "Its name says PDF, but its content is no PDF."}, nil
	case size > pdfMost:
		return view.Preview{Why: "PDFs of more than " + ui.Bytes(pdfMost) + " are not shown."}, nil
	}
	return view.Preview{Kind: "PDF", PDF: true}, nil
}

// textPreview is a preview of a file that is UTF-8 without NUL, as far as it is shown.
func textPreview(size int64, r io.Reader, reserve func(int64) error) (view.Preview, error) {
	if err := reserve(outputPrice * min(size, view.MaxPreview)); err != nil {
		return view.Preview{}, err
	}
	text, err := io.ReadAll(io.LimitReader(r, view.MaxPreview))
	if err != nil {
		return view.Preview{}, err
	}
	p := view.Preview{Kind: "Text", Cut: size > int64(len(text))}
	if p.Cut {
		text = view.TrimIncomplete(text)
	}
	if bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text) {
		return view.Preview{Why: "It is neither UTF-8 text nor a PNG, JPEG, GIF or WebP image or PDF."}, nil
	}
	p.Raw = text
	p.Text = append([]byte{}, ui.Visible(string(text))...)
	return p, nil
}

var errNoWebP = errors.New("no WebP image")

// webpSize reads the size of a WebP image from its first chunk.
func webpSize(r io.Reader) (image.Config, error) {
	b := make([]byte, 30)
	if n, err := io.ReadFull(r, b); n < 25 { // the shortest of a lossless image
		return image.Config{}, err
	}
	if string(b[:4]) != "RIFF" || string(b[8:12]) != "WEBP" {
		return image.Config{}, errNoWebP
	}
	bits := binary.LittleEndian.Uint32
	switch string(b[12:16]) {
	case "VP8 ": // lossy
		if !bytes.Equal(b[23:26], []byte{0x9d, 0x01, 0x2a}) {
			return image.Config{}, errNoWebP
		}
		size := bits(b[26:])
		return image.Config{Width: int(size & 0x3fff), Height: int(size >> 16 & 0x3fff)}, nil
	case "VP8L": // lossless
		if b[20] != 0x2f {
			return image.Config{}, errNoWebP
		}
		size := bits(b[21:])
		return image.Config{Width: int(size&0x3fff) + 1, Height: int(size>>14&0x3fff) + 1}, nil
	case "VP8X": // extended
		width, height := bits(b[24:])&0xffffff, bits(b[26:])>>8
		return image.Config{Width: int(width) + 1, Height: int(height) + 1}, nil
	}
	return image.Config{}, errNoWebP
}
