package checkpoint

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// paragraphs reads the texts between empty lines. It cuts texts that are longer than a checkpoint
// can be.
type paragraphs struct{ lines *bufio.Reader }

func newParagraphs(r io.Reader) paragraphs { return paragraphs{bufio.NewReaderSize(r, MaxBytes)} }

// next returns a paragraph with its newlines; io.EOF after the last one.
func (p paragraphs) next() (string, error) {
	var b strings.Builder
	for {
		line, err := p.lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			err = nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		blank := len(line) == 0 || len(line) == 1 && line[0] == '\n'
		if !blank && b.Len() <= MaxBytes {
			b.Write(line)
		}
		if b.Len() > 0 && (blank || err != nil) {
			return b.String(), nil
		}
		if err != nil {
			return "", err
		}
	}
}
