package library

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"secbox/internal/admission"
	"secbox/skills"
	"secbox/workspace/tree"
)

// Bounds of a diff, in bytes.
const (
	maxDiffFile = 1 << 20 // of a file that is compared by lines
	maxDiff     = 8 << 20 // of all files; further files are only named
)

// Diff compares the user's version of a skill with its base, or a skill of the user's own with
// nothing, as a unified diff for patch -p1. Binary and large files are only named. The digest
// identifies the user's version. It is empty if the copy cannot be a version.
func (l *Library) Diff(ctx context.Context, o Owner, skillID string) (text, digest string, err error) {
	if err := checkIDsForReading(o, skillID); err != nil {
		return "", "", err
	}
	if isGlobal(skillID) {
		digest, err := l.GlobalDigest()
		return "", digest, err
	}
	err = l.withSkill(ctx, o, skillID, func(mine *tree.Tree) (err error) {
		for range tries {
			if text, digest, err = l.diff(ctx, o, skillID, mine); !movedAway(ctx, err) {
				return failed(err, "the skill "+skillID)
			}
		}
		unlock, err := l.lock(ctx, o, skillID) // other requests that edit it wait for this attempt
		if err != nil {
			return err
		}
		defer unlock()
		text, digest, err = l.diff(ctx, o, skillID, mine)
		return failed(err, "the skill "+skillID)
	})
	return text, digest, err
}

func (l *Library) diff(ctx context.Context, o Owner, skillID string, mine *tree.Tree) (text, digest string, err error) {
	row, _, err := l.pointer(ctx, o, skillID)
	if err != nil {
		return "", "", err
	}
	now, err := l.read(ctx, mine)
	if err != nil {
		return "", "", err
	}
	if digest, err = l.named(ctx, o.AgentID, skillID, now); err != nil {
		return "", "", err
	}
	base, err := l.stored(ctx, o, skillID, row.BaseDigest)
	if err != nil || base.Digest != "" && base.Digest == now.Digest {
		return "", digest, err
	}
	d := differ{}
	if row.BaseDigest != "" {
		if d.old, err = l.version(o, skillID, row.BaseDigest); err != nil {
			return "", "", err
		}
		defer d.old.Close()
	}
	d.now = mine
	if err := d.trees(ctx, base.ByPath(), now.ByPath()); err != nil {
		return "", "", err
	}
	if now.Invalid != "" {
		fmt.Fprintf(&d.out, "Not compared: %s\n", now.Invalid)
	}
	return d.out.String(), digest, nil
}

type differ struct {
	old, now *tree.Tree
	out      strings.Builder
}

func (d *differ) trees(ctx context.Context, old, now map[string]skills.File) error {
	all := maps.Clone(old)
	maps.Copy(all, now)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		before, was := old[name]
		after, is := now[name]
		if was && is && before == after {
			continue
		}
		if is && after.Executable != before.Executable {
			d.mode(name, was, after.Executable)
		}
		if was && is && before.SHA256 == after.SHA256 {
			continue
		}
		from, to := "/dev/null", "/dev/null"
		var a, b []byte
		comparable := d.out.Len() < maxDiff
		var err error
		if was {
			from = quotedPath("a/" + name)
			if a, err = diffable(d.old, before, &comparable); err != nil {
				return err
			}
		}
		if is {
			to = quotedPath("b/" + name)
			if b, err = diffable(d.now, after, &comparable); err != nil {
				return err
			}
		}
		switch {
		case !comparable:
			fmt.Fprintf(&d.out, "Binary files %s and %s differ\n", from, to)
		case len(a)+len(b) == 0:
			fmt.Fprintf(&d.out, "--- %s\n+++ %s\n", from, to) // an empty file was added or removed
		default:
			err := admission.Do(ctx, func() error {
				_, unified, _ := bytes.Cut(diff.Diff(from, a, to, b), []byte("\n")) // without the line "diff from to"
				d.out.Write(unified)
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// mode writes git's lines about the mode of a file, which patch knows too.
func (d *differ) mode(name string, was, executable bool) {
	fmt.Fprintf(&d.out, "diff --git %s %s\n", quotedPath("a/"+name), quotedPath("b/"+name))
	old, now := "100755", "100644"
	if executable {
		old, now = now, old
	}
	if was {
		fmt.Fprintf(&d.out, "old mode %s\nnew mode %s\n", old, now)
	} else {
		fmt.Fprintf(&d.out, "new file mode %s\n", now)
	}
}

// quotedPath keeps control characters in a path from forging lines.
func quotedPath(path string) string {
	if quoted := strconv.QuoteToGraphic(path); quoted != `"`+path+`"` {
		return quoted
	}
	return path
}

// diffable reads a file that is small enough and text, or clears comparable. tree.ErrChanged means
// that the file has changed.
func diffable(t *tree.Tree, file skills.File, comparable *bool) ([]byte, error) {
	if !*comparable || file.Size > maxDiffFile {
		*comparable = false
		return nil, nil
	}
	content, _, err := readFile(t, file.Path)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != file.SHA256 {
		return nil, tree.ErrChanged
	}
	if !utf8.Valid(content) || bytes.IndexByte(content, 0) >= 0 || len(content) > maxDiffFile {
		*comparable = false
	}
	return content, nil
}
