package tools

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"secbox/internal/admission"
)

// Bounds of what Read answers with.
const (
	maxLines      = 2000
	maxTextBytes  = 256 << 10
	maxLineBytes  = 2000
	maxImageBytes = 5 << 20

	sniffBytes = 8 << 10 // of a file, by which its type is found
)

// BinaryPrograms are the programs that Read names for files that are not text.
var BinaryPrograms = []string{"xxd", "file"}

const readDescription = `Reads a file of the user's workspace. Text comes with line numbers, as from cat -n: at most 2,000 lines and 256 KiB, from offset on; ` +
	`longer lines are cut, and a note says so. Images (PNG, JPEG, GIF, WebP, up to 5 MiB) are shown; of other files the size and type are named. ` +
	`Paths are relative to the current directory (files_cd), or absolute below /workspace. Read a file before you overwrite it.`

// ReadParams are the arguments of Read.
type ReadParams struct {
	Path   string `json:"path" jsonschema:"the file: relative to the current directory, or absolute below /workspace"`
	Offset int    `json:"offset,omitempty" jsonschema:"the number of the first line to read; the first line of the file is 1"`
	Limit  int    `json:"limit,omitempty" jsonschema:"how many lines to read; at most 2000, which is the default"`
}

// Read shows a file. Its Meta has the path, and the sha256 and size of the whole file.
func (s *Session) Read(ctx context.Context, p ReadParams) (*Result, error) {
	switch {
	case p.Offset < 0:
		return nil, badArgument("offset", "must be at least 1, the number of the first line")
	case p.Limit < 0:
		return nil, badArgument("limit", "must be at least 1")
	}
	full := s.resolve(p.Path)
	v := &view{sum: sha256.New(), first: max(p.Offset, 1), most: maxLines, reserve: callerOf(ctx).reserve}
	if p.Limit > 0 {
		v.most = min(p.Limit, maxLines)
	}
	ctx, release := callerOf(ctx).present(ctx)
	defer release()
	size, err := s.sandbox.ReadFileTo(ctx, full, admission.InTurns(ctx, v), s.user)
	if err != nil {
		return nil, s.explain(ctx, full, err)
	}
	v.end()
	if v.refused != nil {
		return nil, v.refused
	}
	digest := hex.EncodeToString(v.sum.Sum(nil))
	s.sawFile(full, digest)
	r := &Result{Meta: map[string]any{"path": path.Clean(full), "sha256": digest, "size": size}}
	switch {
	case v.image:
		if v.tooLarge {
			r.Text = fmt.Sprintf("%s is an image (%s) of %d bytes, more than the %d that can be shown; make a smaller copy with a command",
				quote(full), v.mime, size, maxImageBytes)
			break
		}
		r.Image, r.MIME = v.content, v.mime
		r.Text = fmt.Sprintf("%s: %s, %d bytes", quote(full), v.mime, size)
	case v.binary:
		r.Text = fmt.Sprintf("%s is not text: %s, %d bytes. Look into it with a command, such as %s.", quote(full), v.mime, size,
			strings.Join(BinaryPrograms, " or "))
	default:
		r.Text = v.page(size)
	}
	return r, nil
}

// view takes the content of a file piece by piece and keeps what is shown of it.
type view struct {
	sum    hash.Hash
	head   []byte // the first sniffBytes, until the type is known
	typed  bool
	mime   string
	image  bool
	binary bool // neither text nor image

	reserve  func(bytes int64) error // of memory
	refused  error                   // by reserve
	content  []byte                  // of an image
	tooLarge bool                    // the image

	bare        bool // without numbers
	first, most int  // the lines to show
	lines       int  // complete lines so far
	line        []byte
	lineBytes   int  // of the line so far, kept or not
	lastByte    byte // of the line so far
	dos         bool // the first line ends with \r\n, and no \r\n is shown
	breaks      int  // ends of lines
	crlf        int  // lines that end with \r\n
	text        strings.Builder
	shown, last int // lines in text, and the number of the last one
	full        bool
}

// Write implements io.Writer. It never fails, because the digest covers the whole file.
func (v *view) Write(p []byte) (int, error) {
	v.sum.Write(p)
	if v.typed {
		v.take(p)
		return len(p), nil
	}
	v.head = append(v.head, p...)
	if len(v.head) >= sniffBytes {
		v.sniff()
	}
	return len(p), nil
}

// sniff finds the type from the first bytes.
func (v *view) sniff() {
	v.typed = true
	head := v.head[:min(len(v.head), sniffBytes)]
	v.mime = http.DetectContentType(head)
	v.image = slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, v.mime)
	v.binary = !v.image && slices.Contains(head, 0)
	head = v.head
	v.head = nil
	v.take(head)
}

func (v *view) take(p []byte) {
	switch {
	case v.image:
		if v.tooLarge = v.tooLarge || len(v.content)+len(p) > maxImageBytes; v.tooLarge {
			v.content = nil
			return
		}
		if v.content == nil && v.refused == nil {
			v.refused = v.reserve(maxImageBytes + maxImageBytes*4/3) // base64 too
		}
		if v.refused == nil {
			v.content = append(v.content, p...)
		}
	case !v.binary:
		for len(p) > 0 {
			end := bytes.IndexByte(p, '\n')
			if end < 0 {
				v.grow(p)
				return
			}
			v.grow(p[:end])
			v.breaks++
			v.endLine(true)
			p = p[end+1:]
		}
	}
}

// grow adds to the present line. It keeps no more of the line than can be shown.
func (v *view) grow(p []byte) {
	if len(p) == 0 {
		return
	}
	v.lineBytes += len(p)
	v.lastByte = p[len(p)-1]
	if v.lines+1 >= v.first && !v.full {
		v.line = append(v.line, p[:min(len(p), maxLineBytes+utf8.UTFMax-len(v.line))]...) // UTFMax: to see whether a character is cut
	}
}

// endLine ends the present line; broken: by \n, not by the end of the file.
func (v *view) endLine(broken bool) {
	v.lines++
	line := v.line
	if broken && v.lineBytes > 0 && v.lastByte == '\r' {
		v.crlf++
		if v.dos = v.dos || v.lines == 1; v.dos {
			v.lineBytes--
			line = line[:min(len(line), v.lineBytes)]
		}
	}
	if v.lines >= v.first && !v.full {
		numbered := cutLine(line, v.lineBytes) + "\n"
		if !v.bare {
			numbered = fmt.Sprintf("%6d\t%s", v.lines, numbered)
		}
		if v.full = v.shown == v.most || v.text.Len()+len(numbered) > maxTextBytes; !v.full {
			v.text.WriteString(numbered)
			v.shown, v.last = v.shown+1, v.lines
		}
	}
	v.line, v.lineBytes = v.line[:0], 0
}

func (v *view) end() {
	if !v.typed {
		v.sniff()
	}
	if v.lineBytes > 0 {
		v.endLine(false)
	}
}

// page is the text with a note about what is not shown of the file.
func (v *view) page(size int64) string {
	text := v.text.String()
	switch {
	case size == 0:
		text = "(the file is empty)\n"
	case v.shown == 0:
		text = fmt.Sprintf("(the file has %d lines: none at offset %d)\n", v.lines, v.first)
	case v.last < v.lines:
		text += fmt.Sprintf("(lines %d to %d of %d; go on with offset %d)\n", v.first, v.last, v.lines, v.last+1)
	}
	switch {
	case v.dos && v.crlf == v.breaks:
		text += `(lines end with \r\n)` + "\n"
	case v.dos:
		text += fmt.Sprintf(`(%d of %d lines end with \r\n, which is not shown)`+"\n", v.crlf, v.lines)
	case v.crlf > 0:
		text += fmt.Sprintf(`(%d of %d lines end with \r\n, shown as \x0d)`+"\n", v.crlf, v.lines)
	}
	return text
}
