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
	"secbox/internal/admission"
	"secbox/sandbox"
)

const writeDescription = `Writes a whole file of the user's workspace, and makes its parent directories. An existing file must have been read in this session ` +
	`(files_read), and is only overwritten if it has not changed since; to change parts of a file, files_edit is better. The answer has the SHA-256 before and after.`

// WriteParams are the arguments of Write.
type WriteParams struct {
	Path    string `json:"path" jsonschema:"the file: relative to the current directory, or absolute below /workspace"`
	Content string `json:"content" jsonschema:"the whole new content"`
}

// Write writes a file. Its Meta has sha256 and, if there was a file, sha256_before.
func (s *Session) Write(ctx context.Context, p WriteParams) (*Result, error) {
	return s.put(ctx, writeTool, s.resolve(p.Path), []byte(p.Content))
}

// put writes a whole file. One that exists must have been read in the session.
func (s *Session) put(ctx context.Context, tool, full string, content []byte) (*Result, error) {
	info, err := s.sandbox.Stat(ctx, full, s.user)
	if errors.Is(err, fs.ErrNotExist) {
		return s.create(ctx, tool, full, content)
	}
	if err != nil {
		return nil, s.explain(ctx, full, err)
	}
	if info.IsDir || !info.Mode.IsRegular() {
		return nil, s.explain(ctx, full, &fs.PathError{Op: "write", Path: full, Err: fs.ErrInvalid})
	}
	before := s.seenFile(full)
	if before == "" {
		return nil,
			fault.New(fault.FileChanged, "%s exists and was not read in this session; read it first (files_read), then write it again",
				quote(full))
	}
	return s.replace(ctx, tool, full, content, before,
		fmt.Sprintf("wrote %s: %d bytes instead of %d", quote(full), len(content), info.Size))
}

// create writes a new file and its parents.
func (s *Session) create(ctx context.Context, tool, full string, content []byte) (*Result, error) {
	if err := s.sandbox.MkdirAll(ctx, path.Dir(full), 0o755, s.user); err != nil {
		return nil, s.explain(ctx, full, err)
	}
	return s.replace(ctx, tool, full, content, sandbox.Absent, fmt.Sprintf("made %s: %d bytes", quote(full), len(content)))
}

// replace writes a file if its content has the digest before, or if there is none and before is
// sandbox.Absent. The change is on record, if the sandbox has one.
func (s *Session) replace(ctx context.Context, tool, full string, content []byte, before, text string) (*Result, error) {
	after := digestOf(content)
	change := sandbox.Change{
		User: s.user, Tool: tool, Path: full,
		Digests: sandbox.Digests{Before: before, After: after, Size: int64(len(content))},
	}
	execID, err := s.record(ctx, change, func(ctx context.Context, user sandbox.User) (sandbox.Digests, error) {
		_, err := s.sandbox.ReplaceFile(ctx, full, bytes.NewReader(content), before, user)
		if fault.Is(err, fault.Unsupported) { // an older runner, which cannot compare
			err = s.compareAndWrite(ctx, full, content, before, user)
		}
		return sandbox.Digests{}, err
	})
	if fault.Is(err, fault.FileChanged) {
		e := fault.Wrap(fault.FileChanged, err, "%s has changed since it was read, and nothing was written; read it again (files_read)",
			quote(full))
		e.ExecID = execID
		return nil, e
	}
	if err != nil {
		return nil, s.explain(ctx, full, err)
	}
	s.sawFile(full, after)
	r := &Result{Text: text + "\nsha256: " + after + "\n", Meta: map[string]any{"sha256": after, "size": len(content)}}
	if before != sandbox.Absent {
		r.Text += "before: " + before + "\n"
		r.Meta["sha256_before"] = before
	}
	if execID != "" {
		r.Meta["exec_id"] = execID
	}
	return r, nil
}

// record makes a change that is on record, if the sandbox has one.
func (s *Session) record(ctx context.Context, c sandbox.Change,
	do func(context.Context, sandbox.User) (sandbox.Digests, error),
) (execID string, err error) {
	if r, ok := s.sandbox.(sandbox.Changer); ok {
		return r.Change(ctx, c, func(ctx context.Context, at sandbox.Location) (sandbox.Digests, error) { return do(ctx, at.User) })
	}
	_, err = do(ctx, s.user)
	return "", err
}

func (s *Session) compareAndWrite(ctx context.Context, full string, content []byte, before string, user sandbox.User) error {
	sum := sha256.New()
	now := sandbox.Absent
	_, err := s.sandbox.ReadFileTo(ctx, full, admission.InTurns(ctx, sum), user)
	switch {
	case err == nil:
		now = hex.EncodeToString(sum.Sum(nil))
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if now != before {
		return fault.New(fault.FileChanged, "")
	}
	return s.sandbox.WriteFile(ctx, full, content, 0o644, user)
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
