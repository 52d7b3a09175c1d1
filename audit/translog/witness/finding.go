package witness

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"secbox/audit/translog/checkpoint"
	"secbox/fault"
	"secbox/internal/statedir"
)

// Kind is what is wrong with a log.
type Kind string

// The kinds.
const (
	Cut       Kind = "cut"       // it has fewer entries than before: cut, or rolled back to an older copy
	Forked    Kind = "forked"    // it was rebuilt, continued from an older copy, or shown differently to two witnesses
	Foreign   Kind = "foreign"   // a checkpoint of another installation
	OtherKey  Kind = "other-key" // a checkpoint that another key signed
	Signature Kind = "signature" // a signature of the log's key that does not verify
	Hashes    Kind = "hashes"    // hashes that do not match the signed root
)

// kindOf returns the kind of an error of package checkpoint; "" for other errors.
func kindOf(err error) Kind {
	for kind, reason := range map[Kind]error{
		Cut: checkpoint.ErrSmaller, Forked: checkpoint.ErrForked, Foreign: checkpoint.ErrOrigin, OtherKey: checkpoint.ErrKey,
		Signature: checkpoint.ErrSignature, Hashes: checkpoint.ErrHashes,
	} {
		if errors.Is(err, reason) {
			return kind
		}
	}
	return ""
}

// Finding reports that the log is not the log that was seen before.
type Finding struct {
	Kind   Kind
	Reason string
	Kept   string // the checkpoint that the witness has, with its signatures; empty: none yet
	Shown  string // the other one
	File   string // with both; empty: it could not be written

	stored string // its text, if an earlier process found it
}

func (f *Finding) Error() string { return f.Reason }

// Text returns the finding with both checkpoints.
func (f *Finding) Text() string {
	if f.stored != "" {
		return f.stored
	}
	kept := f.Kept
	if kept == "" {
		kept = "(none)\n"
	}
	return fmt.Sprintf("%s: %s\n\nThe checkpoint that was kept:\n\n%s\nThe checkpoint that is shown now:\n\n%s", f.Kind, f.Reason, kept,
		f.Shown)
}

// Printable is Text for a terminal.
func (f *Finding) Printable() string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsGraphic(r) {
			return '�'
		}
		return r
	}, f.Text())
}

// find stores a finding as evidence. From then on the witness cosigns nothing.
func (w *Witness) find(kind Kind, why error, kept checkpoint.Checkpoint, shown string) error {
	f := &Finding{Kind: kind, Reason: why.Error(), Kept: kept.Signed, Shown: shown}
	text := f.Text()
	// The name is of the content, so that a witness that is started again and again stores it once.
	path := filepath.Join(w.cfg.Dir, evidenceDir, fmt.Sprintf("%s-%.16x.txt", kind, sha256.Sum256([]byte(text))))
	text = fmt.Sprintf("Found at %s by %s\n%s", w.cfg.Now().UTC().Format(time.RFC3339), w.cosigner.Name(), text)
	if err := statedir.WriteNew(path, text); err != nil && !errors.Is(err, fs.ErrExist) {
		w.cfg.Logger.Error("cannot store the evidence", "path", path, "reason", fault.Reason(err))
	} else {
		f.File = path
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = f
	return f
}

// maxEvidence is more than a file of evidence has, in bytes: two checkpoints.
const maxEvidence = 4 * checkpoint.MaxBytes

// openEvidence finds what an earlier process has found, since a restart settles nothing. Of several
// findings it takes the last one.
func (w *Witness) openEvidence() error {
	dir := filepath.Join(w.cfg.Dir, evidenceDir)
	files, err := os.ReadDir(dir)
	if err != nil {
		return unusable(w.cfg.Dir, err)
	}
	var newest time.Time
	for _, file := range files {
		info, err := file.Info()
		kind, isFinding := strings.CutSuffix(file.Name(), ".txt")
		at := strings.LastIndexByte(kind, '-')
		if err != nil || !isFinding || at < 0 || info.ModTime().Before(newest) {
			continue
		}
		path := filepath.Join(dir, file.Name())
		text, err := statedir.Read(path, maxEvidence)
		if err != nil {
			return unusable(w.cfg.Dir, err)
		}
		newest = info.ModTime()
		w.found = &Finding{
			Kind: Kind(kind[:at]), File: path, stored: string(text),
			Reason: fmt.Sprintf("an earlier look at the log has found %q; when that is settled, move %s away", kind[:at], path),
		}
	}
	return nil
}

// Found returns what was found, now or by an earlier process whose evidence is still in the
// directory; nil if nothing was.
func (w *Witness) Found() *Finding {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.found
}

// orFound returns what was found, if there is no error.
func (w *Witness) orFound(err error) error {
	if found := w.Found(); err == nil && found != nil {
		return found
	}
	return err
}
