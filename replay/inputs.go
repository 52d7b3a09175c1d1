package replay

import (
	"bytes"
	"context"
	"io"

	"secbox/audit"
	"secbox/fault"
	"secbox/workspace/tree"
)

// Input is an input of an exec.
type Input struct {
	audit.Input
	Kept bool // there is a copy of its content
}

// InputList is a part of the inputs of an exec.
type InputList struct {
	Items      []Input
	All        int   // inputs that are known
	TotalBytes int64 // of all of them
	Truncated  bool  // the record was cut, and the whole one is not there: there were more
}

// Inputs lists at most limit inputs of an exec, from the one with the number from on. It returns
// fault.ArtifactAltered if the whole record was changed on the disk, and the errors of reserve.
func (r *Replayer) Inputs(ctx context.Context, record audit.Record, from, limit int, reserve Reserve) (InputList, error) {
	record, truncated, err := r.known(ctx, record, reserve)
	if err != nil {
		return InputList{}, err
	}
	out := InputList{All: len(record.Inputs), Truncated: truncated}
	for _, in := range record.Inputs {
		out.TotalBytes += in.Size
	}
	part := record.Inputs[min(from, out.All):min(from+limit, out.All)]
	if err := reserve(inputPrice * int64(len(part))); err != nil {
		return InputList{}, err
	}
	kept, err := r.inputs.Kept(ctx, record.RequestedBy, part)
	if err != nil {
		return InputList{}, err
	}
	out.Items = make([]Input, len(part))
	for i, in := range part {
		out.Items[i] = Input{in, kept[i]}
	}
	return out, nil
}

// known returns the record with all inputs that are known, and whether there were more.
func (r *Replayer) known(ctx context.Context, record audit.Record, reserve Reserve) (audit.Record, bool, error) {
	whole, err := r.whole(ctx, record, reserve)
	switch {
	case err == nil:
		_, damaged := record.Unreadable["inputs"]
		return whole, damaged, nil
	case fault.Is(err, fault.NotReplayable), fault.Is(err, fault.ArtifactsPending):
		list := record.LargeLists["inputs"]
		return record, list.Kept < list.Count, nil
	}
	return record, false, err
}

// OpenInput opens the kept content of an input, which was compared with its digest.
// fault.UnknownInput if the exec has no input of this path, fault.InputNotKept if there is no copy,
// fault.ArtifactAltered if the copy was changed on the disk, and the errors of reserve. The caller
// closes it.
func (r *Replayer) OpenInput(ctx context.Context, record audit.Record, path string, reserve Reserve) (io.ReadSeekCloser, audit.Input,
	error,
) {
	record, truncated, err := r.known(ctx, record, reserve)
	if err != nil {
		return nil, audit.Input{}, err
	}
	for _, in := range record.Inputs {
		if in.Path != path {
			continue
		}
		content, err := r.input(ctx, record, in, reserve)
		if fault.Is(err, fault.NotReplayable) {
			err = notDownloadable(record, in, err)
		}
		if err != nil {
			return nil, audit.Input{}, err
		}
		return opened{bytes.NewReader(content)}, in, nil
	}
	e := fault.New(fault.UnknownInput, "exec %s has no input %q; see its list of inputs", record.ExecID, tree.CutName(path, 255))
	if truncated {
		e.Message += ", which was cut: the whole one in its meta.json is gone"
	}
	return nil, audit.Input{}, e
}

// opened is a content in memory.
type opened struct{ *bytes.Reader }

func (opened) Close() error { return nil }

func notDownloadable(record audit.Record, in audit.Input, err error) error {
	why := whyNotKept[record.InputsKept]
	switch record.InputsKept {
	case "":
		why = "no copy was made, or not yet"
	case audit.Kept:
		why = "the copy was removed"
	}
	return fault.Wrap(fault.InputNotKept, err,
		"the content of the input %q of exec %s is not kept: %s; compare a copy of your own with its SHA-256, %s",
		tree.CutName(in.Path, 255), record.ExecID, why, tree.CutName(in.SHA256, 64))
}
