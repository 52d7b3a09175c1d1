package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// File is an open file of checkpoints. Its records are notes with an empty line after each, so that
// it can be read with any editor, and a file with a single note is one too. A record that a crash
// or a full disk has cut short stays in the file, and is skipped: the file may be on a volume that
// allows appending only.
type File interface {
	io.ReaderAt
	io.Writer // at the end
	Sync() error
}

const end = "\n\n" // of a record

// Append writes a checkpoint at the end of a file with size bytes, durably.
func Append(f File, size int64, c Checkpoint) error {
	record := c.Signed + "\n"
	if size > 0 {
		last := make([]byte, min(size, int64(len(end))))
		if _, err := f.ReadAt(last, size-int64(len(last))); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !bytes.Equal(last, []byte(end)) {
			record = end + record
		}
	}
	if _, err := f.Write([]byte(record)); err != nil {
		return err
	}
	return f.Sync()
}

// tail is how much of a file Last reads. It has many records.
const tail = 4 * MaxBytes

// Last returns the last checkpoint of the log with this key in a file with size bytes. found is
// false if there is none.
func Last(f io.ReaderAt, size int64, key note.Verifier, cosigners ...note.Verifier) (c Checkpoint, found bool, err error) {
	end, err := endOf(f, size)
	if err != nil {
		return c, false, err
	}
	for point, err := range All(end, key, cosigners...) {
		if err != nil {
			return c, found, err
		}
		c, found = point, true
	}
	return c, found, nil
}

// LastOfOther returns the last checkpoint of the log with this origin that another key is said to
// have signed.
func LastOfOther(f io.ReaderAt, size int64, origin, keyID string) (c Claim, found bool, err error) {
	end, err := endOf(f, size)
	if err != nil {
		return c, false, err
	}
	for signed, err := range notes(end) {
		if err != nil {
			return c, found, err
		}
		if claim, ok := OfOther(signed, origin, keyID); ok {
			c, found = claim, true
		}
	}
	return c, found, nil
}

func endOf(f io.ReaderAt, size int64) (io.Reader, error) {
	from := max(0, size-tail)
	data := make([]byte, size-from)
	if _, err := f.ReadAt(data, from); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return bytes.NewReader(data), nil
}

// All returns the checkpoints of the log with this key in a file, and at its end the error of the
// file, if any. Other records are skipped.
func All(f io.Reader, key note.Verifier, cosigners ...note.Verifier) iter.Seq2[Checkpoint, error] {
	return func(yield func(Checkpoint, error) bool) {
		for signed, err := range notes(f) {
			if err != nil {
				yield(Checkpoint{}, err)
				return
			}
			if c, err := Open(signed, key, cosigners...); err == nil && !yield(c, nil) {
				return
			}
		}
	}
}

// notes finds the notes of a file: a paragraph before a paragraph whose lines are signatures. It
// needs memory for one.
func notes(f io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		paragraphs := newParagraphs(f)
		for text := ""; ; {
			next, err := paragraphs.next()
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(nil, err)
				return
			case !strings.HasPrefix(next, "— "):
				text = next
			case text != "":
				if !yield(fmt.Appendf(nil, "%s\n%s", text, next), nil) {
					return
				}
				text = ""
			}
		}
	}
}
