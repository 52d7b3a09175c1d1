package tools

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"secbox/fault"
	"secbox/sandbox"
)

const writeDescription = `Writes a whole file of the user's workspace, and makes its parent directories. An existing file must have been read in this session ` +
	`(files.read), and is only overwritten if it has not changed since; to change parts of a file, files.edit is better. The answer has the SHA-256 before and after.`

// WriteParams are the arguments of Write.
type WriteParams struct {
	Path    string `json:"path" jsonschema:"the file: relative to the current directory, or absolute below /workspace"`
	Content string `json:"content" jsonschema:"the whole new content"`
}

// Write writes a file. Its Meta has sha256 and, if there was a file, sha256_before.
func (s *Session) Write(ctx context.Context, p WriteParams) (*Result, error) {
	full := s.resolve(p.Path)
	content := []byte(p.Content)
	info, err := s.sandbox.Stat(ctx, full, s.user)
	if errors.Is(err, fs.ErrNotExist) {
		return s.create(ctx, full, content)
	}
	if err != nil {
		return nil, s.explain(ctx, full, err)
	}
	if info.IsDir || !info.Mode.IsRegular() {
		return nil, s.explain(ctx, full, &fs.PathError{Op: "write", Path: full, Err: fs.ErrInvalid})
	}
	before := s.seenFile(full)
	if before == "" {
		return nil, fault.New(fault.FileChanged, "%s exists and was not read in this session; read it first (files.read), then write it again", quote(full))
	}
	if err := s.replace(ctx, full, content, before); err != nil {
		return nil, err
	}
	return s.written(full, before, content, fmt.Sprintf("wrote %s: %d bytes instead of %d", quote(full), len(content), info.Size)), nil
}

// create writes a new file and its parents.
func (s *Session) create(ctx context.Context, full string, content []byte) (*Result, error) {
	if err := s.sandbox.MkdirAll(ctx, path.Dir(full), 0o755, s.user); err != nil {
		return nil, s.explain(ctx, full, err)
	}
	if err := s.replace(ctx, full, content, sandbox.Absent); err != nil {
		return nil, err
	}
	return s.written(full, "", content, fmt.Sprintf("made %s: %d bytes", quote(full), len(content))), nil
}

// replace writes a file if its content has the digest before, or if there is none and before is sandbox.Absent.
func (s *Session) replace(ctx context.Context, full string, content []byte, before string) error {
	_, err := s.sandbox.ReplaceFile(ctx, full, bytes.NewReader(content), before, s.user)
	if fault.Is(err, fault.Unsupported) { // an older runner, which cannot compare
		err = s.compareAndWrite(ctx, full, content, before)
	}
	if fault.Is(err, fault.FileChanged) {
		return fault.Wrap(fault.FileChanged, err, "%s has changed since it was read, and nothing was written; read it again (files.read)", quote(full))
	}
	return s.explain(ctx, full, err)
}

func (s *Session) compareAndWrite(ctx context.Context, full string, content []byte, before string) error {
	sum := sha256.New()
	now := sandbox.Absent
	_, err := s.sandbox.ReadFileTo(ctx, full, sum, s.user)
	switch {
	case err == nil:
		now = hex.EncodeToString(sum.Sum(nil))
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if now != before {
		return fault.New(fault.FileChanged, "")
	}
	return s.sandbox.WriteFile(ctx, full, content, 0o644, s.user)
}

func (s *Session) written(full, before string, content []byte, text string) *Result {
	after := digestOf(content)
	s.sawFile(full, after)
	r := &Result{Meta: map[string]any{"sha256": after, "size": len(content)}}
	r.Text = text + "\nsha256: " + after
	if before != "" {
		r.Meta["sha256_before"] = before
		r.Text += "\nbefore: " + before
	}
	return r
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
