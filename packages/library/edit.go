package library

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"strings"

	"secbox/fault"
	"secbox/internal/admission"
	"secbox/packages/lines"
	"secbox/pathadapter"
	"secbox/workspace/tree"
)

// LineRange is a range of lines, counted from 1, both ends included. One that begins after the last
// line appends.
type LineRange struct{ Start, End int }

// tries bounds the attempts of an operation that others interfere with. Each failed attempt means
// that another one succeeded; more in a row are a loop in some job.
const tries = 8

// Edit writes a file of the user's version of a skill, as a whole or a range of its lines, and
// makes the directories above it. It makes the user's copy first. At every moment the file has the
// old content or the new one.
func (l *Library) Edit(ctx context.Context, o Owner, skillID, path string, content []byte, r *LineRange) error {
	defer l.Changed(o, Overlay)
	if err := checkIDs(o, skillID); err != nil {
		return err
	}
	path, err := cleanPath(path, "the skill")
	if err != nil {
		return err
	}
	if err := checkSkillFile(path); err != nil {
		return err
	}
	if err := checkSize(content); err != nil {
		return err
	}
	return l.changeCopy(ctx, o, skillID, path, l.edit(content, r, &Digests{}))
}

// change writes a file at a path of a tree. The caller has locked edits.
type change struct {
	write func(ctx context.Context, t *tree.Tree, path string) error
	// once: write must not be called again after it was made in a copy that was replaced meanwhile.
	once bool
}

// edit returns the change of a whole file, or a range of its lines, which sets the digests.
func (l *Library) edit(content []byte, r *LineRange, d *Digests) change {
	if r == nil {
		return change{write: func(ctx context.Context, t *tree.Tree, path string) error {
			sum := sha256.Sum256(content)
			*d = Digests{Before: digestNow(ctx, t, path), After: hex.EncodeToString(sum[:]), Size: int64(len(content))}
			return t.Write(path, content, nil)
		}}
	}
	return change{once: true, write: func(ctx context.Context, t *tree.Tree, path string) (err error) {
		for range tries { // a command may change the file between reading and writing lines
			if err = l.writeLines(ctx, t, path, content, *r, d); !errors.Is(err, tree.ErrChanged) {
				break
			}
		}
		return err
	}}
}

// changeCopy changes a file of the user's copy of a skill.
func (l *Library) changeCopy(ctx context.Context, o Owner, skillID, path string, c change) error {
	release, err := l.lock(ctx, o, skillID)
	if err != nil {
		return err
	}
	defer release()
	for range tries {
		again, err := l.editCopy(ctx, o, skillID, path, c)
		if err != nil || !again {
			return err
		}
		if c.once { // the lines may have changed
			break
		}
	}
	return failed(tree.ErrChanged, "the skill "+skillID)
}

// editCopy writes into the user's copy, and checks that it is still the current one afterwards:
// another node may have replaced it, without the edit. A replacement in turn checks the old copy
// for late writes, so one of the two notices.
func (l *Library) editCopy(ctx context.Context, o Owner, skillID, path string, c change) (again bool, err error) {
	if err := l.materialise(ctx, o, skillID); err != nil {
		return false, err
	}
	t, err := l.openCopy(o, skillID)
	if err != nil {
		return false, err
	}
	if t == nil { // removed just now
		return true, nil
	}
	defer t.Close()
	if err := write(ctx, t, path, c); err != nil {
		if !l.current(o, skillID, t) { // replaced, and being removed file by file
			return true, nil
		}
		return false, err
	}
	now, err := l.openCopy(o, skillID)
	if now == nil || err != nil { // removed after the edit
		return false, err
	}
	defer now.Close()
	return !now.Same(t), nil
}

// checkSkillFile refuses other spellings of SKILL.md in the root of a skill, which would not
// describe it. In a folder below, a SKILL.md is a file like any other.
func checkSkillFile(file string) error {
	if pathadapter.FoldName(file) != "skill.md" || file == "SKILL.md" || file == "skill.md" {
		return nil
	}
	return refused("is not allowed: it would be ignored under that name; write SKILL.md")
}

// refused returns the error for a path. why goes on after the field's name.
func refused(why string) error {
	return &fault.Error{Code: fault.PathRefused, Message: "path: " + why, Fields: []fault.Field{{Field: "path", Reason: why}}}
}

func checkSize(content []byte) error {
	if len(content) > MaxFileBytes {
		return fault.New(fault.FileTooLarge,
			"the content has %d bytes, more than the %d that can be written at once: upload the skill instead, or use a command",
			len(content), MaxFileBytes)
	}
	return nil
}

// write makes a change as the only editor of the workspace on all nodes.
func write(ctx context.Context, t *tree.Tree, path string, c change) error {
	release, err := t.LockEdits(ctx)
	if err != nil {
		return failed(err, path)
	}
	defer release()
	return failed(c.write(ctx, t, meant(t, path)), path)
}

// writeLines replaces lines once. It reads the file twice, but never into memory as a whole.
func (l *Library) writeLines(ctx context.Context, t *tree.Tree, path string, content []byte, r LineRange, d *Digests) error {
	old, seen, err := openFile(t, path)
	if err != nil {
		return err
	}
	defer old.Close()
	size := seen.Size()
	if size > MaxLinesBytes {
		return fault.New(fault.FileTooLarge, "%q has %d bytes, more than the %d whose lines can be edited: use a command", path, size,
			int64(MaxLinesBytes))
	}
	turn, err := admission.Begin(ctx)
	if err != nil {
		return err
	}
	defer turn.End()
	c, err := lines.Find(turn.Reader(io.NewSectionReader(old, 0, size)), r.Start, r.End, string(content))
	if err != nil {
		return err
	}
	becomes := c.From + int64(len(c.Text)) + size - c.To
	if becomes > MaxLinesBytes {
		return fault.New(fault.FileTooLarge, "the file would have %d bytes, more than the %d whose lines can be edited: use a command",
			becomes, int64(MaxLinesBytes))
	}
	if size > MaxFileBytes {
		if err := l.checkRoomFor(uint64(becomes), 1); err != nil {
			return err
		}
	}
	before, after := sha256.New(), sha256.New()
	err = t.WriteBy(path, seen, func(w io.Writer) error {
		for _, part := range []struct {
			io.Reader
			to io.Writer
		}{
			{io.NewSectionReader(old, 0, c.From), io.MultiWriter(w, before, after)},
			{strings.NewReader(c.Text), io.MultiWriter(w, after)},
			{io.NewSectionReader(old, c.From, c.To-c.From), before},
			{io.NewSectionReader(old, c.To, size-c.To), io.MultiWriter(w, before, after)},
		} {
			if _, err := io.Copy(part.to, turn.Reader(part.Reader)); err != nil {
				return err
			}
		}
		return old.Close() // Windows may not replace an open file
	})
	*d = Digests{Before: hex.EncodeToString(before.Sum(nil)), After: hex.EncodeToString(after.Sum(nil)), Size: becomes}
	return err
}

// Materialise copies the skill into the user's workspace, where commands find it, unless there is a
// copy. It does nothing for the installation's own skill, which commands find elsewhere.
func (l *Library) Materialise(ctx context.Context, o Owner, skillID string) error {
	if isGlobal(skillID) {
		return o.check()
	}
	if err := checkIDs(o, skillID); err != nil {
		return err
	}
	release, err := l.lock(ctx, o, skillID)
	if err != nil {
		return err
	}
	defer release()
	return l.materialise(ctx, o, skillID)
}

// materialise is Materialise for a caller that holds the skill's lock.
func (l *Library) materialise(ctx context.Context, o Owner, skillID string) error {
	for range tries {
		copied, err := l.openCopy(o, skillID)
		if err != nil {
			return err
		}
		if copied != nil {
			return copied.Close()
		}
		row, ok, err := l.pointer(ctx, o, skillID)
		if err != nil {
			return err
		}
		if !ok || row.Digest == "" {
			return unknownSkill(skillID)
		}
		put, err := l.putCopy(ctx, o, skillID, row.Digest)
		if put || err != nil {
			return err
		}
	}
	return failed(tree.ErrChanged, "the skill "+skillID)
}

// putCopy puts a copy of a version into the workspace. It reports false if a copy exists already,
// or if the pointer names another version afterwards: then the other node looked for a copy before
// ours existed, and ours is removed again.
func (l *Library) putCopy(ctx context.Context, o Owner, skillID, digest string) (bool, error) {
	staged, err := l.stageCopy(ctx, o, skillID, digest)
	if err != nil {
		return false, err
	}
	defer staged.Discard()
	work, err := l.work(o)
	if work == nil || err != nil {
		return false, err
	}
	defer work.Close()
	err = work.Put(staged, skillPath(skillID))
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, failed(err, "skills/"+skillID+" in the workspace")
	}
	row, ok, err := l.Registry.Get(ctx, o.key(skillID))
	if err == nil && ok && row.Digest == digest {
		return true, nil
	}
	if taken := work.TakeBack(staged, skillPath(skillID)); taken != nil {
		l.Log.WarnContext(ctx, "a copy of a skill that was replaced meanwhile cannot be removed", "agent", o.AgentID, "user", o.UserID,
			"skill", skillID, "error", taken)
	}
	return false, err
}

// inSkill splits a clean path below work/ that leads into a skill's copy.
func inSkill(file string) (skillID, below string, ok bool) {
	parts := strings.SplitN(file, "/", 3)
	if len(parts) < 3 || parts[0] != skillsDir {
		return "", "", false
	}
	return parts[1], parts[2], true
}
