package library

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"

	"secbox/fault"
	"secbox/pathadapter"
	"secbox/skills/lines"
	"secbox/tree"
)

// LineRange is the lines that an edit replaces, counted from 1, both included. One that begins after the last line appends.
type LineRange struct{ Start, End int }

// tries is how often something is done again when somebody else was in its way. Each time somebody got something done; more often than
// this in a row is a loop in some job, and no reason to wait.
const tries = 8

// Edit writes a file of the user's version of a skill, whole or a range of its lines, and makes the directories above it. The skill is
// materialised first. The file is there with the old content or the new at every moment. SKILL.md is written in the skill's root only.
func (l *Library) Edit(ctx context.Context, o Owner, skillID, path string, content []byte, r *LineRange) error {
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
	release, err := l.change(ctx, o, skillID)
	if err != nil {
		return err
	}
	defer release()
	for range tries {
		again, err := l.editCopy(ctx, o, skillID, path, content, r)
		if err != nil || !again {
			return err
		}
		if r != nil { // the lines may be others by now
			break
		}
	}
	return failed(tree.ErrChanged, "the skill "+skillID)
}

// editCopy writes into the user's copy, and looks whether that is still the copy afterwards: another node may have put another one there,
// without the edit. Whoever replaces a copy looks through the old one after that for what was written late, so one of the two notices.
func (l *Library) editCopy(ctx context.Context, o Owner, skillID, path string, content []byte, r *LineRange) (again bool, err error) {
	if err := l.materialise(ctx, o, skillID); err != nil {
		return false, err
	}
	t, err := l.mine(o, skillID)
	if err != nil {
		return false, err
	}
	if t == nil { // removed in this moment
		return true, nil
	}
	defer t.Close()
	if err := l.write(ctx, t, path, content, r); err != nil {
		if !l.current(o, skillID, t) { // replaced and being removed, directory by directory
			return true, nil
		}
		return false, err
	}
	now, err := l.mine(o, skillID)
	if now == nil || err != nil { // removed after the edit
		return false, err
	}
	defer now.Close()
	return !now.Same(t), nil
}

// checkSkillFile keeps SKILL.md to the root of a skill: anywhere else it would be a skill within a skill, and could not be uploaded.
func checkSkillFile(file string) error {
	if pathadapter.FoldName(path.Base(file)) != "skill.md" || file == "SKILL.md" || file == "skill.md" {
		return nil
	}
	return refused("is no place for a SKILL.md: that file is written as SKILL.md in a skill's root only; use another name")
}

// refused is a path that is not taken; why goes on after the field's name.
func refused(why string) error {
	return &fault.Error{Code: fault.PathRefused, Message: "path: " + why, Fields: []fault.Field{{Field: "path", Reason: why}}}
}

func checkSize(content []byte) error {
	if len(content) > MaxFileBytes {
		return fault.New(fault.FileTooLarge, "the content has %d bytes, more than the %d that are written at once: upload the skill instead, or use a command",
			len(content), MaxFileBytes)
	}
	return nil
}

// write replaces a file or some of its lines, as the only editor of the workspace on all nodes. When a command changes the file between the
// reading and the writing of lines, both are done again.
func (l *Library) write(ctx context.Context, t *tree.Tree, path string, content []byte, r *LineRange) error {
	release, err := t.LockEdits(ctx)
	if err != nil {
		return failed(err, path)
	}
	defer release()
	for range tries {
		if r == nil {
			err = t.Write(path, content, nil)
		} else {
			err = l.writeLines(t, path, content, *r)
		}
		if !errors.Is(err, tree.ErrChanged) {
			break
		}
	}
	return failed(err, path)
}

// writeLines replaces lines once. The file is read twice, and need not fit into memory.
func (l *Library) writeLines(t *tree.Tree, path string, content []byte, r LineRange) error {
	old, seen, err := openFile(t, path)
	if err != nil {
		return err
	}
	defer old.Close()
	size := seen.Size()
	if size > MaxLinesBytes {
		return fault.New(fault.FileTooLarge, "%q has %d bytes, more than the %d whose lines can be edited: use a command", path, size, int64(MaxLinesBytes))
	}
	c, err := lines.Find(io.NewSectionReader(old, 0, size), r.Start, r.End, string(content))
	if err != nil {
		return err
	}
	becomes := c.From + int64(len(c.Text)) + size - c.To
	if becomes > MaxLinesBytes {
		return fault.New(fault.FileTooLarge, "the file would have %d bytes, more than the %d whose lines can be edited: use a command", becomes, int64(MaxLinesBytes))
	}
	if size > MaxFileBytes {
		if err := l.checkRoomFor(uint64(becomes), 1); err != nil {
			return err
		}
	}
	return t.WriteBy(path, seen, func(w io.Writer) error {
		for _, part := range []io.Reader{io.NewSectionReader(old, 0, c.From), strings.NewReader(c.Text), io.NewSectionReader(old, c.To, size-c.To)} {
			if _, err := io.Copy(w, part); err != nil {
				return err
			}
		}
		return nil
	})
}

// Materialise sees to it that the user has a copy of the skill in the workspace, where commands find it. One that is there stays as it is.
// The installation's own skill has a place of its own.
func (l *Library) Materialise(ctx context.Context, o Owner, skillID string) error {
	if isGlobal(skillID) {
		return o.check()
	}
	if err := checkIDs(o, skillID); err != nil {
		return err
	}
	release, err := l.change(ctx, o, skillID)
	if err != nil {
		return err
	}
	defer release()
	return l.materialise(ctx, o, skillID)
}

// materialise does that under the skill's lock.
func (l *Library) materialise(ctx context.Context, o Owner, skillID string) error {
	for range tries {
		copied, err := l.mine(o, skillID)
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

// putCopy puts a copy of a version into the workspace. It reports false when something is there by now, or when the pointer, read again,
// says something else: then whoever set it looked for a copy before ours was there, and ours is taken back.
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
		l.Log.WarnContext(ctx, "a copy of a skill that was replaced meanwhile stays", "agent", o.AgentID, "user", o.UserID, "skill", skillID, "error", taken)
	}
	return false, err
}

// inSkill tells of a clean path below work/ which skill's copy it leads into, and where there.
func inSkill(file string) (skillID, below string, ok bool) {
	parts := strings.SplitN(file, "/", 3)
	if len(parts) < 3 || parts[0] != skillsDir {
		return "", "", false
	}
	return parts[1], parts[2], true
}
