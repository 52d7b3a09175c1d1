package witness

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"

	sumdb "golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit/translog/checkpoint"
	"secbox/fault"
)

// Compared is what a comparison found.
type Compared struct {
	Common int // sizes that both have
	Newest [2]checkpoint.Checkpoint
}

// Compare compares the checkpoints that two witnesses have kept of the log with this key. It fails
// with a *Finding if the log has shown them different trees. Checkpoints of different sizes can be
// compared only with the log's tiles: with get, the last of both are compared with the log's
// present checkpoint.
func Compare(ctx context.Context, key string, one, two io.Reader, get Get) (Compared, error) {
	var out Compared
	verifier, err := sumdb.NewVerifier(strings.TrimSpace(key))
	if err != nil {
		return out, fault.Wrap(fault.InvalidRequest, err, "the key is not the public key of a log; `core-api audit key` prints it")
	}
	left, stopLeft := iter.Pull2(inOrder(one, verifier))
	defer stopLeft()
	right, stopRight := iter.Pull2(inOrder(two, verifier))
	defer stopRight()
	a, errA, moreA := left()
	b, errB, moreB := right()
	for moreA || moreB {
		if err := errors.Join(errA, errB); err != nil {
			return out, err
		}
		before, after := !moreB || moreA && a.Tree.N < b.Tree.N, !moreA || moreB && b.Tree.N < a.Tree.N
		if !before && !after {
			if a.Tree.Hash != b.Tree.Hash {
				return out, split(a, b, checkpoint.ErrForked)
			}
			out.Common++
		}
		if !after {
			out.Newest[0] = a
			a, errA, moreA = left()
		}
		if !before {
			out.Newest[1] = b
			b, errB, moreB = right()
		}
	}
	for _, newest := range out.Newest {
		if newest.Signed == "" {
			return out, fault.New(fault.InvalidRequest, "one of the two has no checkpoint of the log %s with this key", verifier.Name())
		}
	}
	if get == nil {
		return out, nil
	}
	return out, compareWithLog(ctx, verifier, out.Newest, get)
}

// compareWithLog checks that the log's present tree extends both checkpoints.
func compareWithLog(ctx context.Context, key sumdb.Verifier, newest [2]checkpoint.Checkpoint, get Get) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	shown, err := get(ctx, "checkpoint", checkpoint.MaxBytes)
	if err != nil {
		return err
	}
	now, err := checkpoint.Open(shown, key)
	if errors.Is(err, checkpoint.ErrFormat) {
		return fault.Wrap(fault.UpstreamFailed, err, "the server's answer is no checkpoint of a transparency log: %s", err)
	}
	for _, point := range newest {
		if err != nil {
			return &Finding{Kind: kindOf(err), Reason: err.Error(), Kept: point.Signed, Shown: string(shown)}
		}
		if wrong := checkpoint.Extends(point.Tree, now.Tree, remote{ctx, get}); kindOf(wrong) != "" {
			return split(point, now, wrong)
		} else if wrong != nil {
			return wrong
		}
	}
	return nil
}

func split(a, b checkpoint.Checkpoint, why error) *Finding {
	return &Finding{Kind: kindOf(why), Reason: why.Error(), Kept: a.Signed, Shown: b.Signed}
}

// maxUnordered is the size of the largest file whose checkpoints are sorted, in bytes. Such a file
// is evidence, or was put together by hand.
const maxUnordered = 1 << 20

// inOrder returns the checkpoints of a file by their sizes, and an error if the sizes do not grow
// in a large file. It fails with a *Finding if two of the same size differ, or if a small file has
// one of this log that another key is said to have signed.
func inOrder(f io.Reader, key sumdb.Verifier) iter.Seq2[checkpoint.Checkpoint, error] {
	return func(yield func(checkpoint.Checkpoint, error) bool) {
		head, err := io.ReadAll(io.LimitReader(f, maxUnordered))
		if err != nil {
			yield(checkpoint.Checkpoint{}, err)
			return
		}
		all := checkpoint.All(io.MultiReader(bytes.NewReader(head), f), key)
		var other checkpoint.Claim
		if len(head) < maxUnordered {
			all = sorted(all)
			other, _, err = checkpoint.LastOfOther(bytes.NewReader(head), int64(len(head)), key.Name(), checkpoint.IDOf(key))
		}
		before := checkpoint.Checkpoint{Tree: tlog.Tree{N: -1}}
		for c, err := range all {
			switch {
			case err != nil:
			case c.Tree == before.Tree:
				continue
			case c.Tree.N == before.Tree.N:
				err = split(before, c, checkpoint.ErrForked)
			case c.Tree.N < before.Tree.N:
				err = fault.New(fault.InvalidRequest,
					"the checkpoints are not in the order of their sizes, as a witness keeps them: %s after %s", c, before)
			}
			before = c
			if !yield(c, err) || err != nil {
				return
			}
		}
		if err == nil && other.KeyID != "" && before.Signed != "" {
			err = &Finding{Kind: OtherKey, Reason: checkpoint.ErrKey.Error() + ": " + other.KeyID, Kept: before.Signed, Shown: other.Signed}
		}
		if err != nil {
			yield(checkpoint.Checkpoint{}, err)
		}
	}
}

func sorted(all iter.Seq2[checkpoint.Checkpoint, error]) iter.Seq2[checkpoint.Checkpoint, error] {
	return func(yield func(checkpoint.Checkpoint, error) bool) {
		var points []checkpoint.Checkpoint
		for c, err := range all {
			if err != nil {
				yield(c, err)
				return
			}
			points = append(points, c)
		}
		slices.SortStableFunc(points, func(a, b checkpoint.Checkpoint) int { return cmp.Compare(a.Tree.N, b.Tree.N) })
		for _, c := range points {
			if !yield(c, nil) {
				return
			}
		}
	}
}
